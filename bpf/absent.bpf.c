// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Threads that are still off the CPU at the end of a recording: an iterator, read once, when nothing tells of arrivals
 * any more. Without it a thread that slept all along would not be there at all.
 */
#include "maps.h"
#include "filter.h"
#include "presence.h"
#include "others.h"
#include "departure.h"

struct sample absent; /* one reader at a time */

static __always_inline bool is_recorded(struct task_struct *task)
{
	u32 tgid = collector_tgid(task);

	if (task->flags & PF_KTHREAD || (config.self_tgid && tgid == config.self_tgid))
		return false;
	if (config.filter_targets && !is_target(tgid))
		return false;
	return !config.filter_comm || comm_matches(task);
}

/* It has come back, or moved, since: it was away all the same. */
static __always_inline void lose_stack(struct sample *sample)
{
	forget_stack(sample);
	sample->header.flags = USER_UNREADABLE;
}

static __always_inline struct off_cpu absence_until_now(struct task_struct *task, const struct presence *presence,
							const struct departure *departure)
{
	u64 now_ns = presence_clock(bpf_get_current_task_btf());
	u64 duration_ns = time_away(presence, task, now_ns);

	if (departure)
		return describe_departure(departure, presence, task, duration_ns);
	return describe_absence(presence, task, duration_ns);
}

static __always_inline u64 weigh_last(struct presence *presence, struct departure *departure, u64 duration_ns)
{
	if (!is_asked_for(duration_ns))
		return 0;
	if (!departure)
		return weigh(presence, duration_ns);
	return duration_ns >= off_cpu_period() ? duration_ns + to_be_claimed(departure).ns : 0;
}

SEC("iter.s/task")
int look_at_absent(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct departure *departure = 0;
	struct presence *presence;
	struct off_cpu away;
	u64 bytes;

	if (!task || !is_recorded(task))
		return 0;
	presence = known_presence_of(task);
	if (!presence || !presence->arrived_ns)
		return 0;
	if (config.off_cpu_at_departure) {
		departure = departure_of(task);
		if (!departure)
			return 0;
	}
	away = absence_until_now(task, presence, departure);
	describe(&absent, task, bpf_ktime_get_boot_ns());
	absent.header.period = weigh_last(presence, departure, away.duration_ns);
	if (!absent.header.period || !absent.header.tgid)
		return 0;
	absent.header.kind = RECORD_OFF_CPU;
	absent.header.event = config.off_cpu_event;
	absent.header.cpu = task->thread_info.cpu;
	if (!walk_resting(task, &absent))
		lose_stack(&absent);
	bytes = sizeof(absent.header) + add_off_cpu(&absent, stack_words(&absent), &away) * sizeof(u64);
	barrier_var(bytes);
	if (bytes <= sizeof(absent))
		bpf_seq_write(context->meta->seq, &absent, bytes);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
