/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The user part of a stack: by unwind tables, or by frame pointers where there can be none. */
#ifndef STACKHOUND_STACK_USER_H
#define STACKHOUND_STACK_USER_H

#include "../task.h"
#include "tables.h"
#include "unwind.h"
#include "registers.h"
#include "python.h"
#include "unpublished.h"

/* One for each CPU and hook; no per-CPU map takes values of this size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} walks SEC(".maps");

static __always_inline void set_user_end(struct sample *sample, u32 end)
{
	sample->header.flags |= end << USER_END_SHIFT;
}

/* Behind the kernel frames that are there already. The mask tells the verifier what their number is anyway. */
static __always_inline u64 *user_words(struct sample *sample)
{
	u32 first = sample->header.kernel_frames;

	barrier_var(first);
	return &sample->words[first & MAX_STACK_FRAMES];
}

static __always_inline void walk_frame_pointers(void *context, struct sample *sample)
{
	long bytes = bpf_get_stack(context, user_words(sample), MAX_STACK_FRAMES * sizeof(u64), BPF_F_USER_STACK);

	if (bytes <= 0) {
		sample->header.flags |= USER_UNREADABLE;
		return;
	}
	sample->header.user_frames = bytes / sizeof(u64);
	if (sample->header.user_frames >= config.max_frames)
		sample->header.flags |= USER_TRUNCATED;
}

/* The walk is over: what it found counts. */
static __always_inline void keep_walk(const struct walk *walk, struct sample *sample)
{
	if (walk->end == END_TRUNCATED)
		sample->header.flags |= USER_TRUNCATED;
	if (walk->lack)
		sample->header.flags |= USER_FRAME_POINTERS;
	sample->header.user_frames = walk->frames;
	set_user_end(sample, walk->end);
}

static __always_inline void find_mappings(struct walk *walk, struct task_struct *task, u32 tgid)
{
	walk->mappings = mappings_of(task, tgid);
	walk->publication = publication_of(walk->mappings);
	if (!walk->publication) {
		walk->mappings = 0;
		walk->publication = unpublished(task, tgid);
	}
}

/*
 * False when it is a 32-bit program, or one that user space has not heard of yet and whose root was not reached: the
 * sample says which.
 */
static __always_inline bool walk_by_tables(struct walk *walk, struct task_struct *task, struct sample *sample)
{
	find_mappings(walk, task, sample->header.tgid);
	if (!begin_walk(walk, task)) {
		set_user_end(sample, END_OTHER_ABI);
		return false;
	}
	walk_frames(walk, task, user_words(sample), config.max_frames);
	if (!walk->mappings && walk->end != END_ROOT) {
		set_user_end(sample, END_NO_MAPPINGS);
		return false;
	}
	keep_walk(walk, sample);
	if (walk->mappings)
		walk_python(walk, task, sample);
	return true;
}

static __always_inline void walk_user(void *context, struct task_struct *task, struct sample *sample, u32 hook)
{
	u32 place = this_cpu_place(hook);
	struct walk *walk = config.unwind ? bpf_map_lookup_elem(&walks, &place) : 0;

	if (walk)
		walk->is_at_entry = hook == HOOK_ALLOCATION; /* uprobes, on functions */
	if (walk && walk_by_tables(walk, task, sample))
		return;
	walk_frame_pointers(context, sample);
	if (walk)
		sample->header.flags |= USER_FRAME_POINTERS;
}

#endif
