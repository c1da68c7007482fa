/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The Python part of a stack: the frames of CPython's interpreter in a thread, read where user space found out
 * that they are (crates/capture/src/python/). User space puts them between the native frames.
 */
#ifndef STACKHOUND_STACK_PYTHON_H
#define STACKHOUND_STACK_PYTHON_H

#include "../task.h"
#include "tables.h"
#include "unwind.h"

#define PYTHON_WORDS 256 /* of a sample, at most: two a frame */
#define TAG_FACTOR 0x9e3779b97f4a7c15ULL
#define YOUNG_NS 1000000000
#define MAX_TRUSTED_NS 100000000
#define STATE_BYTES 512 /* more than a PyThreadState of 3.10 or 3.11 has */
#define MAX_DISTANCE (~0ULL >> 2)
#define GENERATORS_OWN 1 /* FRAME_OWNED_BY_GENERATOR, as all coroutines' frames are */

/* PyDictObject.ma_keys, PyDictKeysObject, PyDictKeyEntry of 3.12 and 3.13 (Include/internal/pycore_dict.h) */
#define DICT_KEYS 32
struct dict_keys {
	u64 references;
	u8 size_log2;
	u8 index_bytes_log2; /* the index comes behind, then the entries */
	u8 kind;             /* 0: any keys */
	u8 reserved;
	u32 version;
	u64 usable;
	u64 count; /* of entries, those that were taken out included */
};
struct dict_entry {
	u64 hash;
	u64 key;
	u64 value;
};
#define MAX_EVENT_LOOPS 8 /* of a process, to be looked at: each has one task at most */

