/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The kernel part of a stack: by the kernel's tables, or by the kernel itself (ORC or frame pointers). */
#ifndef STACKHOUND_STACK_KERNEL_H
#define STACKHOUND_STACK_KERNEL_H

#include "../task.h"
#include "orc.h"

/* Fills the sample's words from `first` on; returns how many. */
static __always_inline u32 ask_kernel(void *context, struct sample *sample, u32 first)
{
	long bytes = bpf_get_stack(context, &sample->words[first], MAX_STACK_FRAMES * sizeof(u64), 0);

	return bytes > 0 ? bytes / sizeof(u64) : 0;
}

/*
 * Whether the kernel's own walk finds the same; a test asks for that. It is done behind the words that are there, and
 * begins in this very program, which is further up than where a thread came back to its CPU.
 */
static __always_inline void compare_with_kernel(void *context, struct sample *sample, u32 frames, u32 hook,
						struct counters *counters)
{
	const u64 *others = &sample->words[MAX_STACK_FRAMES + 1];
	u32 more = ask_kernel(context, sample, MAX_STACK_FRAMES + 1) - frames;
	u64 difference = more >= MAX_STACK_FRAMES || (hook == HOOK_EVENT && more);

	for (u32 i = 0; i < MAX_STACK_FRAMES; i++)
		if (i < frames)
			difference |= sample->words[i] ^ others[(more + i) & MAX_STACK_FRAMES];
	if (difference)
		counters->kernel_walks_differ++;
}

/* The sample must be empty. */
static __always_inline u32 walk_tables_of_kernel(void *context, const struct kernel_place *from, struct sample *sample,
						 u32 hook)
{
	u32 place = this_cpu_place(hook);
	struct kernel_walk *walk = bpf_map_lookup_elem(&kernel_walks, &place);
	struct counters *counters = this_cpu_counters(hook);
	u32 frames = walk ? walk_orc(walk, from, sample->words) : 0;

	if (!counters)
		return 0;
	if (!frames) {
		counters->kernel_walks_failed++;
		return 0;
	}
	counters->kernel_walks++;
	if (config.kernel_walk == KERNEL_WALK_COMPARED)
		compare_with_kernel(context, sample, frames, hook, counters);
	return frames;
}

/* Fills the sample's words from the start; the sample must be empty. */
static __always_inline void walk_kernel(void *context, const struct kernel_place *from, struct sample *sample, u32 hook)
{
	u32 frames = config.kernel_walk && from->ip ? walk_tables_of_kernel(context, from, sample, hook) : 0;

	if (!frames)
		frames = ask_kernel(context, sample, 0);
	sample->header.kernel_frames = frames;
	if (frames >= config.max_frames)
		sample->header.flags |= KERNEL_TRUNCATED;
}

#endif
