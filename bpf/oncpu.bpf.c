// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* What runs on the CPU: perf events (timer, cycles, any counter) and tracepoints, a stack each. */
#include "maps.h"
#include "filter.h"
#include "walk.h"
#include "emit.h"
#include "combine.h"
#include "fault_times.h"

/* Where a sample waits to be combined: 4 KiB do not fit on the BPF stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sample);
} scratch SEC(".maps");

/* Hits of each tracepoint since its last sample. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_EVENTS);
	__type(key, u32);
	__type(value, u32);
} tracepoint_hits SEC(".maps");

/* What made a program run. */
struct hit {
	u64 period;
	u64 address; /* of the memory that was touched; 0: not told */
	u32 event;
	bool in_kernel;
	struct kernel_place place; /* if it was in the kernel */
};

static __always_inline u32 event_index(void *context)
{
	if (config.lone_event < MAX_EVENTS)
		return config.lone_event;
	return bpf_get_attach_cookie(context) & (MAX_EVENTS - 1);
}

static __always_inline bool has_wanted_part(u32 task_flags, bool in_kernel)
{
	if (config.user_only)
		return !(task_flags & PF_KTHREAD);
	return in_kernel || !config.kernel_only;
}

/* Combining compares it first; otherwise it is written where it will be read. */
static __always_inline struct sample *place_for_sample(struct ring *ring)
{
	u32 zero = 0;

	if (config.combine_slots)
		return bpf_map_lookup_elem(&scratch, &zero);
	return ring ? next_sample(ring) : 0;
}

/* Behind the stack. Returns the words of the record. */
static __always_inline u32 add_address(struct sample *sample, u64 address)
{
	u32 words = stack_words(sample);

	if (!address)
		return words;
	if (config.timed_faults && config.timed_faults & 1U << sample->header.event % MAX_EVENTS)
		return add_fault(sample, words, address);
	sample->header.kind = RECORD_ADDRESSED;
	sample->words[words % MAX_SAMPLE_WORDS] = address;
	return words + 1;
}

static __always_inline void hand_over(struct sample *sample, u64 address, struct ring *ring, struct counters *counters)
{
	if (config.combine_slots) {
		combine(sample, counters);
	} else if (ring) {
		commit(ring, add_address(sample, address));
		counters->emitted++;
	}
}

static __always_inline void take_sample(void *context, struct task_struct *task, const struct hit *hit,
					struct counters *counters)
{
	u64 now_ns = bpf_ktime_get_boot_ns();
	struct ring *ring = config.combine_slots ? 0 : this_cpu_ring(HOOK_EVENT);
	struct sample *sample = place_for_sample(ring);

	if (!sample) {
		counters->lost_ring_full++;
		return;
	}
	describe(sample, task, now_ns);
	sample->header.period = hit->period;
	sample->header.event = hit->event;
	if (!sample->header.tgid) {
		counters->lost_no_process++;
		return;
	}
	walk_from(context, &hit->place, task, sample, hit->in_kernel, HOOK_EVENT);
	count_walk(sample, counters);
	hand_over(sample, hit->address, ring, counters);
	count_time(now_ns, counters);
}

/* Enters, filters, samples; idle leaves first. */
static __always_inline void handle(void *context, const struct hit *hit, struct counters *counters)
{
	struct task_struct *task = current_task();

	if (!READ(task, pid)) {
		counters->idle++;
		return;
	}
	counters->event_entries[hit->event]++;
	if (!is_wanted(task) || !has_wanted_part(READ(task, flags), hit->in_kernel)) {
		counters->filtered++;
		return;
	}
	take_sample(context, task, hit, counters);
}

static __always_inline bool interrupted_kernel(const bpf_user_pt_regs_t *regs)
{
#if defined(__TARGET_ARCH_x86)
	return (regs->cs & 3) == 0; /* privilege level */
#else
	return (regs->pstate & 0xf) != 0; /* exception level and stack pointer; 0 is EL0t */
#endif
}

static __always_inline struct kernel_place interrupted_place(const bpf_user_pt_regs_t *regs)
{
	struct kernel_place place = {};

#if defined(__TARGET_ARCH_x86)
	place.ip = regs->ip;
	place.sp = regs->sp;
	place.bp = regs->bp;
	place.has_bp = true;
#else
	(void)regs; /* the kernel keeps frame pointers, and needs no tables */
#endif
	return place;
}

/* Of each event, on this CPU: what it had counted when the program last ran for it. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_EVENTS);
	__type(key, u32);
	__type(value, u64);
} last_counts SEC(".maps");

/*
 * What the event has counted since then. Of a software event in frequency mode `sample_period` does not tell: it is the
 * period until the next sample, not the one that has passed (kernel/events/core.c, perf_swevent_set_period).
 */
static __always_inline u64 count_since_last(struct bpf_perf_event_data *context, u32 event)
{
	struct bpf_perf_event_value value = {};
	u32 key = event; /* as in sample_tracepoint */
	u64 *last = bpf_map_lookup_elem(&last_counts, &key);
	u64 before;

	if (!last || bpf_perf_prog_read_value(context, &value, sizeof(value)))
		return context->sample_period;
	before = *last;
	*last = value.counter;
	return value.counter < before ? value.counter : value.counter - before; /* less: opened anew */
}

static __always_inline u64 passed_period(struct bpf_perf_event_data *context, u32 event)
{
	return config.own_counts & 1U << event ? count_since_last(context, event) : context->sample_period;
}

SEC("perf_event")
int sample_event(struct bpf_perf_event_data *context)
{
	u32 event = event_index(context);
	struct counters *counters = this_cpu_counters(HOOK_EVENT);
	struct hit hit = {
		.period = passed_period(context, event),
		.address = config.addressed & 1U << event ? context->addr : 0,
		.event = event,
		.in_kernel = interrupted_kernel(&context->regs),
		.place = interrupted_place(&context->regs),
	};

	if (!counters)
		return 0;
	counters->entries++;
	handle(context, &hit, counters);
	return 0;
}

SEC("tp")
int sample_tracepoint(void *context)
{
	u32 event = event_index(context);
	u32 key = event; /* its address escapes, and with it what the verifier knows of its bounds */
	struct counters *counters = this_cpu_counters(HOOK_EVENT);
	u32 *hits = bpf_map_lookup_elem(&tracepoint_hits, &key);
	struct hit hit = {.event = event, .in_kernel = true};

	if (!counters || !hits || ++*hits < config.tracepoint_periods[event])
		return 0;
	*hits = 0;
	counters->entries++;
	handle(context, &hit, counters);
	return 0;
}
