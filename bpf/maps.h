/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* The configuration and the maps that all programs share; user space makes them one across the object files. */
#ifndef STACKHOUND_MAPS_H
#define STACKHOUND_MAPS_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "abi.h"

const volatile struct config config;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* Processes to sample, by tgid. Looked up in samples; changed only from process context and from user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_TARGETS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u8);
} targets SEC(".maps");

static __always_inline struct counters *this_cpu_counters(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

#endif
