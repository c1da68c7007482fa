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

/* Of a size, not of a type: until Linux 6.2 a table that says it has no timer in it is unlike one that says nothing. */
struct combining_table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct combined));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct combining_table);
} combining SEC(".maps");

#define HEADER_WORDS (sizeof(struct sample_header) / sizeof(u64))
#define FIRST_KEY_WORD 2 /* after boottime_ns and period, which differ between samples of one stack */

/* Of a sample that waits: behind all that a stack may have, how many words it has. */
#define COUNT_WORD (MAX_SAMPLE_WORDS - 1)

/*
 * Read anew each time: a number that the verifier does not know leaves nothing to tell the ways out of a loop apart,
 * so that it looks at what follows the loop once, not once for each length.
 */
static __always_inline u32 key_words(const struct sample *sample)
{
	return HEADER_WORDS + *(const volatile u64 *)&sample->words[COUNT_WORD];
}

/* Multiply and fold, as wyhash does with 128 bits: good enough to spread slots; equality is checked on the words. */
static __always_inline u64 hash_sample(const struct sample *sample)
{
	const u64 *word = (const u64 *)sample;
	u64 hash = 0;

	for (u32 i = FIRST_KEY_WORD; i < HEADER_WORDS + MAX_STACK_WORDS && i < key_words(sample); i++) {
		hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 32;
	}
	return hash;
}

static __always_inline bool same_sample(const struct sample *left, const struct sample *right)
{
	const u64 *a = (const u64 *)left;
	const u64 *b = (const u64 *)right;
	u64 differences = 0;

	for (u32 i = FIRST_KEY_WORD; i < HEADER_WORDS + MAX_STACK_WORDS && i < key_words(right); i++)
		differences |= a[i] ^ b[i];
	return !differences;
}

static __always_inline void copy_sample(struct sample *to, const struct sample *from, u32 words)
{
	bpf_probe_read_kernel(to, sizeof(from->header) + words % MAX_SAMPLE_WORDS * sizeof(u64), from);
}

static __always_inline void evict(struct combined *slot, struct counters *counters)
{
	u32 words = stack_words(&slot->sample);
	struct ring *ring = this_cpu_ring(HOOK_EVENT);
	struct sample *place = ring ? next_sample(ring) : 0;

	if (!place || words > MAX_STACK_WORDS) {
		counters->lost_ring_combined += slot->count;
		return;
	}
	copy_sample(place, &slot->sample, words);
	place->header.kind = RECORD_COMBINED;
	place->words[words] = slot->count;
	place->words[words + 1] = slot->last_ns;
	commit(ring, words + 2);
}

static __always_inline struct combined *find_slot(u64 hash)
{
	u32 zero = 0;
	u32 index = bpf_get_smp_processor_id() * config.combine_slots + (hash & (config.combine_slots - 1));
	void *table = bpf_map_lookup_elem(&combining, &zero);

	return table ? bpf_map_lookup_elem(table, &index) : 0;
}

static __always_inline void combine(struct sample *sample, struct counters *counters)
{
	u32 words = stack_words(sample);
	struct combined *slot;
	u64 hash;

	sample->words[COUNT_WORD] = words;
	hash = hash_sample(sample);
	slot = find_slot(hash);
	if (!slot) { /* a CPU beyond those that were possible: cannot be */
		counters->lost_ring_full++;
		return;
	}
	counters->combined++;
	if (slot->count && slot->hash == hash && same_sample(&slot->sample, sample)) {
		slot->count++;
		slot->sample.header.period += sample->header.period;
		slot->last_ns = sample->header.boottime_ns;
		return;
	}
	if (slot->count)
		evict(slot, counters);
	slot->hash = hash;
	slot->count = 1;
	slot->last_ns = sample->header.boottime_ns;
	copy_sample(&slot->sample, sample, words);
}

#endif
