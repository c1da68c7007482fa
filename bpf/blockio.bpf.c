// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Requests to block devices: who submits them, with a stack, and how they go on. Each step is a record; user space puts
 * them together (crates/core/src/block_io.rs), also those of requests that are not wanted, so that it knows their ends.
 *
 * Requests are submitted, issued and merged by threads, whose tracepoints run with preemption off: these programs do not
 * interrupt each other, but for a driver that submits in an interrupt. They are taken back and completed anywhere.
 */
#include "maps.h"
#include "filter.h"
#include "walk.h"
#include "emit.h"
#include "request.h"
#include <bpf/bpf_tracing.h>

/* Requests that were submitted on a CPU since the last sample. */
struct submissions {
	u64 passed;
	u64 wanted; /* so many, and the last is the next sample */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct submissions);
} submissions SEC(".maps");

/* How many requests a sample of this one stands for; 0: it takes none. At random, so that no rhythm falls in with it. */
static __always_inline u64 weigh_request(void)
{
	u32 zero = 0;
	struct submissions *since_last = bpf_map_lookup_elem(&submissions, &zero);
	struct settings *current_settings = bpf_map_lookup_elem(&settings, &zero);
	u32 period = current_settings ? current_settings->block_io_period : 1;
	u64 weight;

	if (!since_last || ++since_last->passed < since_last->wanted)
		return 0;
	weight = since_last->passed;
	since_last->passed = 0;
	since_last->wanted = period > 1 ? 1 + bpf_get_prandom_u32() % (2 * period - 1) : 1;
	return weight;
}

static __always_inline void begin_step(struct sample *sample)
{
	__builtin_memset(&sample->header, 0, sizeof(sample->header));
	sample->header.boottime_ns = bpf_ktime_get_boot_ns();
	sample->header.cpu = bpf_get_smp_processor_id();
	sample->header.kind = RECORD_BLOCK_IO;
	sample->header.event = config.block_io_event;
}

/* Room for a record, begun; before the program ends comes end_writing. NULL when there is none. */
static __always_inline struct sample *begin_record(struct ring *ring, struct counters *counters)
{
	struct sample *sample;

	__sync_fetch_and_add(&counters->entries, 1);
	if (!ring) {
		counters->lost_ring_full++;
		return 0;
	}
	if (!begin_writing(ring)) {
		__sync_fetch_and_add(&counters->lost_nested, 1);
		return 0;
	}
	sample = next_sample(ring);
	if (!sample) {
		counters->lost_ring_full++;
		end_writing(ring);
		return 0;
	}
	begin_step(sample);
	return sample;
}

static __always_inline void commit_step(struct ring *ring, struct sample *sample, const struct block_step *step)
{
	u32 words = stack_words(sample);

	*(struct block_step *)&sample->words[words % MAX_SAMPLE_WORDS] = *step;
	commit(ring, words + sizeof(*step) / sizeof(u64));
}

/* Of a run that took no sample: one in so many tells how long it takes. */
static __always_inline void count_step(u64 since_ns, struct counters *counters)
{
	if (++counters->arrivals % TIMED_PASSES_EVERY)
		return;
	counters->timed_passes++;
	counters->timed_passes_ns += bpf_ktime_get_boot_ns() - since_ns;
}

static __always_inline void tell_step(const struct block_step *step, u32 hook)
{
	struct counters *counters = this_cpu_counters(hook);
	struct ring *ring = this_cpu_ring(hook);
	struct sample *sample = counters ? begin_record(ring, counters) : 0;
	u64 since_ns;

	if (!sample)
		return;
	since_ns = sample->header.boottime_ns;
	commit_step(ring, sample, step);
	counters->steps++;
	count_step(since_ns, counters);
	end_writing(ring);
}

/* Writes down who submits it, and from where. */
static __always_inline void sample_submitter(void *context, struct task_struct *task, struct sample *sample, u64 weight,
					     struct block_step *step, struct counters *counters)
{
	u64 now_ns = sample->header.boottime_ns;

