// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* What tutorials teach: a record with room for two whole stacks, reserved in a small ring, the reader woken for each. */
#include "design.h"

#define RECORD_FRAMES 128

struct record {
	u64 boottime_ns;
	u32 pid;
	u32 cpu;
	char comm[16];
	int kernel_bytes;
	int user_bytes;
	u64 kernel[RECORD_FRAMES];
	u64 user[RECORD_FRAMES];
};

_Static_assert(sizeof(struct record) == 2088, "the size that the comparison is about");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} records SEC(".maps");

SEC("perf_event")
int sample(struct bpf_perf_event_data *context)
{
	struct record *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

	if (!record)
		return 1;
	record->boottime_ns = bpf_ktime_get_boot_ns();
	record->pid = bpf_get_current_pid_tgid() >> 32;
	record->cpu = bpf_get_smp_processor_id();
	if (bpf_get_current_comm(record->comm, sizeof(record->comm)))
		record->comm[0] = 0;
	record->kernel_bytes = bpf_get_stack(context, record->kernel, sizeof(record->kernel), 0);
	record->user_bytes = bpf_get_stack(context, record->user, sizeof(record->user), BPF_F_USER_STACK);
	bpf_ringbuf_submit(record, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
