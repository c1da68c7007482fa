/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * Records of allocations, with their stacks, and of what becomes of them. User space puts the two together
 * (crates/core/src/heap.rs).
 *
 * A thread in one of these programs may lose its CPU to another one, which may come here, too: who finds the ring in use
 * leaves it (`lost_nested`).
 */
#ifndef STACKHOUND_HEAP_H
#define STACKHOUND_HEAP_H

#include "filter.h"
#include "walk.h"
#include "emit.h"

/* As begin_pass, of a thread that may lose its CPU to another one here. */
static __always_inline struct pass begin_trap(struct counters *counters)
{
	struct pass pass = {.samples = counters->samples};

	__sync_fetch_and_add(&counters->entries, 1);
	__sync_fetch_and_add(&counters->traps, 1);
	if (__sync_fetch_and_add(&counters->arrivals, 1) % TIMED_PASSES_EVERY == 0)
		pass.since_ns = bpf_ktime_get_boot_ns();
	return pass;
}

/* Room for a record; before the program ends comes end_writing. NULL when there is none. */
static __always_inline struct sample *begin_allocation_record(struct ring *ring, struct counters *counters)
{
	struct sample *sample;

	if (!ring) {
		__sync_fetch_and_add(&counters->lost_ring_full, 1);
		return 0;
	}
	if (__sync_lock_test_and_set(&ring->busy, 1)) {
		__sync_fetch_and_add(&counters->lost_nested, 1);
		return 0;
	}
	sample = next_sample(ring);
	if (!sample) {
		__sync_fetch_and_add(&counters->lost_ring_full, 1);
		end_writing(ring);
	}
	return sample;
}

static __always_inline void write_heap_step(void *context, struct task_struct *task, const struct heap_step *step,
					    struct ring *ring, struct sample *sample, struct counters *counters)
{
	u64 now_ns = bpf_ktime_get_boot_ns();
	u32 words;

	describe(sample, task, now_ns);
	sample->header.kind = RECORD_HEAP;
	sample->header.period = step->size;
	sample->header.event = config.heap_event;
	if (!sample->header.tgid) {
		counters->lost_no_process++;
		return;
	}
	if (step->step == HEAP_ALLOCATED) {
		walk_program(context, task, sample, HOOK_ALLOCATION);
		count_walk(sample, counters);
		counters->emitted++;
	} else {
		counters->steps++;
	}
	words = stack_words(sample);
	*(struct heap_step *)&sample->words[words % MAX_SAMPLE_WORDS] = *step;
	commit(ring, words + sizeof(*step) / sizeof(u64));
	if (step->step == HEAP_ALLOCATED)
		count_time(now_ns, counters);
}

/* Of a thread that is wanted. False when it is lost. */
static __always_inline bool tell_heap_step(void *context, struct task_struct *task, const struct heap_step *step,
					   struct counters *counters)
{
	struct ring *ring = this_cpu_ring(HOOK_ALLOCATION);
	struct sample *sample = begin_allocation_record(ring, counters);

	if (!sample)
		return false;
	write_heap_step(context, task, step, ring, sample, counters);
	end_writing(ring);
	return true;
}

#endif
