/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The user part of a stack, by frame pointers. */
#ifndef STACKHOUND_STACK_USER_H
#define STACKHOUND_STACK_USER_H

#include "../task.h"

/* Appends to the kernel frames that are there already. */
static __always_inline void walk_user(void *context, struct sample *sample)
{
	u32 first = sample->header.kernel_frames;
	long bytes;

	if (first > MAX_STACK_FRAMES)
		return;
	bytes = bpf_get_stack(context, &sample->words[first], MAX_STACK_FRAMES * sizeof(u64), BPF_F_USER_STACK);
	if (bytes <= 0) {
		sample->header.flags |= USER_UNREADABLE;
		return;
	}
	sample->header.user_frames = bytes / sizeof(u64);
	if (sample->header.user_frames >= config.max_frames)
		sample->header.flags |= USER_TRUNCATED;
}

#endif
