/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * A finished sample's way out: the ring of this CPU, in which it was written in place. No lock, no copy, no wake-up:
 * programs that share a ring never interrupt each other (bpf_prog_active), and user space comes on a timer.
 */
#ifndef STACKHOUND_EMIT_H
#define STACKHOUND_EMIT_H

#include "maps.h"

/* User space gives every CPU that comes online a map whose one value is the whole ring: its size is set at run time. */
struct ring_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ring);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1); /* as many as CPUs are possible */
	__type(key, u32);
	__array(values, struct ring_map);
} rings SEC(".maps");

static __always_inline struct ring *this_cpu_ring(void)
{
	u32 zero = 0;
	u32 cpu = bpf_get_smp_processor_id();
	void *map = bpf_map_lookup_elem(&rings, &cpu);

	return map ? bpf_map_lookup_elem(map, &zero) : 0;
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

#endif
