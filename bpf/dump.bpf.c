// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * What every thread of a process does now: an iterator, which user space reads like a file. It runs in the reader, and
 * may wait for the memory of the threads, none of which is stopped: one that ran while it was looked at has no stack
 * here, because the one that was read never was.
 */
#define LOOKS_AT_OTHERS
#include "maps.h"
#include "sample.h"
#include "stack/user.h"

struct dumped dumped; /* one reader at a time */

/* How often it has left a CPU: the kernel counts before it does. */
static __always_inline u64 departures(struct task_struct *task)
{
	return *(volatile unsigned long *)&task->nvcsw + *(volatile unsigned long *)&task->nivcsw;
}

static __always_inline bool is_on_cpu(struct task_struct *task)
{
	return *(volatile int *)&task->on_cpu;
}

/* Sleeping functions are left out by the kernel: the leaf is who sleeps. */
static __always_inline void walk_kernel_of(struct task_struct *task, struct sample *sample)
{
	long bytes = bpf_get_task_stack(task, sample->words, MAX_STACK_FRAMES * sizeof(u64), 0);

	if (bytes <= 0)
		return;
	sample->header.flags |= IN_KERNEL;
	sample->header.kernel_frames = bytes / sizeof(u64);
	if (sample->header.kernel_frames >= config.max_frames)
		sample->header.flags |= KERNEL_TRUNCATED;
}

static __always_inline void walk_user_of(struct task_struct *task, struct sample *sample)
{
	u32 zero = 0;
	struct walk *walk = bpf_map_lookup_elem(&walks, &zero);

	if (walk)
		walk_by_tables(walk, task, sample);
}

static __always_inline void walk(struct task_struct *task, struct sample *sample)
{
	if (!config.user_only)
		walk_kernel_of(task, sample);
	if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		sample->header.flags |= KERNEL_THREAD;
	else if (!task->mm)
		set_user_end(sample, END_EXITED);
	else
		walk_user_of(task, sample);
}

/* A thread that is on no CPU before and after, and has left none in between, has stood still. */
static __always_inline bool walk_resting(struct task_struct *task, struct sample *sample)
{
	u64 before;

	if (is_on_cpu(task))
		return false;
	before = departures(task);
	walk(task, sample);
	return !is_on_cpu(task) && departures(task) == before;
}

static __always_inline void forget_stack(struct sample *sample)
{
	sample->header.flags = 0;
	sample->header.kernel_frames = 0;
	sample->header.user_frames = 0;
}

static __always_inline void describe_thread(struct dumped_thread *thread, struct task_struct *task)
{
	thread->cpu_ns = task->se.sum_exec_runtime;
	thread->task_state = task->__state | (u64)task->exit_state << 32;
	thread->io_wait = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
}

SEC("iter.s/task")
int dump_thread(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct sample *sample = &dumped.sample;
	u64 bytes;

	if (!task)
		return 0;
	describe(sample, task, bpf_ktime_get_boot_ns());
	describe_thread(&dumped.thread, task);
	sample->header.cpu = task->thread_info.cpu;
	dumped.thread.has_run = !walk_resting(task, sample);
	if (dumped.thread.has_run)
		forget_stack(sample);
	bytes = sizeof(dumped.thread) + sizeof(sample->header) + stack_words(sample) * sizeof(u64);
	barrier_var(bytes);
	if (bytes <= sizeof(dumped))
		bpf_seq_write(context->meta->seq, &dumped, bytes); /* what finds no room is looked at again */
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