struct python_frames {
	struct walk *walk;
	struct task_struct *task;
	const struct python *python;
	u64 *words;
	u64 now_ns;
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

static __always_inline bool read_word(struct task_struct *task, u64 address, u64 *word)
{
	return read_stack(task, word, sizeof(*word), address);
}

/* The state of the thread; 0 when it runs no Python. */
static __always_inline u64 thread_state(const struct python *python, struct task_struct *task)
{
	u64 state = 0;

	if (!read_word(task, thread_pointer(task) + python->thread_state, &state))
		return 0;
	if (python->thread_state_indirect == PYTHON_STATE_IS_DIRECT || !state)
		return state;
	if (!read_word(task, state + python->thread_state_indirect, &state))
		return 0;
	return state;
}

static __always_inline bool first_frame(const struct python *python, struct task_struct *task, u64 state, u64 *frame)
{
	if (!read_word(task, state + python->current_frame, frame))
		return false;
	if (python->frame_in_cframe == PYTHON_NO_CFRAME || !*frame)
		return true;
	return read_word(task, *frame + python->frame_in_cframe, frame);
}

/*
 * Until 3.11 a thread that runs code of a subinterpreter has two states: its own, where it is looked for, and one of
 * that interpreter, which holds the lock. That is this thread's if its newest call of the evaluation loop is on this
 * very stack, below the newest of the own state; a state without calls has its mark in itself. Returns the one whose
 * frames come first. No branches: the verifier would follow each. What cannot be read is 0.
 */
static __always_inline u64 newest_state(struct walk *walk, struct task_struct *task, const struct python *python,
					u64 own)
{
	u64 *marks = walk->window; /* used for another purpose afterwards: own, running state's, that state */
	u64 is_inner;

	walk->python_outer = 0;
	if (!python->running_state)
		return own;
	marks[0] = marks[1] = marks[2] = 0;
	read_word(task, own + python->loop_mark, &marks[0]);
	read_word(task, python->gil + python->running_state, &marks[2]);
	read_word(task, marks[2] + python->loop_mark, &marks[1]);
	is_inner = at_most(walk->registers[SP_REGISTER], marks[1]) & at_most(marks[1] + 1, marks[0]) &
		   at_most(STATE_BYTES, (marks[0] - own) & MAX_DISTANCE);
	walk->python_outer = own & is_inner;
	return own ^ ((own ^ marks[2]) & is_inner);
}

struct gil {
	u64 holder; /* 0: nobody */
	s32 locked;
	s32 padding;
};

static __always_inline bool read_gil(const struct python *python, struct task_struct *task, u64 address,
				     struct gil *gil)
{
	if (python->gil_locked == python->gil_holder + sizeof(gil->holder)) { /* as in all versions so far: one read */
		if (!read_stack(task, gil, sizeof(*gil), address + python->gil_holder))
			return false;
	} else if (!read_stack(task, &gil->locked, sizeof(gil->locked), address + python->gil_locked) ||
		   !read_word(task, address + python->gil_holder, &gil->holder)) {
		return false;
	}
	if (gil->locked <= 0)
		gil->holder = 0;
	return true;
}

/*
 * Whether the thread, by one of these states, holds its interpreter's lock, as bits of the word before the frames. From
 * 3.12 on an interpreter may have a lock of its own: a thread that does not hold the main one's is asked for its
 * interpreter's.
 */
static __always_inline u64 gil_bits(const struct python *python, struct task_struct *task, u64 own, u64 newest)
{
	struct gil gil = {};
	u64 address;

	if (!python->gil || !read_gil(python, task, python->gil, &gil))
		return 0;
	if (gil.holder && (gil.holder == own || gil.holder == newest))
		return PYTHON_KNOWS_GIL | PYTHON_HOLDS_GIL;
	if (!python->interpreter)
		return PYTHON_KNOWS_GIL;
	if (!read_word(task, own + python->interpreter, &address) ||
	    !read_word(task, address + python->interpreter_gil, &address) || !address)
		return 0;
	if (address == python->gil)
		return PYTHON_KNOWS_GIL;
	if (!read_gil(python, task, address, &gil))
		return 0;
	return PYTHON_KNOWS_GIL | (gil.holder == own ? PYTHON_HOLDS_GIL : 0);
}

static __always_inline u64 frame_word(const struct walk *walk, u32 offset)
{
	return walk->window[(walk->python_at + offset) / sizeof(u64) % WINDOW_WORDS];
}

static __always_inline u8 frame_owner(const struct walk *walk, const struct python *python)
{
	return ((const u8 *)walk->window)[(walk->python_at + python->owner) % WINDOW_BYTES];
}

/*
 * Where to begin reading so that a frame is the last thing read. A caller's frame lies just below, unless it has memory
 * of its own; the read stays within the frame's page, because what is below that need not be there.
 */
static __always_inline u64 window_below(const struct walk *walk, u64 frame, u64 end)
{
	u64 page = frame & ~(u64)(USER_PAGE_BYTES - 1);

	if (walk->python_callee - frame >= WINDOW_BYTES)
		return frame;
	return end - WINDOW_BYTES > page ? end - WINDOW_BYTES : page;
}

/* Sees to it that the next frame is in the window. */
static __always_inline bool load_python_frame(struct walk *walk, struct task_struct *task, const struct python *python)
{
	u64 frame = walk->python_frame;
	u64 end = frame + (python->frame_bytes + 7) / 8 * 8;
	u64 start = walk->window_start;
	u64 bytes;

	if (frame % sizeof(u64))
		return false;
	if (frame < start || end > start + walk->window_bytes) {
		start = window_below(walk, frame, end);
		bytes = end - start;
		barrier_var(bytes);
		walk->window_bytes = 0;
		if (bytes > WINDOW_BYTES || !read_stack(task, walk->window, bytes, start))
			return false;
		walk->window_start = start;
		walk->window_bytes = bytes;
	}
	walk->python_at = frame - start;
	return true;
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

/* crates/core/src/python/code.rs has the same. 0: it cannot be told. */
static __always_inline u16 read_tag(const struct python_frames *frames, u64 code)
{
	const struct python *python = frames->python;
	u64 words[4] = {}, name_hash = 0;
	u64 hash = 0;

	if (!python->names_words || !read_stack(frames->task, words, sizeof(words), code + python->names))
		return 0;
	for (u32 i = 0; i < 4; i++)
		if (i < python->names_words)
			hash = (hash ^ words[i]) * TAG_FACTOR;
	read_word(frames->task, words[1] + python->object_bytes + sizeof(u64), &name_hash);
	return (hash ^ name_hash) * TAG_FACTOR >> PYTHON_TAG_SHIFT;
}

/*
 * For how long a tag is taken from memory: a look at a code object takes as long as several frames. One that has kept
 * its tag for a second is looked at again after a 64th of that age, a tenth of a second at most: for so long another
 * object that took its address may be shown as the old one. A younger one is looked at once a walk.
 */
static __always_inline u64 trusted_ns(u64 age_ns)
{
	if (age_ns < YOUNG_NS)
		return 0;
	return age_ns / 64 < MAX_TRUSTED_NS ? age_ns / 64 : MAX_TRUSTED_NS;
}

static __always_inline void renew(struct python_memo *memo, const struct python_frames *frames, u64 code)
{
	bool is_known = memo->code == code && memo->publication == frames->walk->publication;
	u16 tag = read_tag(frames, code);

	if (!is_known || tag != memo->tag)
		memo->since_ns = frames->now_ns;
	memo->code = code;
	memo->publication = frames->walk->publication;
	memo->tag = tag;
	memo->trusted_until_ns = frames->now_ns + trusted_ns(frames->now_ns - memo->since_ns);
}

static __always_inline u64 code_tag(const struct python_frames *frames, u64 code)
{
	struct walk *walk = frames->walk;
	struct python_memo *memo = &walk->python_memos[code * TAG_FACTOR >> (64 - PYTHON_MEMO_BITS)];

	if (memo->code != code || memo->publication != walk->publication || frames->now_ns > memo->trusted_until_ns)
		renew(memo, frames, code);
	return (u64)memo->tag << PYTHON_TAG_SHIFT;
}

static __always_inline void record_frame_read(const struct python_frames *frames)
{
	const struct python *python = frames->python;
	struct walk *walk = frames->walk;
	u8 owner = frame_owner(walk, python);
	bool is_entry = python->entry == ENTRY_EACH || (python->entry == ENTRY_FLAG && owner);
	u64 code = frame_word(walk, python->code) & ~(u64)python->code_tag;
	u64 instruction = frame_word(walk, python->instruction);

	if (python->entry == ENTRY_SHIM && owner == GENERATORS_OWN)
		walk->python_generator = walk->python_frame;
	if (python->instruction_bytes < sizeof(instruction))
		instruction = (u32)instruction;
	if (python->entry == ENTRY_SHIM && owner >= python->shim_owner)
		record_shim(frames);
	else
		record_python_frame(frames, code | code_tag(frames, code) | (is_entry ? PYTHON_ENTRY : 0), instruction);
}

/* crates/core/src/python/tasks.rs has the same. 0: it cannot be told. */
static __always_inline u64 asyncio_tag(const struct python_frames *frames, u64 asyncio_task)
{
	const struct python *python = frames->python;
	u64 parts[2]; /* coroutine, name */
	u64 name[2];
	u64 hash;

	if (!read_stack(frames->task, parts, sizeof(parts), asyncio_task + python->task_coroutine) ||
	    !read_stack(frames->task, name, sizeof(name), parts[1] + python->object_bytes))
		return 0;
	hash = parts[0] * TAG_FACTOR;
	hash = (hash ^ name[0]) * TAG_FACTOR;
	hash = (hash ^ name[1]) * TAG_FACTOR;
	return hash >> PYTHON_TAG_SHIFT << PYTHON_TAG_SHIFT;
}

static __always_inline void record_asyncio_task(const struct python_frames *frames, u64 state)
{
	const struct python *python = frames->python;
	u64 running;

	if (!config.asyncio)
		return;
	if (python->current_tasks)
		record_python_frame(frames, PYTHON_TASK, 0); /* it is known by the frames that follow */
	else if (python->running_task && read_word(frames->task, state + python->running_task, &running) && running)
		record_python_frame(frames, PYTHON_TASK, running | asyncio_tag(frames, running));
}

/* Whether the outermost of the coroutines that the thread runs is the task's. */
static __always_inline bool is_run_here(const struct python_frames *frames, u64 asyncio_task)
{
	const struct python *python = frames->python;
	u64 coroutine;

	return asyncio_task && read_word(frames->task, asyncio_task + python->task_coroutine, &coroutine) &&
	       coroutine + python->coroutine_frame == frames->walk->python_generator;
}

/* The entries of a dictionary that were made last, into the window: how many. Its keys are event loops, no strings. */
static __always_inline u32 read_current_tasks(const struct python_frames *frames)
{
	struct dict_keys keys = {};
	u64 address, count;

	if (!read_word(frames->task, frames->python->current_tasks + DICT_KEYS, &address) ||
	    !read_stack(frames->task, &keys, sizeof(keys), address) || keys.kind || keys.index_bytes_log2 > 16)
		return 0;
	count = keys.count < MAX_EVENT_LOOPS ? keys.count : MAX_EVENT_LOOPS;
	address += sizeof(keys) + (1 << keys.index_bytes_log2) + (keys.count - count) * sizeof(struct dict_entry);
	barrier_var(count);
	if (count > MAX_EVENT_LOOPS ||
	    !read_stack(frames->task, frames->walk->window, count * sizeof(struct dict_entry), address))
		return 0;
	return count;
}

/* Before 3.14, behind the walk. A thread's own event loop is not asked for: it is told by its task. */
static __always_inline void find_asyncio_task(const struct python_frames *frames)
{
	const struct dict_entry *entries = (const struct dict_entry *)frames->walk->window;
	u32 count;

	if (!config.asyncio || !frames->python->current_tasks || !frames->walk->python_generator)
		return;
	frames->walk->window_bytes = 0;
	count = read_current_tasks(frames);
	for (u32 i = 0; i < MAX_EVENT_LOOPS; i++)
		if (i < count && is_run_here(frames, entries[i].value))
			frames->words[1] = entries[i].value | asyncio_tag(frames, entries[i].value);
}

/* Behind the last frame of a subinterpreter come those of the state in which it was called. False: they cannot be read. */
static __always_inline bool enter_outer(const struct python_frames *frames)
{
	struct walk *walk = frames->walk;
	u64 outer = walk->python_outer;

	walk->python_outer = 0;
	return first_frame(frames->python, frames->task, outer, &walk->python_frame);
}

static long walk_python_frame(u32 index, struct python_frames *frames)
{
	struct walk *walk = frames->walk;

	if (!load_python_frame(walk, frames->task, frames->python)) {
		walk->python_end = PYTHON_UNREADABLE;
		return 1;
	}
	record_frame_read(frames);
	walk->python_callee = walk->python_frame;
	walk->python_frame = frame_word(walk, frames->python->previous);
	if (!walk->python_frame && walk->python_outer && !enter_outer(frames)) {
		walk->python_end = PYTHON_UNREADABLE;
		return 1;
	}
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
	u64 own = python ? thread_state(python, task) : 0;
	u64 state;
	u64 *words = python_words(sample);
	struct python_frames frames = {
		.walk = walk, .task = task, .python = python, .words = words + 1, .now_ns = sample->header.boottime_ns};

	if (!python || !own)
		return;
	walk->python_frames = 0;
	walk->python_is_open = false;
	walk->python_frame = 0;
	walk->python_callee = 0;
	walk->python_generator = 0;
	walk->window_bytes = 0; /* used for another purpose */
	walk->python_end = PYTHON_TRUNCATED;
	state = newest_state(walk, task, python, own);
	if (!first_frame(python, task, state, &walk->python_frame))
		walk->python_end = PYTHON_UNREADABLE;
	else if (!walk->python_frame)
		return; /* between two calls */
	else {
		record_asyncio_task(&frames, state);
		bpf_loop(MAX_PYTHON_FRAMES - walk->python_frames, walk_python_frame, &frames, 0);
		find_asyncio_task(&frames);
	}
	*words = gil_bits(python, task, own, state) | (u64)walk->python_end << PYTHON_END_SHIFT |
		 (walk->python_frames & PYTHON_FRAMES_MASK);
	sample->header.flags |= HAS_PYTHON;
}

#endif
