/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * What a program was called with, told when it begins: most programs have ended before user space could ask. What finds no
 * room is asked of /proc, if it is sampled.
 */
#ifndef STACKHOUND_COMMAND_LINE_H
#define STACKHOUND_COMMAND_LINE_H

#include "task.h"

/* For some 1,000 programs between two looks at it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 128 * 1024);
} new_programs SEC(".maps");

/* Too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct new_program);
} new_program_scratch SEC(".maps");

/* User space is woken for these. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct inode_key);
	__type(value, u8);
} urgent_programs SEC(".maps");

static __always_inline bool is_urgent(struct mm_struct *mm)
{
	struct file *file = READ(mm, exe_file);
	struct inode *inode = READ(file, f_inode);
	struct super_block *block = READ(inode, i_sb);
	struct inode_key key = {.inode = READ(inode, i_ino), .device = READ(block, s_dev)};

	return bpf_map_lookup_elem(&urgent_programs, &key);
}

static __always_inline void push_new_program(struct new_program *program, u32 command_line_bytes, u64 flags)
{
	u32 head = offsetof(struct new_program, command_line);
	struct counters *counters;

	if (!bpf_ringbuf_output(&new_programs, program, head + command_line_bytes, flags))
		return;
	counters = this_cpu_counters(HOOK_EVENT);
	if (counters)
		counters->untold_command_lines++;
}

static __always_inline void tell_command_line(struct task_struct *task, u32 tgid)
{
	struct mm_struct *mm = READ(task, mm);
	u64 start = READ(mm, arg_start);
	u64 bytes = READ(mm, arg_end) - start;
	struct new_program *program;
	u32 zero = 0;

	program = bpf_map_lookup_elem(&new_program_scratch, &zero);
	if (!program)
		return;
	if (bytes >= COMMAND_LINE_BYTES)
		bytes = COMMAND_LINE_BYTES - 1;
	bytes &= COMMAND_LINE_BYTES - 1; /* for the verifier */
	if (bpf_probe_read_user(program->command_line, bytes, (void *)start))
		return;
	program->boottime_ns = bpf_ktime_get_boot_ns();
	program->cgroup = bpf_get_current_cgroup_id();
	program->tgid = tgid;
	program->command_line_bytes = bytes;
	program->has_moved = 0;
	push_new_program(program, bytes, is_urgent(mm) ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
}

/* Its children begin where it is now. */
static __always_inline void tell_move(u32 tgid)
{
	u32 zero = 0;
	struct new_program *program = bpf_map_lookup_elem(&new_program_scratch, &zero);

	if (!program)
		return;
	program->boottime_ns = bpf_ktime_get_boot_ns();
	program->tgid = tgid;
	program->command_line_bytes = 0;
	program->has_moved = 1;
	push_new_program(program, 0, BPF_RB_NO_WAKEUP);
}

#endif
