/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The Python part of a stack: the frames of CPython's interpreter in the current thread, read where user space found out
 * that they are (crates/capture/src/python/). User space puts them between the native frames.
 */
#ifndef STACKHOUND_STACK_PYTHON_H
#define STACKHOUND_STACK_PYTHON_H

#include "../task.h"
#include "tables.h"
#include "unwind.h"

#define FRAME_BYTES 128
#define FRAME_WORDS (FRAME_BYTES / sizeof(u64))
#define PYTHON_WORDS 256 /* of a sample, at most: two a frame */

struct python_frames {
	struct walk *walk;
	const struct python *python;
	u64 *words;
};

/* What is known of the process's interpreter; NULL when it has none. Pieces of that memory begin at multiples of 64. */
static __always_inline const struct python *python_of(u32 mappings)
{
	const u64 *segment = unwind_segment(mappings);
	const struct unwind_mappings *header;
	u32 python;

	if (!segment)
		return 0;
	header = (const struct unwind_mappings *)&segment[mappings / 2 % SEGMENT_PAIRS & ~1];
	python = header->python;
	segment = python ? unwind_segment(python) : 0;
	return segment ? (const struct python *)&segment[python / 2 % SEGMENT_PAIRS & ~7] : 0;
}

static __always_inline u64 thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return READ(task, thread.fsbase);
#else
	return READ(task, thread.uw.tp_value);
#endif
}

static __always_inline bool read_word(u64 address, u64 *word)
{
	return !bpf_probe_read_user(word, sizeof(*word), (void *)address);
}

/* The state of the current thread; 0 when it runs no Python. */
static __always_inline u64 thread_state(const struct python *python, struct task_struct *task)
{
	u64 state = 0;

	if (!read_word(thread_pointer(task) + python->thread_state, &state))
		return 0;
	if (python->thread_state_indirect && state && !read_word(state + python->thread_state_indirect, &state))
		return 0;
	return state;
}

static __always_inline bool first_frame(const struct python *python, u64 state, u64 *frame)
{
	if (!read_word(state + python->current_frame, frame))
		return false;
	if (python->frame_in_cframe == PYTHON_NO_CFRAME || !*frame)
		return true;
	return read_word(*frame + python->frame_in_cframe, frame);
}

/* Whether the thread holds the interpreter's lock, as bits of the word before the frames. */
static __always_inline u64 gil_bits(const struct python *python, u64 state)
{
	u64 holder;
	s32 locked;

	if (!python->gil_holder || bpf_probe_read_user(&locked, sizeof(locked), (void *)python->gil_locked) ||
	    !read_word(python->gil_holder, &holder))
		return 0;
	return PYTHON_KNOWS_GIL | (locked > 0 && holder == state ? PYTHON_HOLDS_GIL : 0);
}

static __always_inline u64 frame_word(const struct walk *walk, u32 offset)
{
	return walk->window[offset / sizeof(u64) % FRAME_WORDS];
}

static __always_inline u8 frame_owner(const struct walk *walk, const struct python *python)
{
	return ((const u8 *)walk->window)[python->owner % FRAME_BYTES];
}

static __always_inline void record_python_frame(const struct python_frames *frames, u64 code, u64 instruction)
{
	struct walk *walk = frames->walk;
	u32 at = walk->python_frames * 2;

	frames->words[at % PYTHON_WORDS] = code;
	frames->words[(at + 1) % PYTHON_WORDS] = instruction;
	walk->python_frames++;
	walk->python_is_open = !(code & PYTHON_ENTRY);
}

/* The frame before it was the last one of a call of the evaluation loop, or that has none yet. */
static __always_inline void record_shim(const struct python_frames *frames)
{
	struct walk *walk = frames->walk;

	if (!walk->python_is_open) {
		record_python_frame(frames, PYTHON_ENTRY, 0);
		return;
	}
	frames->words[(walk->python_frames * 2 - 2) % PYTHON_WORDS] |= PYTHON_ENTRY;
	walk->python_is_open = false;
}

/* crates/core/src/python/code.rs has the same. */
static __always_inline u64 code_tag(const struct python *python, u64 code)
{
	u64 words[4] = {};
	u64 hash = 0;

	if (!python->names_words || bpf_probe_read_user(words, sizeof(words), (void *)(code + python->names)))
		return 0;
	for (u32 i = 0; i < 4; i++)
		if (i < python->names_words)
			hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
	return hash >> PYTHON_TAG_SHIFT << PYTHON_TAG_SHIFT;
}

static __always_inline void record_frame_read(const struct python_frames *frames)
{
	const struct python *python = frames->python;
	struct walk *walk = frames->walk;
	u8 owner = frame_owner(walk, python);
	bool is_entry = python->entry == ENTRY_EACH || (python->entry == ENTRY_FLAG && owner);
	u64 code = frame_word(walk, python->code) & python->code_mask;

	if (python->entry == ENTRY_SHIM && owner >= python->shim_owner)
		record_shim(frames);
	else
		record_python_frame(frames, code | code_tag(python, code) | (is_entry ? PYTHON_ENTRY : 0),
				    frame_word(walk, python->instruction) & python->instruction_mask);
}

static long walk_python_frame(u32 index, struct python_frames *frames)
{
	const struct python *python = frames->python;
	struct walk *walk = frames->walk;
	u32 bytes = python->frame_bytes;

	barrier_var(bytes);
	bytes &= FRAME_BYTES - 1;
	if (!read_stack(walk->window, bytes, walk->python_frame)) {
		walk->python_end = PYTHON_UNREADABLE;
		return 1;
	}
	record_frame_read(frames);
	walk->python_frame = frame_word(walk, python->previous);
	if (!walk->python_frame)
		walk->python_end = PYTHON_COMPLETE;
	return !walk->python_frame;
}

/* Behind the user frames, whose number the masks tell the verifier. */
static __always_inline u64 *python_words(struct sample *sample)
{
	u32 kernel = sample->header.kernel_frames;
	u32 user = sample->header.user_frames;

	barrier_var(kernel);
	barrier_var(user);
	return &sample->words[(kernel & MAX_STACK_FRAMES) + (user & MAX_STACK_FRAMES)];
}

static __always_inline void walk_python(struct walk *walk, struct task_struct *task, struct sample *sample)
{
	const struct python *python = python_of(walk->mappings);
	u64 state = python ? thread_state(python, task) : 0;
	u64 *words = python_words(sample);
	struct python_frames frames = {.walk = walk, .python = python, .words = words + 1};

	if (!python || !state)
		return;
	walk->python_frames = 0;
	walk->python_is_open = false;
	walk->python_frame = 0;
	walk->window_bytes = 0; /* used for another purpose */
	walk->python_end = PYTHON_TRUNCATED;
	if (!first_frame(python, state, &walk->python_frame))
		walk->python_end = PYTHON_UNREADABLE;
	else if (!walk->python_frame)
		return; /* between two calls */
	else
		bpf_loop(MAX_PYTHON_FRAMES, walk_python_frame, &frames, 0);
	*words = gil_bits(python, state) | (u64)walk->python_end << PYTHON_END_SHIFT |
		 (walk->python_frames & PYTHON_FRAMES_MASK);
	sample->header.flags |= HAS_PYTHON;
}

#endif
