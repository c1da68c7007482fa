// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/* User space's looks at the page faults of all threads: at the beginning, and whenever it wants the sums to be true. */
#include "fault_counts.h"

/* Also a COMMAND that is held: its exec begins anew. Those that are counted already go on. */
SEC("iter/task")
int begin_faults(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	u32 tgid;

	if (!task || task->flags & PF_KTHREAD)
		return 0;
	tgid = collector_tgid(task);
	if (config.filter_targets && !bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	if (!bpf_task_storage_get(&thread_faults, task, 0, 0))
		begin_counting(task);
	return 0;
}

SEC("iter/task")
int sum_faults(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	u32 tgid;

	if (!task)
		return 0;
	tgid = collector_tgid(task);
	if (has_counted_faults(task, tgid))
		add_faults(task, tgid);
	return 0;
}
