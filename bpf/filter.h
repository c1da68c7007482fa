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

static __always_inline bool comm_matches(void)
{
	u64 comm[COMM_BYTES / 8] = {};
	const volatile u64 *wanted = (const volatile u64 *)config.comm;

	bpf_get_current_comm(comm, sizeof(comm));
	return comm[0] == wanted[0] && comm[1] == wanted[1];
}

static __always_inline bool is_target(u32 tgid)
{
	u8 *state = bpf_map_lookup_elem(&targets, &tgid);

	return state && *state == TARGET_SAMPLED;
}

/* tgid is the collector's name for the process, 0 when it cannot see it. */
static __always_inline bool is_wanted(u32 tgid)
{
	if (config.self_tgid && tgid == config.self_tgid)
		return false;
	if (config.filter_targets && !is_target(tgid))
		return false;
	if (config.filter_comm && !comm_matches())
		return false;
	if (config.filter_cgroup && bpf_current_task_under_cgroup(&cgroups, 0) != 1)
		return false;
	return true;
}

#endif
