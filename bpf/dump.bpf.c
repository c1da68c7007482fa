// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * What every thread of a process does now: an iterator, which user space reads like a file. It runs in the reader, and
 * no thread is stopped: one that ran while it was looked at has no stack here, because the one that was read never was.
 */
#define LOOKS_AT_OTHERS
#include "maps.h"
#include "sample.h"
#include "stack/user.h"

#define EBUSY 16

struct dumped dumped; /* one reader at a time */

/* File systems whose pages come from another process or machine, or never: include/uapi/linux/magic.h. */
static __always_inline bool may_never_come(u64 magic)
{
	switch (magic) {
	case 0x65735546: /* FUSE */
	case 0x6969:     /* NFS */
	case 0xff534d42: /* CIFS */
	case 0xfe534d42: /* SMB2 */
	case 0x517b:     /* SMB */
	case 0x01021997: /* 9P */
	case 0x00c36400: /* Ceph */
	case 0x5346414f: /* AFS */
	case 0x6b414653: /* AFS, the kernel's */
	case 0x73757245: /* Coda */
		return true;
	}
	return false;
}

struct wanted {
	u64 end;
	bool is_safe;
};

static long check_mapping(struct task_struct *task, struct vm_area_struct *mapping, struct wanted *wanted)
{
	struct file *file = mapping->vm_file;

	wanted->is_safe = wanted->end <= mapping->vm_end && (!file || !may_never_come(file->f_inode->i_sb->s_magic));
	return 0;
}

/*
 * As long as this program waits for memory no other BPF program of the machine can be taken down (RCU Tasks Trace), so
 * it reads none that may not come, and does not queue for mappings that are being changed: then the thread is looked at
 * again.
 */
static __always_inline bool read_stack(struct task_struct *task, void *to, u32 bytes, u64 address)
{
	struct wanted wanted = {.end = address + bytes};
	long error = bpf_find_vma(task, address, check_mapping, &wanted, 0);

	if (error == -EBUSY)
		dumped.thread.has_run = true;
	return !error && wanted.is_safe && !bpf_copy_from_user_task(to, bytes, (void *)address, task, 0);
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
	before = departures(task);
	walk(task, sample);
	return !is_on_cpu(task) && departures(task) == before;
}

static __always_inline void forget_stack(struct sample *sample)
{
	sample->header.flags = 0;
	sample->header.kernel_frames = 0;
	sample->header.user_frames = 0;
}

static __always_inline void describe_thread(struct dumped_thread *thread, struct task_struct *task)
{
	thread->cpu_ns = task->se.sum_exec_runtime;
	thread->task_state = task->__state | (u64)task->exit_state << 32;
	thread->io_wait = BPF_CORE_READ_BITFIELD_PROBED(task, in_iowait);
}

SEC("iter.s/task")
int dump_thread(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	struct sample *sample = &dumped.sample;
	u64 bytes;

	if (!task)
		return 0;
	describe(sample, task, bpf_ktime_get_boot_ns());
	describe_thread(&dumped.thread, task);
	sample->header.cpu = task->thread_info.cpu;
	dumped.thread.has_run = false;
	if (!walk_resting(task, sample))
		dumped.thread.has_run = true;
	if (dumped.thread.has_run)
		forget_stack(sample);
	bytes = sizeof(dumped.thread) + sizeof(sample->header) + stack_words(sample) * sizeof(u64);
	barrier_var(bytes);
	if (bytes <= sizeof(dumped))
		bpf_seq_write(context->meta->seq, &dumped, bytes); /* what finds no room is looked at again */
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
