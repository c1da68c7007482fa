// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* The kernel half: who runs, each time a perf event fires. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "sample.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} samples SEC(".maps");

unsigned long long lost; /* samples that found no room */

SEC("perf_event")
int take_sample(void *context)
{
	struct sample *sample;

	if (!bpf_get_current_pid_tgid())
		return 0; /* idle */
	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (!sample) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	sample->boottime_ns = bpf_ktime_get_boot_ns();
	sample->pid = bpf_get_current_pid_tgid() >> 32;
	sample->cpu = bpf_get_smp_processor_id();
	bpf_get_current_comm(sample->comm, sizeof(sample->comm));
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP); /* the reader looks in on its own */
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
