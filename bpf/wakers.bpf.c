// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Who wakes a thread, with the stack that does it. The waker is the current thread, or an interrupt of it. Only wakers of
 * threads whose absence is about to make a sample are looked at (bpf/offcpu.bpf.c); that sample then tells which record
 * is its waker's.
 */
#include "maps.h"
#include "departure.h"
#include "walk.h"
#include "emit.h"
#include <bpf/bpf_tracing.h>

/* Of a period: what waiting for a CPU may still add to an absence that is about to end. */
#define QUEUEING_SHARE 8

static __always_inline bool is_due(const struct presence *presence, struct task_struct *task, u64 now_ns)
{
	u64 period_ns = off_cpu_period();
	u64 likely_ns = time_away(presence, task, now_ns - scheduler_clock_offset_ns) + period_ns / QUEUEING_SHARE;

	return likely_ns >= period_ns || likely_ns >= presence->until_mark_ns;
}

/* Whether the absence that ends is about to make a sample. */
static __always_inline bool makes_sample(const struct presence *presence, struct task_struct *task, u64 now_ns)
{
	struct departure *departure;

	if (!config.off_cpu_at_departure)
		return is_due(presence, task, now_ns);
	departure = departure_of(task);
	return departure && departure->stack == STACK_TAKEN;
}

/* Not 0, and no other record's of this recording. */
static __always_inline u64 waking_id(const struct counters *counters)
{
	return (u64)(bpf_get_smp_processor_id() + 1) << WAKING_CPU_SHIFT | counters->wakings;
}

static __always_inline u64 record_waker(void *context, u64 now_ns, struct counters *counters)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct ring *ring = this_cpu_ring(HOOK_WAKING);
	struct sample *sample = ring ? next_sample(ring) : 0;
	u64 id = waking_id(counters);
	u32 words;

	if (!sample) {
		counters->lost_ring_full++;
		return 0;
	}
	describe(sample, waker, now_ns);
	sample->header.kind = RECORD_WAKING;
	sample->header.period = 0;
	sample->header.event = config.off_cpu_event;
	walk(context, waker, sample, HOOK_WAKING);
	words = stack_words(sample);
	sample->words[words % MAX_SAMPLE_WORDS] = id;
	commit(ring, words + 1);
	counters->wakings++;
	counters->arrival_samples++;
	count_time(now_ns, counters);
	return id;
}

static __always_inline void look_at_waking(void *context, struct task_struct *task, struct counters *counters)
{
	struct presence *presence = task->flags & PF_KTHREAD ? 0 : known_presence_of(task);
	u64 now_ns;

	if (!presence || !presence->arrived_ns) {
		counters->filtered++;
		return;
	}
	now_ns = bpf_ktime_get_boot_ns();
	if (makes_sample(presence, task, now_ns)) {
		presence->waking = record_waker(context, now_ns, counters);
	} else {
		presence->waking = 0;
		counters->saved++;
	}
}

/* With the woken thread's pi_lock held and interrupts off: nothing but an NMI comes between, which wakes nobody. */
SEC("tp_btf/sched_waking")
int BPF_PROG(note_waker, struct task_struct *task)
{
	struct counters *counters = this_cpu_counters(HOOK_WAKING);
	struct pass pass;

	if (!counters)
		return 0;
	pass = begin_pass(counters);
	look_at_waking(ctx, task, counters);
	end_pass(&pass, counters);
	return 0;
}
