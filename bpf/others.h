/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The stack of a thread that is not the current one, for iterators: they run in the reader, and no thread is stopped. A
 * stack counts only when its thread has stood still.
 */
#ifndef STACKHOUND_OTHERS_H
#define STACKHOUND_OTHERS_H

#define LOOKS_AT_OTHERS
#include "sample.h"
#include "stack/user.h"

#define EBUSY 16

/* One reader at a time. What is in memory and not on the stack the verifier does not follow: it has a third of the work. */
bool is_disturbed; /* somebody changed the mappings meanwhile */
u64 readable_end;  /* of the mapping that was found; 0: what is in it may never come */

/* 1 where two numbers below 2^63 are equal, else 0. A branch for each read of memory would be the verifier's work. */
static __always_inline u64 is_equal(u64 left, u64 right)
{
	u64 difference = (left ^ right) - 1;

	barrier_var(difference);
	return difference >> 63;
}

/* File systems whose pages come from another process or machine, or never: include/uapi/linux/magic.h. */
static __always_inline u64 may_never_come(u64 magic)
{
	u64 found = is_equal(magic, 0x65735546); /* FUSE */

	found |= is_equal(magic, 0x6969);     /* NFS */
	found |= is_equal(magic, 0xff534d42); /* CIFS */
	found |= is_equal(magic, 0xfe534d42); /* SMB2 */
	found |= is_equal(magic, 0x517b);     /* SMB */
	found |= is_equal(magic, 0x01021997); /* 9P */
	found |= is_equal(magic, 0x00c36400); /* Ceph */
	found |= is_equal(magic, 0x5346414f); /* AFS */
	found |= is_equal(magic, 0x6b414653); /* AFS, the kernel's */
	found |= is_equal(magic, 0x73757245); /* Coda */
	return found;
}

static long look_at_mapping(struct task_struct *task, struct vm_area_struct *mapping, void *unused)
{
	struct file *file = mapping->vm_file;
	u64 magic = file ? file->f_inode->i_sb->s_magic : 0;

	readable_end = mapping->vm_end & (may_never_come(magic) - 1);
	return 0;
}

/*
 * As long as this program waits for memory no other BPF program of the machine can be taken down (RCU Tasks Trace), so
 * it reads none that may not come, and does not queue for mappings that are being changed: then the thread is looked at
 * again.
 */
static __always_inline bool read_stack(struct task_struct *task, void *to, u32 bytes, u64 address)
{
	long error;

	readable_end = 0;
	error = bpf_find_vma(task, address, look_at_mapping, 0, 0);
	if (error == -EBUSY)
		is_disturbed = true;
	return (at_most(address + bytes, readable_end) & 1) &&
	       !bpf_copy_from_user_task(to, bytes, (void *)address, task, 0);
}

/* How often it has left a CPU: the kernel counts before it does. */
static __always_inline u64 departures(struct task_struct *task)
{
	return *(volatile unsigned long *)&task->nvcsw + *(volatile unsigned long *)&task->nivcsw;
}

static __always_inline bool is_on_cpu(struct task_struct *task)
{
	return *(volatile int *)&task->on_cpu;
}

/* Sleeping functions are left out by the kernel: the leaf is who sleeps. */
static __always_inline void walk_kernel_of(struct task_struct *task, struct sample *sample)
{
	long bytes = bpf_get_task_stack(task, sample->words, MAX_STACK_FRAMES * sizeof(u64), 0);

	if (bytes <= 0)
		return;
	sample->header.flags |= IN_KERNEL;
	sample->header.kernel_frames = bytes / sizeof(u64);
	if (sample->header.kernel_frames >= config.max_frames)
		sample->header.flags |= KERNEL_TRUNCATED;
}

static __always_inline void walk_user_of(struct task_struct *task, struct sample *sample)
{
	u32 zero = 0;
	struct walk *walk = bpf_map_lookup_elem(&walks, &zero);

	if (walk)
		walk_by_tables(walk, task, sample);
}

static __always_inline void walk(struct task_struct *task, struct sample *sample)
{
	if (!config.user_only)
		walk_kernel_of(task, sample);
	if (task->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER))
		sample->header.flags |= KERNEL_THREAD;
	else if (!task->mm)
		set_user_end(sample, END_EXITED);
	else
		walk_user_of(task, sample);
}

/* A thread that is on no CPU before and after, and has left none in between, has stood still. */
static __always_inline bool walk_resting(struct task_struct *task, struct sample *sample)
{
	u64 before;

	if (is_on_cpu(task))
		return false;
	is_disturbed = false;
	before = departures(task);
	walk(task, sample);
	return !is_disturbed && !is_on_cpu(task) && departures(task) == before;
}

static __always_inline void forget_stack(struct sample *sample)
{
	sample->header.flags = 0;
	sample->header.kernel_frames = 0;
	sample->header.user_frames = 0;
}

#endif
