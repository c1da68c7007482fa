/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Which threads are worth sampling: the first instructions of every program. */
#ifndef STACKHOUND_FILTER_H
#define STACKHOUND_FILTER_H

#include "task.h"

struct {
	__uint(type, BPF_MAP_TYPE_CGROUP_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} cgroups SEC(".maps");

static __always_inline bool comm_matches(struct task_struct *task)
{
	u64 comm[COMM_BYTES / 8] = {};
	const volatile u64 *wanted = (const volatile u64 *)config.comm;

	read_comm((u8 *)comm, task);
	return comm[0] == wanted[0] && comm[1] == wanted[1];
}

static __always_inline bool is_target(u32 tgid)
{
	u8 *state = bpf_map_lookup_elem(&targets, &tgid);

	return state && *state == TARGET_SAMPLED;
}

static __always_inline bool is_wanted(struct task_struct *task)
{
	u32 tgid = collector_tgid(task);

	if (config.self_tgid && tgid == config.self_tgid)
		return false;
	if (config.filter_targets && !is_target(tgid))
		return false;
	if (config.filter_comm && !comm_matches(task))
		return false;
	if (config.filter_cgroup && bpf_current_task_under_cgroup(&cgroups, 0) != 1)
		return false;
	return true;
}

#endif
