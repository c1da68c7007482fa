// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* The floor: the kernel's own walk of both stacks, and nothing done with it. */
#include "design.h"

SEC("perf_event")
int sample(struct bpf_perf_event_data *context)
{
	walk(context);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
