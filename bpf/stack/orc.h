/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The walk of a kernel stack by the kernel's own tables (ORC, arch/x86/kernel/unwind_orc.c), which are read where they
 * lie. The kernel's own walk searches them for each frame anew; here the rule for an address is kept, and the same few
 * thousand come again and again.
 *
 * A walk that does not come to its end by rules alone is none: the kernel is asked then (kernel.h).
 */
#ifndef STACKHOUND_STACK_ORC_H
#define STACKHOUND_STACK_ORC_H

#include "../maps.h"
#include <bpf/bpf_core_read.h>
#include "unwind.h"

/* Where a walk begins. */
struct kernel_place {
	u64 ip; /* 0: it is not known */
	u64 sp;
	u64 bp;
	bool has_bp;
	bool is_call; /* ip is behind a call */
};

/* The rule for an address. */
#define ORC_MEMO_BITS 10
struct orc_memo {
	u64 address;
	s16 sp_offset;
	s16 bp_offset;
	u8 sp_register;
	u8 bp_register;
	u8 type;      /* enum orc_type */
	u8 is_signal; /* ip of the next frame is not behind a call */
};

/* A walk under way. */
struct kernel_walk {
	u64 ip;
	u64 sp;
	u64 bp;
	u32 frames;
	u8 is_call;  /* ip is behind a call */
	u8 is_whole; /* it has come to where the kernel was entered */
	u8 has_bp;   /* bp is known */
	u8 reserved;
	struct orc_memo memos[1 << ORC_MEMO_BITS];
};

/* One for each CPU and hook, as the memory to walk user stacks with. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct kernel_walk);
} kernel_walks SEC(".maps");

#if defined(__TARGET_ARCH_x86)

/* Where the tables lie, as user space has found out (crates/capture/src/orc.rs). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct orc_tables);
} orc_tables SEC(".maps");

/* Registers that a rule counts from: arch/x86/include/asm/orc_types.h */
enum {
	ORC_REG_UNDEFINED = 0,
	ORC_REG_PREV_SP = 1,
	ORC_REG_BP = 4,
	ORC_REG_SP = 5,
	ORC_REG_BP_INDIRECT = 8,
	ORC_REG_SP_INDIRECT = 9,
};

struct orc_entry {
	s16 sp_offset;
	s16 bp_offset;
	u32 sp_reg : 4;
	u32 bp_reg : 4;
	u32 type : 3;
	u32 signal : 1;
} __attribute__((packed, preserve_access_index));

/* Until Linux 6.3. */
struct orc_entry___with_end {
	u32 end : 1;
} __attribute__((packed, preserve_access_index));

/* The kernel's types since Linux 6.4, before which there was none for ORC_UNDEFINED, and a bit for ORC_END. */
enum orc_type {
	ORC_UNDEFINED = 0,
	ORC_END = 1,
	ORC_CALL = 2,
	ORC_REGS = 3,
	ORC_IRET = 4,
};

/* Where an interrupt has left its registers: words of struct pt_regs, and of its last part, which IRET takes. */
#define REGS_BP 4
#define REGS_IRET 16
#define IRET_IP 0
#define IRET_CS 1
#define IRET_SP 3

/* What the steps of a walk share; what changes is in memory that the verifier does not follow. */
struct kernel_frames {
	struct kernel_walk *walk;
	const struct orc_tables *tables;
	u64 *words;
};

static __always_inline bool read_kernel_word(u64 address, u64 *word)
{
	return !bpf_probe_read_kernel(word, sizeof(*word), (void *)address);
}

/* The last entry that is not above an address. Places are 32-bit distances from themselves. */
static __always_inline u32 find_orc_entry(const struct orc_tables *tables, u64 address)
{
	s64 key = address - tables->places;
	u32 count = tables->count;
	u32 found = 0;

	for (u32 step = 0; step < 24 && count > 1; step++) {
		u32 half = count / 2;
		u64 at = (u64)(found + half) * sizeof(s32);
		s32 distance = 0;

		bpf_probe_read_kernel(&distance, sizeof(distance), (void *)(tables->places + at));
		found += half & at_most(at + distance, key);
		count -= half;
	}
	return found;
}

static __always_inline bool has_end_bit(void)
{
	return bpf_core_field_exists(struct orc_entry___with_end, end);
}

static __always_inline u32 read_orc_type(struct orc_entry *entry)
{
	u32 type = BPF_CORE_READ_BITFIELD_PROBED(entry, type);

	if (!has_end_bit())
		return type;
	if (BPF_CORE_READ_BITFIELD_PROBED(entry, sp_reg) != ORC_REG_UNDEFINED)
		return type + ORC_CALL;
	return BPF_CORE_READ_BITFIELD_PROBED((struct orc_entry___with_end *)entry, end) ? ORC_END : ORC_UNDEFINED;
}

static __always_inline bool read_orc_signal(struct orc_entry *entry, u32 type)
{
	if (bpf_core_field_exists(entry->signal))
		return BPF_CORE_READ_BITFIELD_PROBED(entry, signal);
	return type != ORC_CALL;
}

