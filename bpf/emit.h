/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * A finished sample's way out: the ring of this CPU and hook, in which it was written in place. No lock, no copy, no wake-up:
 * programs that share a ring never interrupt each other (bpf_prog_active), and user space comes on a timer.
 */
#ifndef STACKHOUND_EMIT_H
#define STACKHOUND_EMIT_H

#include "maps.h"
#include "sample.h"

#ifndef RING_BYTES
#define RING_BYTES 0
#endif

/* A ring for each CPU and hook; user space sets how many and how large, unless RING_BYTES does. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct ring) + RING_BYTES);
} rings SEC(".maps");

static __always_inline struct ring *this_cpu_ring(u32 hook)
{
	u32 place = this_cpu_place(hook);

	return bpf_map_lookup_elem(&rings, &place);
}

/* Room for a sample of any size; NULL when there may be less. */
static __always_inline struct sample *next_sample(struct ring *ring)
{
	u64 head = ring->head;
	u64 taken = *(volatile u64 *)&ring->tail;

	if (head - taken > config.ring_bytes - sizeof(struct sample))
		return 0;
	return (void *)(ring + 1) + (head & (config.ring_bytes - 1));
}

/*
 * Hands over what was written there. On x86 stores arrive in order; elsewhere user space asks for a barrier on every
 * CPU before it reads what the heads promise (crates/capture/src/drain.rs), which is cheaper than one here.
 */
static __always_inline void commit(struct ring *ring, u32 words)
{
	u64 head = ring->head;
	u64 bytes = sizeof(struct sample_header) + words * sizeof(u64);
	u64 end = (head & (config.ring_bytes - 1)) + bytes;

	barrier();
	*(volatile u64 *)&ring->head = end < config.ring_bytes ? head + bytes : (head | (config.ring_bytes - 1)) + 1;
}

/*
 * Around a record, where programs that share a ring may interrupt each other: false to one that has interrupted another.
 * What interrupts ends first, so that no instruction has to be atomic.
 */
static __always_inline bool begin_writing(struct ring *ring)
{
	volatile u64 *busy = &ring->busy;

	if (*busy)
		return false;
	*busy = 1;
	barrier();
	return true;
}

static __always_inline void end_writing(struct ring *ring)
{
	barrier();
	*(volatile u64 *)&ring->busy = 0;
}

#endif
