/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Which mappings a process has, as user space has published them (crates/capture/src/unwind/process_table.rs). */
#ifndef STACKHOUND_STACK_PROCESSES_H
#define STACKHOUND_STACK_PROCESSES_H

#include "../task.h"

/* An open-addressed hash table: a slot is written at once, and emptied slots in the middle stay marked. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_PROCESSES);
	__type(key, u32);
	__type(value, u64);
} unwind_processes SEC(".maps");

/* The slot of a process; 0 when it has none. */
static __always_inline u64 *find_process(u32 tgid)
{
	u32 first = tgid * 0x9e3779b1u >> 16;

	for (u32 probe = 0; probe < UNWIND_PROBES; probe++) {
		u32 index = (first + probe) % UNWIND_PROCESSES;
		u64 *slot = bpf_map_lookup_elem(&unwind_processes, &index);

		if (!slot || !*slot)
			return 0;
		if (*slot >> 32 == tgid)
			return slot;
	}
	return 0;
}

/* Since its fork neither the process nor its parent has become another program: their mappings are the same. */
static __always_inline bool is_copy_of_parent(struct task_struct *leader, struct task_struct *parent)
{
	u32 then = READ(leader, parent_exec_id);

	return READ(leader, self_exec_id) == then && READ(parent, self_exec_id) == then;
}

/* Reference to the mappings of a process; until user space has seen its fork, to its parent's. 0: not known. */
static __always_inline u32 mappings_of(struct task_struct *task, u32 tgid)
{
	struct task_struct *leader = READ(task, group_leader);
	struct task_struct *parent = READ(leader, real_parent);
	u64 *slot = find_process(tgid);

	if (!slot && is_copy_of_parent(leader, parent))
		slot = find_process(collector_tgid(parent));
	return slot ? *slot : 0;
}

#endif