static __always_inline void read_orc_rule(const struct orc_tables *tables, struct orc_memo *memo, u64 address)
{
	u64 distance = (u64)find_orc_entry(tables, address) * bpf_core_type_size(struct orc_entry);
	struct orc_entry *entry = (void *)(tables->entries + distance);

	memo->address = address;
	memo->sp_offset = BPF_CORE_READ(entry, sp_offset);
	memo->bp_offset = BPF_CORE_READ(entry, bp_offset);
	memo->sp_register = BPF_CORE_READ_BITFIELD_PROBED(entry, sp_reg);
	memo->bp_register = BPF_CORE_READ_BITFIELD_PROBED(entry, bp_reg);
	memo->type = read_orc_type(entry);
	memo->is_signal = read_orc_signal(entry, memo->type);
}

static __always_inline bool orc_cfa(const struct kernel_walk *walk, const struct orc_memo *rule, u64 *cfa)
{
	switch (rule->sp_register) {
	case ORC_REG_SP:
		*cfa = walk->sp + rule->sp_offset;
		return true;
	case ORC_REG_BP:
		*cfa = walk->bp + rule->sp_offset;
		return walk->has_bp;
	case ORC_REG_BP_INDIRECT:
		return walk->has_bp && read_kernel_word(walk->bp + rule->sp_offset, cfa);
	case ORC_REG_SP_INDIRECT:
		if (!read_kernel_word(walk->sp, cfa))
			return false;
		*cfa += rule->sp_offset;
		return true;
	}
	return false;
}

/* What an interrupt has left at an address: the walk goes on where it came, or ends where that was in a program. */
static __always_inline bool enter_interrupted_kernel(struct kernel_walk *walk, u64 address)
{
	u64 cs;

	if (!read_kernel_word(address + IRET_CS * sizeof(u64), &cs))
		return false;
	walk->is_whole = (cs & 3) != 0; /* privilege level */
	return !walk->is_whole && read_kernel_word(address + IRET_IP * sizeof(u64), &walk->ip) &&
	       read_kernel_word(address + IRET_SP * sizeof(u64), &walk->sp);
}

/* Where the caller's bp is stored; 0: it is the same. False when that is not known. */
static __always_inline bool find_stored_bp(const struct kernel_walk *walk, const struct orc_memo *rule, u64 cfa,
					   u64 *at)
{
	*at = 0;
	switch (rule->bp_register) {
	case ORC_REG_UNDEFINED:
		if (rule->type == ORC_REGS)
			*at = cfa + REGS_BP * sizeof(u64);
		return true;
	case ORC_REG_PREV_SP:
		*at = cfa + rule->bp_offset;
		return true;
	case ORC_REG_BP:
		*at = walk->bp + rule->bp_offset;
		return walk->has_bp;
	}
	return false;
}

static __always_inline bool find_caller_bp(struct kernel_walk *walk, const struct orc_memo *rule, u64 cfa)
{
	u64 at;

	if (!find_stored_bp(walk, rule, cfa, &at))
		return false;
	if (!at)
		return true;
	walk->has_bp = true;
	return read_kernel_word(at, &walk->bp);
}

/* False when the walk has ended. */
static __always_inline bool step_in_kernel(struct kernel_walk *walk, const struct orc_memo *rule)
{
	u64 cfa;

	if (rule->type == ORC_END)
		walk->is_whole = true;
	if (rule->type == ORC_END || rule->type == ORC_UNDEFINED || !orc_cfa(walk, rule, &cfa))
		return false;
	if (rule->type == ORC_CALL) {
		if (!read_kernel_word(cfa - sizeof(u64), &walk->ip))
			return false;
		walk->sp = cfa;
	} else if (!enter_interrupted_kernel(walk, rule->type == ORC_REGS ? cfa + REGS_IRET * sizeof(u64) : cfa)) {
		return false;
	}
	walk->is_call = !rule->is_signal;
	return find_caller_bp(walk, rule, cfa);
}

static long walk_kernel_frame(u32 index, struct kernel_frames *frames)
{
	struct kernel_walk *walk = frames->walk;
	const struct orc_tables *tables = frames->tables;
	u64 address = walk->ip - walk->is_call;
	struct orc_memo *memo = &walk->memos[address * 0x9e3779b97f4a7c15ULL >> (64 - ORC_MEMO_BITS)];

	if (address - tables->text_start >= tables->text_end - tables->text_start)
		return 1; /* a module's, a BPF program's, or nobody's */
	frames->words[index % (MAX_STACK_FRAMES + 1)] = walk->ip;
	walk->frames = index + 1;
	if (memo->address != address)
		read_orc_rule(tables, memo, address);
	return !step_in_kernel(walk, memo);
}

/* The number of frames that lead from these registers to where the kernel was entered; 0: by these rules none do. */
static __always_inline u32 walk_orc(struct kernel_walk *walk, const struct kernel_place *from, u64 *words)
{
	u32 zero = 0;
	struct kernel_frames frames = {.walk = walk, .words = words};

	frames.tables = bpf_map_lookup_elem(&orc_tables, &zero);
	if (!frames.tables)
		return 0;
	walk->ip = from->ip;
	walk->sp = from->sp;
	walk->bp = from->bp;
	walk->has_bp = from->has_bp;
	walk->frames = 0;
	walk->is_call = from->is_call;
	walk->is_whole = false;
	bpf_loop(config.max_frames, walk_kernel_frame, &frames, 0);
	return walk->is_whole ? walk->frames : 0;
}
#else
static __always_inline u32 walk_orc(struct kernel_walk *walk, const struct kernel_place *from, u64 *words)
{
	(void)walk, (void)from, (void)words;
	return 0;
}
#endif

#endif
