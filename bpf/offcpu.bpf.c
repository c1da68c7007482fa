// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Time off the CPU. A thread that comes back to a CPU still has the stack with which it left, and then it is known how
 * long it was away: by the scheduler's own figures, without a look at the clock.
 *
 * An absence of at least settings.off_cpu_period_ns is a sample that stands for itself. Shorter ones add up to a clock of
 * the thread's; the one in which that reaches its next mark is a sample that stands for the time since the last mark.
 * Marks are a period apart on average, at random, so that no rhythm of the program's falls in with them. The samples of
 * a thread so stand for all of its time off the CPU, up to one mark.
 */
#include "maps.h"
#include "filter.h"
#include "presence.h"
#include "walk.h"
#include "emit.h"
#include <bpf/bpf_tracing.h>

#if defined(__TARGET_ARCH_x86)
/* struct inactive_task_frame of arch/x86/include/asm/switch_to.h: what __switch_to_asm() saves, in words. */
#define SAVED_BP 5
#define SAVED_RETURN 6
#define SAVED_WORDS 7

/*
 * __schedule() has a frame pointer on many kernels, and its frame the same size always: so far is it from the stack
 * pointer to the frame pointer, as most of the threads say that are away. A walk that begins wrong leads nowhere, and the
 * kernel is asked then.
 */
static volatile u64 schedule_frame_bytes;
static volatile u64 schedule_frame_votes;
#define MAX_SCHEDULE_FRAME_BYTES 1024

static __always_inline void learn_schedule_frame(struct task_struct *task)
{
	u64 saved = task->thread.sp;
	u64 bp, bytes;

	if (task->on_cpu || !(task->nvcsw + task->nivcsw) || !read_kernel_word(saved + SAVED_BP * sizeof(u64), &bp))
		return;
	bytes = bp - saved - SAVED_WORDS * sizeof(u64);
	if (bytes > MAX_SCHEDULE_FRAME_BYTES)
		return;
	if (!schedule_frame_votes)
		schedule_frame_bytes = bytes;
	schedule_frame_votes += bytes == schedule_frame_bytes ? 1 : -1; /* Boyer and Moore's majority */
}

/*
 * Where a thread left and came back: in __schedule(), whose frame begins where that of the call of __switch_to_asm() ended.
 * The word below is the address that its present call returns to, the one that led here.
 */
static __always_inline struct kernel_place arrival_place(struct task_struct *task)
{
	u64 saved = task->thread.sp;
	struct kernel_place place = {.sp = saved + SAVED_WORDS * sizeof(u64), .is_call = true};

	if (!read_kernel_word(saved + SAVED_RETURN * sizeof(u64), &place.ip))
		place.ip = 0;
	place.bp = place.sp + schedule_frame_bytes;
	place.has_bp = schedule_frame_votes;
	return place;
}
#else
static __always_inline void learn_schedule_frame(struct task_struct *task)
{
	(void)task;
}

static __always_inline struct kernel_place arrival_place(struct task_struct *task)
{
	struct kernel_place unknown = {};

	(void)task;
	return unknown;
}
#endif

static __always_inline void take_off_cpu_sample(void *context, struct task_struct *task, const struct off_cpu *away,
						u64 weight_ns, struct counters *counters)
{
	u64 now_ns = bpf_ktime_get_boot_ns();
	struct ring *ring = this_cpu_ring(HOOK_ARRIVAL);
	struct sample *sample = ring ? next_sample(ring) : 0;
	struct kernel_place place;

	scheduler_clock_offset_ns = now_ns - task->sched_info.last_arrival;
	if (!sample) {
		counters->lost_ring_full++;
		return;
	}
	describe(sample, task, now_ns);
	sample->header.kind = RECORD_OFF_CPU;
	sample->header.period = weight_ns;
	sample->header.event = config.off_cpu_event;
	if (!sample->header.tgid) {
		counters->lost_no_process++;
		return;
	}
	place = arrival_place(task);
	walk_from(context, &place, task, sample, true, HOOK_ARRIVAL);
	count_walk(sample, counters);
	commit(ring, add_off_cpu(sample, stack_words(sample), away));
	counters->emitted++;
	counters->arrival_samples++;
	count_time(now_ns, counters);
}

static __always_inline void handle_arrival(void *context, struct task_struct *task, struct presence *presence,
					   struct counters *counters)
{
	u64 now_ns = task->sched_info.last_arrival;
	u64 duration_ns = time_away(presence, task, now_ns);
	u64 weight_ns = is_asked_for(duration_ns) ? weigh(presence, duration_ns) : 0;
	struct off_cpu away;

	if (!weight_ns) {
		note_presence(presence, task, now_ns);
		if (is_asked_for(duration_ns))
			counters->saved++;
		else
			counters->filtered++;
		return;
	}
	away = describe_absence(presence, task, duration_ns);
	note_presence(presence, task, now_ns);
	take_off_cpu_sample(context, task, &away, weight_ns, counters);
}

/* It is not counted now; should it be later, then not from here on. */
static __always_inline void leave_out(struct task_struct *task)
{
	struct presence *presence;

	if (!config.filter_comm && !config.filter_cgroup)
		return;
	presence = known_presence_of(task);
	if (presence)
		presence->arrived_ns = 0;
}

static __always_inline void begin_presence_at(struct presence *presence, struct task_struct *task, u64 arrived_ns)
{
	set_next_mark(presence, off_cpu_period());
	note_presence(presence, task, arrived_ns);
}

static __always_inline void arrive_at_cpu(void *context, struct counters *counters)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct presence *presence = 0;

	if (!task->pid) {
		counters->idle++;
		return;
	}
	if (task->flags & PF_KTHREAD)
		;
	else if (is_wanted(task))
		presence = presence_of(task);
	else
		leave_out(task);
	if (presence && presence->arrived_ns) {
		handle_arrival(context, task, presence, counters);
		return;
	}
	if (presence)
		begin_presence_at(presence, task, task->sched_info.last_arrival);
	counters->filtered++;
}

/*
 * Behind the switch, with the run queue's lock given back: the earliest place where the arriving thread's memory can be
 * read.
 */
SEC("tp_btf/sched_exit_tp")
int BPF_PROG(arrive, bool is_switch)
{
	struct counters *counters = this_cpu_counters(HOOK_ARRIVAL);
	struct pass pass;

	if (!counters || !is_switch)
		return 0;
	pass = begin_pass(counters);
	arrive_at_cpu(ctx, counters);
	end_pass(&pass, counters);
	return 0;
}

/* A thread begins by waiting for a CPU. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(begin_presence, struct task_struct *task)
{
	struct presence *presence = task->flags & PF_KTHREAD ? 0 : presence_of(task);

	if (presence)
		begin_presence_at(presence, task, task->sched_info.last_queued);
	return 0;
}

/* The kernel forgets it: another one may have its place. */
SEC("tp_btf/sched_process_free")
int BPF_PROG(end_presence, struct task_struct *task)
{
	struct presence_place *place = place_of(task);

	if (place && place->owner == (u64)task)
		place->owner = 0;
	return 0;
}

/* Threads that are there already: as if they had arrived when the thread that reads this did. */
SEC("iter/task")
int begin_presences(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct presence *presence = task && !(task->flags & PF_KTHREAD) ? presence_of(task) : 0;
	u64 now_ns = bpf_get_current_task_btf()->sched_info.last_arrival;

	if (task)
		learn_schedule_frame(task);
	if (presence && !presence->arrived_ns)
		begin_presence_at(presence, task, now_ns);
	return 0;
}
