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
	__uint(max_entries, HOOKS);
	__type(key, u32);
	__type(value, struct counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct settings);
} settings SEC(".maps");

/* Processes to sample, by tgid. Looked up in samples; changed only from process context and from user space. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_TARGETS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, u8);
} targets SEC(".maps");

static __always_inline struct counters *this_cpu_counters(u32 hook)
{
	return bpf_map_lookup_elem(&counters, &hook);
}

/* Where in the maps that have a place for each CPU and hook this CPU's is; beyond their end when it has none. */
static __always_inline u32 this_cpu_place(u32 hook)
{
	u32 cpu = bpf_get_smp_processor_id();

	return cpu < config.cpus ? config.first_ring[hook] + cpu : ~0U;
}

#endif
