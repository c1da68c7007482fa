// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* Where the kernel begins with a page fault: not every kernel lets programs look there. */
#include "filter.h"
#include "fault_times.h"
#include <bpf/bpf_tracing.h>

#define FAULT_FLAG_TRIED 32 /* include/linux/mm_types.h: it had to wait, and goes on */

static __always_inline bool is_timed(struct task_struct *task)
{
	u32 tgid = collector_tgid(task);

	if (config.self_tgid && tgid == config.self_tgid)
		return false;
	return !config.filter_targets || is_target(tgid);
}

/* Without registers it is the kernel that needs the page: no event counts that. */
SEC("fentry/handle_mm_fault")
int BPF_PROG(begin_fault, struct vm_area_struct *mapping, unsigned long address, unsigned int flags,
	     struct pt_regs *registers)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fault_time *time;

	if (flags & FAULT_FLAG_TRIED || !registers || !is_timed(task))
		return 0;
	time = bpf_task_storage_get(&fault_times, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!time)
		return 0;
	time->has_file = 0;
	time->began_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("fentry/filemap_fault")
int BPF_PROG(note_file, struct vm_fault *fault)
{
	struct fault_time *time = bpf_task_storage_get(&fault_times, bpf_get_current_task_btf(), 0, 0);
	struct inode *inode;

	if (!time || !time->began_ns)
		return 0;
	inode = fault->vma->vm_file->f_inode;
	time->inode = inode->i_ino;
	time->device = inode->i_sb->s_dev;
	time->page = fault->pgoff;
	time->has_file = 1;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
