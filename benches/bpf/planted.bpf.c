// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* The floor with a slow-down planted in it, a second walk: a measurement that does not see it is worth nothing. */
#include "design.h"

SEC("perf_event")
int sample(struct bpf_perf_event_data *context)
{
	walk(context);
	walk(context);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
