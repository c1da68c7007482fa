/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * From where a thread leaves the CPU, and how long it then is away: what tells, when it leaves, whether its stack will be
 * worth having when it is back. The time away itself is counted in full, whatever is sampled.
 */
#ifndef STACKHOUND_DEPARTURE_H
#define STACKHOUND_DEPARTURE_H

#include "presence.h"
#include "stack/registers.h"

#define SITES 8           /* of a thread; a power of two */
#define NO_SITE SITES     /* not one of them */
#define PREEMPTED_SITE 1U /* wherever that was */
#define LEARNED_SHARE 4   /* of what is usual, the last absence's part: a quarter */

/* Time away that no sample stands for yet. */
struct unclaimed {
	u64 ns;
	u64 absences;
};

/* A place in a thread's program: mostly the same call from the same depth. */
struct site {
	u32 key;      /* 0: none */
	u32 number;   /* of the last departure from there whose stack was taken; 0: none */
	u64 usual_ns; /* that it is away from there */
	u64 until_mark_ns;
	struct unclaimed unclaimed;
};

enum departure_stack {
	STACK_NOT_WANTED = 0,
	STACK_TAKEN = 1,
	STACK_NO_ROOM = 2,
	STACK_NO_PROCESS = 3, /* it is not in the collector's PID namespace */
};

struct departure {
	u32 number;    /* of departures whose stacks were taken; those of one thread are told apart by it */
	u32 site;      /* of the last departure */
	u32 flags;     /* enum off_cpu_flag */
	u32 next_site; /* the one that gives way */
	u32 stack;     /* enum departure_stack: of the last departure */
	u32 is_ending; /* its next departure is its last one, and is wanted */
	struct unclaimed unclaimed; /* at places that are not among the sites */
	struct site sites[SITES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct departure);
} last_departures SEC(".maps");

static __always_inline struct departure *departure_of(struct task_struct *task)
{
	return bpf_task_storage_get(&last_departures, task, 0, 0);
}

static __always_inline struct site *site_of(struct departure *departure)
{
	u32 site = departure->site;

	if (site >= SITES)
		return 0;
	barrier_var(site); /* or the compiler drops the remainder, whose bound the verifier of Linux 6.1 needs */
	return &departure->sites[site % SITES];
}

static __always_inline u32 find_site(const struct departure *departure, u32 key)
{
#pragma unroll
	for (u32 i = 0; i < SITES; i++)
		if (departure->sites[i].key == key)
			return i;
	return NO_SITE;
}

static __always_inline void add_site(struct departure *departure, u32 key)
{
	u32 place = departure->next_site++ % SITES;
	struct site *site = &departure->sites[place];

	departure->unclaimed.ns += site->unclaimed.ns;
	departure->unclaimed.absences += site->unclaimed.absences;
	departure->site = place;
	*site = (struct site){.key = key};
}

/* A site's key. Without tables the registers may not be there to be asked (before Linux 5.15): all sites are one. */
static __always_inline u32 site_key(struct task_struct *task, u32 flags)
{
	u64 place;

	if (flags & OFF_CPU_PREEMPTED || !config.unwind)
		return PREEMPTED_SITE;
	place = place_in_program(task);
	return place * 0x9e3779b97f4a7c15 >> 32 | 2;
}

/* How the thread is leaving. The kernel has counted it already. */
static __always_inline u32 departure_flags(const struct presence *presence, struct task_struct *task)
{
	u32 flags = task->nivcsw != presence->preemptions ? OFF_CPU_PREEMPTED : 0;

	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		flags |= OFF_CPU_DISK;
	return flags;
}

/* It has been away so long from its last site. */
static __always_inline void learn(struct departure *departure, u64 duration_ns)
{
	struct site *site = site_of(departure);

	if (!site)
		return;
	if (site->usual_ns)
		site->usual_ns -= site->usual_ns / LEARNED_SHARE;
	site->usual_ns += site->usual_ns ? duration_ns / LEARNED_SHARE : duration_ns;
}

/* For a sample yet to come. */
static __always_inline void add_unclaimed(struct departure *departure, u64 duration_ns)
{
	struct site *site = site_of(departure);
	struct unclaimed *unclaimed = site ? &site->unclaimed : &departure->unclaimed;

	unclaimed->ns += duration_ns;
	unclaimed->absences++;
}

/* Each absence is a sample, for itself. */
static __always_inline bool is_exact(u64 period_ns)
{
	return period_ns <= 1;
}

/* What a sample of the last absence stands for. */
static __always_inline struct unclaimed to_be_claimed(struct departure *departure)
{
	struct site *site = site_of(departure);
	struct unclaimed sum = departure->unclaimed;

	if (site) {
		sum.ns += site->unclaimed.ns;
		sum.absences += site->unclaimed.absences;
	}
	return sum;
}

static __always_inline void claim(struct departure *departure)
{
	struct site *site = site_of(departure);

	departure->unclaimed = (struct unclaimed){};
	if (site)
		site->unclaimed = (struct unclaimed){};
}

/* How it was away, from its last departure on. */
static __always_inline struct off_cpu describe_departure(const struct departure *departure,
							 const struct presence *presence, struct task_struct *task,
							 u64 duration_ns)
{
	struct off_cpu away = {.duration_ns = duration_ns, .flags = departure->flags};

	away.queued_ns = task->sched_info.run_delay - presence->queued_ns;
	if (away.queued_ns > duration_ns)
		away.queued_ns = duration_ns;
	if (!(away.flags & OFF_CPU_PREEMPTED))
		away.waking = presence->waking;
	away.since_ns = task->se.sum_exec_runtime - presence->executed_ns;
	away.departure = departure->stack == STACK_TAKEN ? departure->number : 0;
	away.site = departure->site;
	return away;
}

#endif
