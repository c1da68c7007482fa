// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * What every thread of a process does now: an iterator, which user space reads like a file. It runs in the reader, and
 * no thread is stopped: one that ran while it was looked at has no stack here, because the one that was read never was.
 */
#include "maps.h"
#include "others.h"

struct dumped dumped; /* one reader at a time */

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
