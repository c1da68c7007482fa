/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What the scheduler knew of a thread when it last came to a CPU: time off the CPU is counted from there. */
#ifndef STACKHOUND_PRESENCE_H
#define STACKHOUND_PRESENCE_H

#include "task.h"

struct presence {
	u64 arrived_ns; /* by the scheduler's clock; 0: it has not been seen */
	u64 executed_ns;
	u64 queued_ns;
	u64 preemptions;
	u64 until_mark_ns; /* of the thread's own clock */
	u64 marked_ns;     /* what the sample at that mark will stand for */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct presence);
} presences SEC(".maps");

static __always_inline struct presence *presence_of(struct task_struct *task)
{
	return bpf_task_storage_get(&presences, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline void note_presence(struct presence *presence, struct task_struct *task, u64 arrived_ns)
{
	presence->arrived_ns = arrived_ns;
	presence->executed_ns = task->se.sum_exec_runtime;
	presence->queued_ns = task->sched_info.run_delay;
	presence->preemptions = task->nivcsw;
}

#endif
