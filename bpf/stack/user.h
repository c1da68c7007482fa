/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The user part of a stack: by unwind tables, or by frame pointers where there can be none. */
#ifndef STACKHOUND_STACK_USER_H
#define STACKHOUND_STACK_USER_H

#include "../task.h"
#include "tables.h"
#include "unwind.h"
#include "registers.h"

/* One for each CPU; no per-CPU map takes values of this size. */
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

/* What the steps of a walk share; all that changes is in memory that the verifier does not follow. */
struct frames {
	struct walk *walk;
	u64 *words;
};

/*
 * Callers are looked up at one byte before the address they return to; what a signal interrupted is shown one too far,
 * so that this is right for it, too.
 */
static __always_inline void record_frame(const struct frames *frames, u32 index)
{
	struct walk *walk = frames->walk;

	frames->words[index % (MAX_STACK_FRAMES + 1)] = walk->ip + (index && !walk->is_call);
	walk->frames = index + 1;
}

static long walk_frame(u32 index, struct frames *frames)
{
	struct walk *walk = frames->walk;
	u64 address = walk->ip - walk->is_call;
	struct memo *memo = memo_of(walk, address);
	bool has_rule = look_up(walk, memo, address);

	if (!has_rule && index && walk->end == END_OUTSIDE_CODE) {
		if (walk->lack)
			walk->end = walk->lack; /* a try that failed */
		return 1;
	}
	record_frame(frames, index);
	return has_rule ? !step(walk, &memo->rule) : !step_without_rule(walk);
}

static __always_inline void walk_tables(struct walk *walk, struct sample *sample)
{
	struct frames frames = {.walk = walk, .words = user_words(sample)};

	walk->mapping_start = 0;
	walk->mapping_end = 0;
	walk->window_bytes = 0;
	walk->lack = 0;
	walk->end = END_TRUNCATED;
	walk->frames = 0;
	bpf_loop(config.max_frames, walk_frame, &frames, 0);
	if (walk->frames >= config.max_frames) {
		walk->end = END_TRUNCATED;
		sample->header.flags |= USER_TRUNCATED;
	}
	if (walk->lack)
		sample->header.flags |= USER_FRAME_POINTERS;
	sample->header.user_frames = walk->frames;
	set_user_end(sample, walk->end);
}

static __always_inline void walk_user(void *context, struct task_struct *task, struct sample *sample)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct walk *walk = config.unwind ? bpf_map_lookup_elem(&walks, &cpu) : 0;

	if (!walk) {
		walk_frame_pointers(context, sample);
		return;
	}
	walk->mappings = mappings_of(task, sample->header.tgid);
	walk->publication = publication_of(walk->mappings);
	if (walk->publication && begin_walk(walk, task)) {
		walk_tables(walk, sample);
		return;
	}
	walk_frame_pointers(context, sample);
	sample->header.flags |= USER_FRAME_POINTERS;
	set_user_end(sample, walk->mappings ? END_OTHER_ABI : END_NO_MAPPINGS);
}

#endif
