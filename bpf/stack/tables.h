/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* Where the walker finds the unwind tables in the kernel: maps that user space fills (crates/capture/src/unwind/). */
#ifndef STACKHOUND_STACK_TABLES_H
#define STACKHOUND_STACK_TABLES_H

#include "processes.h"
#include "unwind.h"

struct unwind_segment {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, SEGMENT_WORDS * sizeof(u32));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, UNWIND_SEGMENTS);
	__type(key, u32);
	__array(values, struct unwind_segment);
} unwind_segments SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_RULES);
	__type(key, u32);
	__type(value, struct unwind_rule);
} unwind_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_FILES);
	__type(key, u32);
	__type(value, struct unwind_file);
} unwind_files SEC(".maps");

/* Files whose tables were missed for the first time: wakes user space. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} unwind_wanted SEC(".maps");

static __always_inline const u64 *unwind_segment(u32 reference)
{
	u32 index = reference >> UNWIND_SEGMENT_BITS;
	u32 zero = 0;
	void *segment = bpf_map_lookup_elem(&unwind_segments, &index);

	return segment ? bpf_map_lookup_elem(segment, &zero) : 0;
}

static __always_inline struct unwind_file *unwind_file(u32 index)
{
	return bpf_map_lookup_elem(&unwind_files, &index);
}

static __always_inline const struct unwind_rule *unwind_rule(u32 index)
{
	return bpf_map_lookup_elem(&unwind_rules, &index);
}

static __always_inline void want_table(struct unwind_file *file, u32 index)
{
	if (file->wanted)
		return;
	file->wanted = true;
	bpf_ringbuf_output(&unwind_wanted, &index, sizeof(index), BPF_RB_FORCE_WAKEUP);
}

/* A program that runs within the thread takes what is there; one that looks at others has a way of its own. */
#ifndef LOOKS_AT_OTHERS
static __always_inline bool read_stack(struct task_struct *task, void *to, u32 bytes, u64 address)
{
	return !bpf_probe_read_user(to, bytes, (void *)address);
}
#endif

static __always_inline u64 without_signature(u64 address)
{
	return address & config.code_mask;
}

#endif
