// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* Nothing: what the kernel takes to run any program, and what a statistic of one reads at least. */
#include "design.h"

SEC("perf_event")
int sample(void *context)
{
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
