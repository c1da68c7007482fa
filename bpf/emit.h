/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* A finished sample's way out: into the ring, or counted as lost by cause. */
#ifndef STACKHOUND_EMIT_H
#define STACKHOUND_EMIT_H

#include "maps.h"

/* User space sets the size, and drains it on a timer: no record wakes it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} samples SEC(".maps");

/* Copies the header and the first words into the ring. False when there was no room. */
static __always_inline bool output(struct sample *sample, u32 words)
{
	u64 bytes = sizeof(sample->header) + words * sizeof(u64);

	barrier_var(bytes); /* the bound must be seen on the very register that is the size */
	if (bytes > sizeof(*sample))
		return false;
	return bpf_ringbuf_output(&samples, sample, bytes, BPF_RB_NO_WAKEUP) == 0;
}

/*
 * In NMI and interrupts the ring's lock is only tried. A record takes 8 bytes of header and is rounded up to 8, so
 * when it would still have fitted, it was the lock.
 */
static __always_inline bool ring_has_room(u32 words)
{
	u64 record_bytes = 8 + sizeof(struct sample_header) + words * sizeof(u64);

	return bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA) + record_bytes < config.ring_bytes;
}

static __always_inline void emit(struct sample *sample, struct counters *counters)
{
	u32 words = sample->header.kernel_frames + sample->header.user_frames;

	if (output(sample, words))
		counters->emitted++;
	else if (ring_has_room(words))
		counters->lost_ring_busy++;
	else
		counters->lost_ring_full++;
}

#endif
