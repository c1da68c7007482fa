/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What the scheduler knew of a thread when it last came to a CPU: time off the CPU is counted from there. */
#ifndef STACKHOUND_PRESENCE_H
#define STACKHOUND_PRESENCE_H

#include "task.h"

struct presence {
	u64 arrived_ns; /* by presence_clock(); 0: it has not been seen. Seen at departures only: when it left */
	u64 executed_ns;
	u64 queued_ns;
	u64 preemptions;
	u64 until_mark_ns; /* of the thread's own clock */
	u64 marked_ns;     /* what the sample at that mark will stand for */
	u64 waking;        /* which record tells who woke it last; 0: none does */
};

/*
 * What the boot clock is ahead of the scheduler's, which tells when threads come and go, and which programs cannot read.
 * As the last arrival had it: right to a few microseconds.
 */
u64 scheduler_clock_offset_ns;

/* Of threads whose place another one has, and of all where threads are seen when they leave. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct presence);
} presences SEC(".maps");

#define PRESENCE_PLACES 32768 /* 2 MiB; as many as there are numbers of threads by default */

/* A cache line, found by the thread's number without a call: storage of threads takes 30 ns of each switch. */
struct presence_place {
	u64 owner; /* the task; 0: nobody */
	struct presence presence;
};

_Static_assert(sizeof(struct presence_place) == 64, "a cache line");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE); /* such an array begins with a page */
	__uint(max_entries, PRESENCE_PLACES);
	__type(key, u32);
	__type(value, struct presence_place);
} presence_places SEC(".maps");

static __always_inline struct presence_place *place_of(struct task_struct *task)
{
	u32 number = task->pid & (PRESENCE_PLACES - 1);

	return config.off_cpu_at_departure ? 0 : bpf_map_lookup_elem(&presence_places, &number);
}

static __always_inline bool take_place(struct presence_place *place, struct task_struct *task)
{
	if (place->owner || __sync_val_compare_and_swap(&place->owner, 0, (u64)task))
		return false;
	__builtin_memset(&place->presence, 0, sizeof(place->presence));
	return true;
}

/* NULL where it has none. */
static __always_inline struct presence *known_presence_of(struct task_struct *task)
{
	struct presence_place *place = place_of(task);

	if (place && place->owner == (u64)task)
		return &place->presence;
	return bpf_task_storage_get(&presences, task, 0, 0);
}

/* NULL for want of memory. */
static __always_inline struct presence *presence_of(struct task_struct *task)
{
	struct presence *presence = known_presence_of(task);
	struct presence_place *place;

	if (presence)
		return presence;
	place = place_of(task);
	if (place && take_place(place, task))
		return &place->presence;
	return bpf_task_storage_get(&presences, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline void note_presence(struct presence *presence, struct task_struct *task, u64 arrived_ns)
{
	presence->arrived_ns = arrived_ns;
	presence->executed_ns = task->se.sum_exec_runtime;
	presence->queued_ns = task->sched_info.run_delay;
	presence->preemptions = task->nivcsw;
	presence->waking = 0;
}

/* The time as a thread has it that has just arrived, or leaves: of the scheduler where that tells. */
static __always_inline u64 presence_clock(struct task_struct *task)
{
	return config.off_cpu_at_departure ? bpf_ktime_get_boot_ns() : task->sched_info.last_arrival;
}

static __always_inline u64 off_cpu_period(void)
{
	u32 zero = 0;
	struct settings *current_settings = bpf_map_lookup_elem(&settings, &zero);

	return current_settings ? current_settings->off_cpu_period_ns : 0;
}

/* Half a period to one and a half. */
static __always_inline void set_next_mark(struct presence *presence, u64 period_ns)
{
	u64 random = bpf_get_prandom_u32();

	presence->marked_ns = period_ns / 2 + (random * period_ns >> 32);
	presence->until_mark_ns = presence->marked_ns;
}

/* How long it was away until then, since it was last seen. The two clocks may differ by a little: never below 0. */
static __always_inline u64 time_away(const struct presence *presence, struct task_struct *task, u64 now_ns)
{
	u64 passed_ns = now_ns - presence->arrived_ns;
	u64 executed_ns = task->se.sum_exec_runtime - presence->executed_ns;

	return passed_ns > executed_ns && (s64)passed_ns > 0 ? passed_ns - executed_ns : 0;
}

/* How it was away so long. */
static __always_inline struct off_cpu describe_absence(const struct presence *presence, struct task_struct *task,
						       u64 duration_ns)
{
	struct off_cpu away = {.duration_ns = duration_ns};

	away.queued_ns = task->sched_info.run_delay - presence->queued_ns;
	if (away.queued_ns > duration_ns)
		away.queued_ns = duration_ns;
	if (task->nivcsw != presence->preemptions)
		away.flags = OFF_CPU_PREEMPTED;
	else
		away.waking = presence->waking;
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		away.flags |= OFF_CPU_DISK;
	return away;
}

static __always_inline bool is_asked_for(u64 duration_ns)
{
	return duration_ns >= config.off_cpu_min_ns && duration_ns <= config.off_cpu_max_ns;
}

/* More marks than two do not fit into an absence that is shorter than a period. */
#define MOST_MARKS 3

/* What a sample of this absence stands for; 0: it takes none. */
static __always_inline u64 weigh(struct presence *presence, u64 duration_ns)
{
	u64 period_ns = off_cpu_period();
	u64 weight_ns = 0;

	if (duration_ns >= period_ns)
		return duration_ns;
	for (u32 i = 0; i < MOST_MARKS && duration_ns >= presence->until_mark_ns; i++) {
		duration_ns -= presence->until_mark_ns;
		weight_ns += presence->marked_ns;
		set_next_mark(presence, period_ns);
	}
	presence->until_mark_ns -= duration_ns;
	return weight_ns;
}

/* Behind the stack. Returns the words of the record. */
static __always_inline u32 add_off_cpu(struct sample *sample, u32 words, const struct off_cpu *away)
{
	*(struct off_cpu *)&sample->words[words % MAX_SAMPLE_WORDS] = *away;
	return words + sizeof(*away) / sizeof(u64);
}

#endif
