/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The walker of unwind.h compiled for user space, over memory that somebody else reads: recorded or made-up stacks.
 * crates/replay/src/walker.rs has the other side of what is declared here.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;

#undef __always_inline /* glibc has one, too */
#define __always_inline inline __attribute__((always_inline))
#define barrier_var(variable) __asm__ volatile("" : "+r"(variable)) /* as libbpf's bpf_helpers.h has it */

struct frames;
#define bpf_loop(count, callback, context, flags) repeat(count, callback, context)
static void repeat(u32 count, long (*callback)(u32, struct frames *), struct frames *context);

#include "../abi.h"
#include "unwind.h"

/* Where the walker finds all that it does not compute itself. */
struct host {
	const u64 *const *segments;
	u64 segment_count;
	struct unwind_file *files;
	const struct unwind_rule *rules;
	u64 code_mask;
	void *memory; /* handed to read() */
	bool (*read)(void *memory, void *to, u32 bytes, u64 address);
};

struct host_frames {
	u32 count;
	u32 end;  /* enum user_end */
	u32 lack; /* enum user_end of the last step by frame pointers; 0: none */
	u32 reserved;
	u64 addresses[MAX_STACK_FRAMES + 1];
};

static __thread const struct host *host; /* of the walk under way */

static const u64 *unwind_segment(u32 reference)
{
	u32 index = reference >> UNWIND_SEGMENT_BITS;

	return index < host->segment_count ? host->segments[index] : 0;
}

static struct unwind_file *unwind_file(u32 index)
{
	return index < UNWIND_FILES ? &host->files[index] : 0;
}

static const struct unwind_rule *unwind_rule(u32 index)
{
	return index < UNWIND_RULES ? &host->rules[index] : 0;
}

static void want_table(struct unwind_file *file, u32 index)
{
	(void)index;
	file->wanted = true;
}

static bool read_stack(struct task_struct *task, void *to, u32 bytes, u64 address)
{
	(void)task;
	return host->read(host->memory, to, bytes, address);
}

static bool find_unpublished(struct walk *walk, struct task_struct *task, u64 address)
{
	(void)walk, (void)task, (void)address;
	return false;
}

static u64 without_signature(u64 address)
{
	return address & host->code_mask;
}

static void repeat(u32 count, long (*callback)(u32, struct frames *), struct frames *context)
{
	for (u32 index = 0; index < count && !callback(index, context);)
		index++;
}

/* Room for one walk at a time, and for the memos that outlive it. */
struct walk *stackhound_new_walk(void)
{
	return calloc(1, sizeof(struct walk));
}

void stackhound_free_walk(struct walk *walk)
{
	free(walk);
}

/* Walks from these registers, in DWARF's order. */
void stackhound_walk(const struct host *from, struct walk *walk, u32 mappings, u64 ip, const u64 *registers,
		     struct host_frames *frames)
{
	host = from;
	walk->mappings = mappings;
	walk->publication = publication_of(mappings);
	for (u32 i = 0; i < REGISTERS; i++)
		walk->registers[i] = registers[i];
	enter_interrupted(walk, ip);
	walk_frames(walk, 0, frames->addresses, MAX_STACK_FRAMES);
	frames->count = walk->frames;
	frames->end = walk->end;
	frames->lack = walk->lack;
}