	describe(sample, task, now_ns);
	sample->header.kind = RECORD_BLOCK_IO;
	sample->header.period = weight;
	if (!sample->header.tgid) {
		counters->lost_no_process++;
		step->traits |= BLOCK_UNWANTED;
		return;
	}
	walk(context, task, sample, HOOK_SUBMISSION);
	count_walk(sample, counters);
	step->traits |= BLOCK_SAMPLED;
	sample->header.boottime_ns = bpf_ktime_get_boot_ns(); /* it goes on from here: the walk is no time of its own */
	counters->emitted++;
	count_time(now_ns, counters);
}

static __always_inline bool is_submitter_wanted(struct task_struct *task)
{
	if (config.user_only && READ(task, flags) & PF_KTHREAD)
		return false;
	return is_wanted(task);
}

static __always_inline void submit(void *context, struct request *request, u8 step_kind)
{
	struct task_struct *task = current_task();
	struct counters *counters = this_cpu_counters(HOOK_SUBMISSION);
	struct ring *ring = this_cpu_ring(HOOK_SUBMISSION);
	struct sample *sample = counters ? begin_record(ring, counters) : 0;
	struct block_step step;
	u64 since_ns, weight = 0;

	if (!sample)
		return;
	since_ns = sample->header.boottime_ns;
	step = describe_step(request, step_kind);
	step.traits = BLOCK_FIRST;
	step.cgroup = charged_cgroup(request);
	if (!is_submitter_wanted(task)) {
		step.traits |= BLOCK_UNWANTED;
		counters->filtered++;
	} else {
		weight = weigh_request();
		if (weight)
			sample_submitter(context, task, sample, weight, &step, counters);
		else
			counters->saved++;
	}
	commit_step(ring, sample, &step);
	if (!weight)
		count_step(since_ns, counters);
	end_writing(ring);
}

/* Since Linux 6.5: where the thread that asks for it has made it. */
SEC("tp_btf/block_io_start")
int submit_request(u64 *context)
{
	submit(context, request_of(context), BLOCK_SUBMIT);
	return 0;
}

/* Before that its beginning is when a scheduler gets it; or the device, where there is none. */
SEC("tp_btf/block_rq_insert")
int insert_request(u64 *context)
{
	struct request *request = request_of(context);

	if (!is_flush_of_others(request))
		submit(context, request, BLOCK_SUBMIT);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int issue_request(u64 *context)
{
	struct request *request = request_of(context);
	struct block_step step;

	if (is_flush_of_others(request))
		return 0;
	if (!config.tells_submission && !request->q->elevator) {
		submit(context, request, BLOCK_ISSUE);
		return 0;
	}
	step = describe_step(request, BLOCK_ISSUE);
	tell_step(&step, HOOK_SUBMISSION);
	return 0;
}

SEC("tp_btf/block_rq_merge")
int merge_request(u64 *context)
{
	struct block_step step = describe_step(request_of(context), BLOCK_MERGE);

	tell_step(&step, HOOK_SUBMISSION);
	return 0;
}

SEC("tp_btf/block_rq_requeue")
int requeue_request(u64 *context)
{
	struct request *request = request_of(context);
	struct block_step step;

	if (is_flush_of_others(request))
		return 0;
	step = describe_step(request, BLOCK_REQUEUE);
	tell_step(&step, HOOK_COMPLETION);
	return 0;
}

/* Where the end is told, only what is special about the way to it. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(complete_request, struct request *request, int error, unsigned int bytes)
{
	struct block_step step;
	bool is_whole;

	if (is_flush_of_others(request))
		return 0;
	is_whole = bytes >= request->__data_len;
	if (config.tells_end && is_accounted(request) && is_whole && !error)
		return 0;
	step = describe_step(request, BLOCK_COMPLETE);
	if (error)
		step.traits |= BLOCK_FAILED;
	if (is_whole && !is_in_flush(request) && !(config.tells_end && is_accounted(request)))
		step.traits |= BLOCK_LAST;
	step.bytes = bytes;
	tell_step(&step, HOOK_COMPLETION);
	return 0;
}

/* Since Linux 6.5: as the kernel's own counts have it. */
SEC("tp_btf/block_io_done")
int BPF_PROG(end_request, struct request *request)
{
	struct block_step step;

	if (is_in_flush(request) || !is_accounted(request))
		return 0;
	step = describe_step(request, BLOCK_END);
	tell_step(&step, HOOK_COMPLETION);
	return 0;
}
