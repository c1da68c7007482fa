/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The kernel part of a stack: the kernel unwinds itself (ORC or frame pointers). */
#ifndef STACKHOUND_STACK_KERNEL_H
#define STACKHOUND_STACK_KERNEL_H

#include "../task.h"

/* Fills the sample's words from the start; the sample must be empty. */
static __always_inline void walk_kernel(void *context, struct sample *sample)
{
	long bytes = bpf_get_stack(context, sample->words, MAX_STACK_FRAMES * sizeof(u64), 0);

	if (bytes <= 0)
		return;
	sample->header.kernel_frames = bytes / sizeof(u64);
	if (sample->header.kernel_frames >= config.max_frames)
		sample->header.flags |= KERNEL_TRUNCATED;
}

#endif
