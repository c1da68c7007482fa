// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Time off the CPU where nothing tells that a thread comes back (before Linux 6.15): seen from where it leaves, which is
 * where its stack can be taken, although nobody knows yet how long it will be away. So a stack is taken where as long an
 * absence as usual from there would make a sample (bpf/offcpu.bpf.c says when it does), and user space keeps it until
 * the thread leaves again: then it is known how long it was away, and the stack has become a sample that stands for all
 * of the thread's time away from that site since the last one. The samples of a thread so stand for its time off the
 * CPU as exactly as those that are taken when it comes back; what they know less well is which callers of one site it
 * was.
 *
 * Nothing is allocated here, since the run queue is locked: threads get their storage when they are made.
 */
#include "maps.h"
#include "filter.h"
#include "departure.h"
#include "walk.h"
#include "emit.h"
#include <bpf/bpf_tracing.h>

/* Stacks of new sites: so many nanoseconds apart on average, 5 ‰ of a CPU; so much may be made up for at once. */
#define NEW_SITE_INTERVAL_NS 1000000
#define NEW_SITES_BURST_NS 100000000

/* Until when the interval is used up, on this CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} new_sites SEC(".maps");

static __always_inline bool may_look_at_new_site(u64 now_ns)
{
	u32 zero = 0;
	u64 *used_until_ns = bpf_map_lookup_elem(&new_sites, &zero);
	u64 from_ns;

	if (!used_until_ns)
		return false;
	from_ns = *used_until_ns > now_ns ? *used_until_ns : now_ns;
	if (from_ns > now_ns + NEW_SITES_BURST_NS)
		return false;
	*used_until_ns = from_ns + NEW_SITE_INTERVAL_NS;
	return true;
}

/* Whether the absence that begins will be worth a sample, as far as can be told. */
static __always_inline bool wants_stack(struct departure *departure, u32 key, u64 now_ns)
{
	u64 period_ns = off_cpu_period();
	struct site *site;

	departure->site = find_site(departure, key);
	site = site_of(departure);
	if (!site) {
		if (!is_exact(period_ns) && !may_look_at_new_site(now_ns))
			return false;
		add_site(departure, key);
		return true;
	}
	if (site->usual_ns < period_ns && site->usual_ns < site->until_mark_ns) {
		site->until_mark_ns -= site->usual_ns;
		return false;
	}
	site->until_mark_ns = period_ns / 2 + ((u64)bpf_get_prandom_u32() * period_ns >> 32);
	return true;
}

/* The stack with which the thread leaves. */
static __always_inline u32 take_stack(void *context, struct task_struct *task, u64 number, u64 now_ns,
				      struct counters *counters)
{
	struct ring *ring = this_cpu_ring(HOOK_ARRIVAL);
	struct sample *sample = ring ? next_sample(ring) : 0;
	u32 words;

	if (!sample)
		return STACK_NO_ROOM;
	describe(sample, task, now_ns);
	sample->header.kind = RECORD_DEPARTURE;
	sample->header.period = 0;
	sample->header.event = config.off_cpu_event;
	if (!sample->header.tgid)
		return STACK_NO_PROCESS;
	walk(context, task, sample, HOOK_ARRIVAL);
	count_walk(sample, counters);
	words = stack_words(sample);
	sample->words[words % MAX_SAMPLE_WORDS] = number;
	commit(ring, words + 1);
	counters->arrival_samples++;
	count_time(now_ns, counters);
	return STACK_TAKEN;
}

static __always_inline void leave(void *context, struct task_struct *task, struct presence *presence,
				  struct departure *departure, u64 now_ns, struct counters *counters)
{
	struct site *site;
	u32 number;

	departure->flags = departure_flags(presence, task);
	departure->stack = STACK_NOT_WANTED;
	note_presence(presence, task, now_ns);
	if (task->exit_state)
		return; /* it will not be back */
	if (!wants_stack(departure, site_key(task, departure->flags), now_ns))
		return;
	number = ++departure->number;
	departure->stack = take_stack(context, task, number | (u64)departure->site << 32, now_ns, counters);
	site = site_of(departure);
	if (site && departure->stack == STACK_TAKEN)
		site->number = number;
}

