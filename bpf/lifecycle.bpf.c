// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Keeps the set of sampled processes true: children join at fork, a held COMMAND at its exec, the dead leave; and what is
 * known of mappings: an exec ends it; and tells what the new program was called with, and who was moved to another control
 * group. All run in process context.
 */
#include "maps.h"
#include "task.h"
#include "presence.h"
#include "stack/processes.h"
#include "fault_counts.h"
#include "command_line.h"
#include <bpf/bpf_tracing.h>

SEC("tp_btf/sched_process_fork")
int BPF_PROG(follow_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 parent_tgid = collector_tgid(parent);
	u32 child_tgid = collector_tgid(child);
	struct counters *counters;
	u8 *wanted;
	u8 state;

	if (child_tgid == parent_tgid)
		return 0;
	wanted = bpf_map_lookup_elem(&targets, &parent_tgid);
	if (!wanted)
		return 0;
	state = *wanted;
	if (bpf_map_update_elem(&targets, &child_tgid, &state, BPF_ANY)) {
		counters = this_cpu_counters(HOOK_EVENT);
		if (counters)
			counters->targets_full++;
	}
	return 0;
}

/* After the new program's memory and name are in place, before its first instruction. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(release_held, struct task_struct *task)
{
	u32 tgid = collector_tgid(task);
	u8 *state = bpf_map_lookup_elem(&targets, &tgid);
	struct presence *presence;

	if (!state || *state != TARGET_HELD)
		return 0;
	*state = TARGET_SAMPLED;
	if (config.count_faults)
		begin_counting(task);
	presence = config.off_cpu ? presence_of(task) : 0;
	if (presence)
		note_presence(presence, task, presence_clock(task));
	return 0;
}

/* User space hears of the exec later. Until then the new program's stacks must not be read by the old one's tables. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(forget_mappings, struct task_struct *task)
{
	u64 *slot = find_process(collector_tgid(task));

	if (slot)
		*slot &= ~0xffffffffULL;
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(tell_program, struct task_struct *task)
{
	u32 tgid = collector_tgid(task);

	if (!tgid || (config.filter_targets && !bpf_map_lookup_elem(&targets, &tgid)))
		return 0;
	tell_command_line(task, tgid);
	return 0;
}

/* A thread of a process may be elsewhere than the process. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(follow_move, struct cgroup *cgroup, const char *path, struct task_struct *task, bool threadgroup)
{
	u32 tgid = collector_tgid(task);

	if (!tgid || (!threadgroup && task->pid != task->tgid))
		return 0;
	if (config.filter_targets && !bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	tell_move(tgid);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(follow_exit, struct task_struct *task)
{
	u32 tgid = collector_tgid(task);

	if (config.count_faults && has_counted_faults(task, tgid))
		add_faults(task, tgid);
	if (task->signal->live.counter)
		return 0;
	bpf_map_delete_elem(&targets, &tgid);
	return 0;
}
