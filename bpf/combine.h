/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The combining cache: a direct-mapped table for each CPU. The same sample again is +1; a different one in its slot
 * sends the old count to the ring. No lock, no allocation, no sample counted twice or dropped unseen.
 *
 * User space puts an empty table in the place of the full one now and then, which waits until no program uses the old
 * one any more (the kernel synchronizes RCU on updates of maps in maps), and reads that at leisure.
 */
#ifndef STACKHOUND_COMBINE_H
#define STACKHOUND_COMBINE_H

#include "emit.h"

struct combining_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct combined);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct combining_table);
} combining SEC(".maps");

#define HEADER_WORDS (sizeof(struct sample_header) / sizeof(u64))
#define FIRST_KEY_WORD 2 /* after boottime_ns and period, which differ between samples of one stack */

/* Multiply and fold, as wyhash does with 128 bits: good enough to spread slots; equality is checked on the words. */
static __always_inline u64 hash_sample(const struct sample *sample, u32 words)
{
	const u64 *word = (const u64 *)sample;
	u64 hash = words;

	for (u32 i = FIRST_KEY_WORD; i < HEADER_WORDS + MAX_SAMPLE_FRAMES; i++) {
		if (i >= HEADER_WORDS + words)
			break;
		hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	return hash;
}

static __always_inline bool same_sample(const struct sample *left, const struct sample *right, u32 words)
{
	const u64 *a = (const u64 *)left;
	const u64 *b = (const u64 *)right;

	for (u32 i = FIRST_KEY_WORD; i < HEADER_WORDS + MAX_SAMPLE_FRAMES; i++) {
		if (i >= HEADER_WORDS + words)
			break;
		if (a[i] != b[i])
			return false;
	}
	return true;
}

static __always_inline void evict(struct combined *slot, struct counters *counters)
{
	struct sample *sample = &slot->sample;
	u32 words = sample->header.kernel_frames + sample->header.user_frames;

	if (words > MAX_SAMPLE_FRAMES)
		return;
	sample->header.kind = RECORD_COMBINED;
	sample->words[words] = slot->count;
	sample->words[words + 1] = slot->last_ns;
	if (!output(sample, words + 2))
		counters->lost_ring_combined += slot->count;
}

static __always_inline struct combined *find_slot(u64 hash)
{
	u32 zero = 0;
	u32 index = bpf_get_smp_processor_id() * config.combine_slots + (hash & (config.combine_slots - 1));
	void *table = bpf_map_lookup_elem(&combining, &zero);

	return table ? bpf_map_lookup_elem(table, &index) : 0;
}

/* A slot's sample keeps kind RECORD_SAMPLE until it leaves, so that it compares equal to the next one. */
static __always_inline void combine(struct sample *sample, struct counters *counters)
{
	u32 words = sample->header.kernel_frames + sample->header.user_frames;
	u64 hash = hash_sample(sample, words);
	struct combined *slot = find_slot(hash);

	if (!slot) {
		emit(sample, counters);
		return;
	}
	counters->combined++;
	if (slot->count && slot->hash == hash && same_sample(&slot->sample, sample, words)) {
		slot->count++;
		slot->last_ns = sample->header.boottime_ns;
		return;
	}
	if (slot->count)
		evict(slot, counters);
	slot->hash = hash;
	slot->count = 1;
	slot->last_ns = sample->header.boottime_ns;
	bpf_probe_read_kernel(&slot->sample, sizeof(sample->header) + (words & 0xff) * sizeof(u64), sample);
}

#endif