/* The stack is there already: this is what makes it a sample. */
static __always_inline u32 tell_absence(struct task_struct *task, const struct off_cpu *away, u64 weight_ns, u64 now_ns)
{
	struct ring *ring = this_cpu_ring(HOOK_ARRIVAL);
	struct sample *sample = ring ? next_sample(ring) : 0;

	if (!sample)
		return STACK_NO_ROOM;
	describe(sample, task, now_ns);
	sample->header.kind = RECORD_OFF_CPU;
	sample->header.period = weight_ns;
	sample->header.event = config.off_cpu_event;
	if (!sample->header.tid)
		return STACK_NO_PROCESS; /* it has ended, and has no number any more */
	commit(ring, add_off_cpu(sample, 0, away));
	return STACK_TAKEN;
}

static __always_inline void count_without_stack(u32 stack, struct counters *counters)
{
	if (stack == STACK_NO_ROOM)
		counters->lost_ring_full++;
	else if (stack == STACK_NO_PROCESS)
		counters->lost_no_process++;
	else
		counters->saved++;
}

/* It was away longer than expected, so that its stack was not taken. */
static __always_inline void take_usual_stack(struct departure *departure, struct off_cpu *away)
{
	struct site *site = site_of(departure);

	if (away->departure || !site || !site->number)
		return;
	away->departure = site->number;
	away->flags |= OFF_CPU_AS_USUAL;
}

/* The absence before this time on the CPU. */
static __always_inline void settle(struct task_struct *task, const struct presence *presence,
				   struct departure *departure, u64 now_ns, struct counters *counters)
{
	u64 duration_ns = time_away(presence, task, now_ns);
	struct unclaimed weight = {.ns = duration_ns, .absences = 1};
	struct off_cpu away = describe_departure(departure, presence, task, duration_ns);
	u32 told;

	learn(departure, duration_ns);
	if (!is_asked_for(duration_ns)) {
		counters->filtered++;
		return;
	}
	add_unclaimed(departure, duration_ns);
	if (duration_ns >= off_cpu_period())
		take_usual_stack(departure, &away);
	if (!away.departure) {
		count_without_stack(departure->stack, counters);
		return;
	}
	if (!is_exact(off_cpu_period()))
		weight = to_be_claimed(departure);
	away.absences = weight.absences;
	told = tell_absence(task, &away, weight.ns, now_ns);
	if (told != STACK_TAKEN) {
		count_without_stack(told, counters);
		return;
	}
	claim(departure);
	counters->emitted++;
}

static __always_inline void leave_cpu(void *context, struct counters *counters)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct presence *presence;
	struct departure *departure;
	u64 now_ns;

	if (!task->pid) {
		counters->idle++;
		return;
	}
	presence = task->flags & PF_KTHREAD ? 0 : known_presence_of(task);
	departure = presence ? departure_of(task) : 0;
	if (!presence || !departure) {
		counters->filtered++;
		return;
	}
	if (!departure->is_ending && !is_wanted(task)) {
		presence->arrived_ns = 0; /* should it be later, then not from here on */
		counters->filtered++;
		return;
	}
	now_ns = bpf_ktime_get_boot_ns();
	if (presence->arrived_ns)
		settle(task, presence, departure, now_ns, counters);
	else
		counters->filtered++;
	leave(context, task, presence, departure, now_ns, counters);
}

/* With the run queue locked, so that no timer comes in between; the thread that leaves is the current one. */
SEC("tp_btf/sched_switch")
int BPF_PROG(depart, bool is_preemption)
{
	struct counters *counters = this_cpu_counters(HOOK_ARRIVAL);
	struct pass pass;

	if (!counters)
		return 0;
	pass = begin_pass(counters);
	leave_cpu(ctx, counters);
	end_pass(&pass, counters);
	return 0;
}

/*
 * Only when a thread leaves for the last time is it known how long it was away before; by then its process is no more in
 * the filter (bpf/lifecycle.bpf.c, which comes after this).
 */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(expect_last_departure, struct task_struct *task)
{
	struct departure *departure = departure_of(task);

	if (departure && is_wanted(task))
		departure->is_ending = 1;
	return 0;
}

/* NULL where it is not to be seen, or for want of memory. */
static __always_inline struct presence *make_room(struct task_struct *task)
{
	struct presence *presence = task->flags & PF_KTHREAD ? 0 : presence_of(task);

	if (presence && bpf_task_storage_get(&last_departures, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE))
		return presence;
	return 0;
}

/* It waits for its first CPU, which nobody's code does: it is seen from its first departure on. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(begin_departures, struct task_struct *parent, struct task_struct *child)
{
	make_room(child);
	return 0;
}

/* Threads that are there already. */
SEC("iter/task")
int begin_all_departures(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct presence *presence = task ? make_room(task) : 0;

	if (presence && !presence->arrived_ns)
		note_presence(presence, task, bpf_ktime_get_boot_ns());
	return 0;
}
