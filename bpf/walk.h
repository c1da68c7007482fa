/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The walk of the current thread's stack, counted and timed. */
#ifndef STACKHOUND_WALK_H
#define STACKHOUND_WALK_H

#include "sample.h"
#include "stack/kernel.h"
#include "stack/user.h"

static __always_inline void walk_from(void *context, const struct kernel_place *from, struct task_struct *task,
				      struct sample *sample, bool in_kernel, u32 hook)
{
	u32 task_flags = READ(task, flags);
	struct mm_struct *mm = READ(task, mm);

	if (task_flags & PF_VCPU)
		sample->header.flags |= GUEST;
	if (in_kernel) {
		sample->header.flags |= IN_KERNEL;
		if (!config.user_only)
			walk_kernel(context, from, sample, hook);
	}
	if (task_flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		sample->header.flags |= KERNEL_THREAD;
	else if (!mm)
		set_user_end(sample, END_EXITED);
	else if (!READ(mm, start_code))
		set_user_end(sample, END_EXECUTING);
	else if (!config.kernel_only)
		walk_user(context, task, sample, hook);
}

/* Where only a program may be, and the kernel has nothing to say. */
static __always_inline void walk_program(void *context, struct task_struct *task, struct sample *sample, u32 hook)
{
	struct kernel_place unknown = {};

	walk_from(context, &unknown, task, sample, false, hook);
}

/* From wherever the program was called. */
static __always_inline void walk(void *context, struct task_struct *task, struct sample *sample, u32 hook)
{
	struct kernel_place unknown = {};

	walk_from(context, &unknown, task, sample, true, hook);
}

static __always_inline void count_walk(const struct sample *sample, struct counters *counters)
{
	if (sample->header.flags & USER_TRUNCATED)
		counters->user_truncated++;
	if (sample->header.flags & KERNEL_TRUNCATED)
		counters->kernel_truncated++;
	if (sample->header.flags & USER_UNREADABLE)
		counters->user_unreadable++;
	if (!(sample->header.flags & KERNEL_THREAD) && !config.kernel_only)
		counters->user_ends[(sample->header.flags >> USER_END_SHIFT) % USER_ENDS]++;
}

/* A look at the clock takes as long as ten frames: one sample in so many is timed. */
#define TIMED_EVERY 16

static __always_inline void count_time(u64 since_ns, struct counters *counters)
{
	counters->samples++;
	if (counters->samples % TIMED_EVERY)
		return;
	counters->timed_samples++;
	counters->timed_ns += bpf_ktime_get_boot_ns() - since_ns;
}

/* One pass in so many is timed: a run that may take no sample. */
#define TIMED_PASSES_EVERY 1024

struct pass {
	u64 since_ns; /* 0: it is not timed */
	u64 samples;
};

static __always_inline struct pass begin_pass(struct counters *counters)
{
	struct pass pass = {.samples = counters->samples};

	counters->entries++;
	if (++counters->arrivals % TIMED_PASSES_EVERY == 0)
		pass.since_ns = bpf_ktime_get_boot_ns();
	return pass;
}

static __always_inline void end_pass(const struct pass *pass, struct counters *counters)
{
	if (!pass->since_ns || counters->samples != pass->samples)
		return;
	counters->timed_passes++;
	counters->timed_passes_ns += bpf_ktime_get_boot_ns() - pass->since_ns;
}

#endif
