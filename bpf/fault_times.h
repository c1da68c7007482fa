/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * How long a page fault has taken, and of which page of which file it is. Noted where the kernel begins with it
 * (bpf/fault_times.bpf.c), read where it counts it, which is the last thing that it does.
 */
#ifndef STACKHOUND_FAULT_TIMES_H
#define STACKHOUND_FAULT_TIMES_H

#include "sample.h"

struct fault_time {
	u64 began_ns; /* 0: it has been told */
	u64 inode;
	u64 page;
	u32 device;
	u32 has_file;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct fault_time);
} fault_times SEC(".maps");

/* Behind the stack. Returns the words of the record. */
static __always_inline u32 add_fault(struct sample *sample, u32 words, u64 address)
{
	struct fault_time *time = bpf_task_storage_get(&fault_times, bpf_get_current_task_btf(), 0, 0);
	struct fault *fault = (struct fault *)&sample->words[words % MAX_SAMPLE_WORDS];

	sample->header.kind = RECORD_FAULT;
	*fault = (struct fault){.address = address};
	if (time && time->began_ns) {
		fault->ns = bpf_ktime_get_ns() - time->began_ns;
		fault->inode = time->inode;
		fault->page = time->page;
		fault->device = time->device;
		fault->has_file = time->has_file;
		time->began_ns = 0;
	}
	return words + sizeof(*fault) / sizeof(u64);
}

#endif
