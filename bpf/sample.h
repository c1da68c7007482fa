/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* A sample's beginning and its length. */
#ifndef STACKHOUND_SAMPLE_H
#define STACKHOUND_SAMPLE_H

#include "task.h"

/* Says whose sample it is; it has no stack yet. */
static __always_inline void describe(struct sample *sample, struct task_struct *task, u64 now_ns)
{
	struct task_struct *leader = READ(task, group_leader);
	struct pid *thread_pid = READ(task, thread_pid);
	struct pid *leader_pid = READ(leader, thread_pid);
	struct sample_header *header = &sample->header;

	header->boottime_ns = now_ns;
	header->start_boottime_ns = READ(leader, start_boottime);
	header->tgid = collector_id(leader_pid, READ(task, tgid));
	header->tid = collector_id(thread_pid, READ(task, pid));
	header->ns_tgid = own_id(leader_pid, READ(task, tgid));
	header->ns_tid = own_id(thread_pid, READ(task, pid));
	read_comm(header->comm, task);
	header->cpu = bpf_get_smp_processor_id();
	header->flags = 0;
	header->kind = RECORD_SAMPLE;
	header->kernel_frames = 0;
	header->user_frames = 0;
}

/* Behind its header. */
static __always_inline u32 stack_words(const struct sample *sample)
{
	u32 words = sample->header.kernel_frames + sample->header.user_frames;

	if (sample->header.flags & HAS_PYTHON)
		words += 1 + 2 * (sample->words[words % MAX_SAMPLE_WORDS] & PYTHON_FRAMES_MASK);
	return words;
}

#endif
