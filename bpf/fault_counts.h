/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The page faults of each process, to the last one: the kernel counts those of every thread. What a thread's counts have
 * grown by is added to its process when it ends, and when user space asks (bpf/faults.bpf.c).
 */
#ifndef STACKHOUND_FAULT_COUNTS_H
#define STACKHOUND_FAULT_COUNTS_H

#include "filter.h"

/* Of a thread: what is no more to be added. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fault_counts);
} thread_faults SEC(".maps");

/* Changed only from process context and from user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_TARGETS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct process_key);
	__type(value, struct fault_counts);
} process_faults SEC(".maps");

static __always_inline bool has_counted_faults(struct task_struct *task, u32 tgid)
{
	if (task->flags & PF_KTHREAD)
		return false;
	if (config.filter_targets)
		return is_target(tgid);
	return tgid && tgid != config.self_tgid;
}

static __always_inline void count_uncounted(void)
{
	struct counters *counters = this_cpu_counters(HOOK_EVENT);

	if (counters)
		counters->uncounted_faults++;
}

/* What the thread has had so far is left out. */
static __always_inline void begin_counting(struct task_struct *task)
{
	struct fault_counts *before = bpf_task_storage_get(&thread_faults, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!before) {
		count_uncounted();
		return;
	}
	before->minor = task->min_flt;
	before->major = task->maj_flt;
}

/* NULL when there is no room. */
static __always_inline struct fault_counts *faults_of_process(struct task_struct *task, u32 tgid)
{
	struct process_key key = {.start_boottime_ns = task->group_leader->start_boottime, .tgid = tgid};
	struct fault_counts *sum = bpf_map_lookup_elem(&process_faults, &key);
	struct fault_counts none = {};

	if (sum)
		return sum;
	bpf_map_update_elem(&process_faults, &key, &none, BPF_NOEXIST); /* another thread may be faster */
	return bpf_map_lookup_elem(&process_faults, &key);
}

/* The exchange tells for sure what was added before: the thread may end while user space asks. */
static __always_inline void add_grown(u64 *sum, u64 *before, u64 now)
{
	__sync_fetch_and_add(sum, now - __sync_lock_test_and_set(before, now));
}

static __always_inline void add_faults(struct task_struct *task, u32 tgid)
{
	struct fault_counts *before = bpf_task_storage_get(&thread_faults, task, 0, 0);
	struct fault_counts *sum;

	if (!before && task->start_boottime < config.begin_boottime_ns)
		return; /* ends while the recording begins */
	if (!before)
		before = bpf_task_storage_get(&thread_faults, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	sum = faults_of_process(task, tgid);
	if (!before || !sum) {
		count_uncounted();
		return;
	}
	add_grown(&sum->minor, &before->minor, task->min_flt);
	add_grown(&sum->major, &before->major, task->maj_flt);
}

#endif
