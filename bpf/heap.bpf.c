// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Allocations that a program has chosen as samples, and what becomes of them: uprobes on the empty functions that
 * preload/heap.c calls.
 */
#include "maps.h"
#include "heap.h"
#include <bpf/bpf_tracing.h>

static __always_inline void pass_on(void *context, const struct heap_step *step)
{
	struct task_struct *task = current_task();
	struct counters *counters = this_cpu_counters(HOOK_ALLOCATION);

	if (!counters)
		return;
	__sync_fetch_and_add(&counters->entries, 1);
	if (is_wanted(task))
		tell_heap_step(context, task, step, counters);
	else
		__sync_fetch_and_add(&counters->filtered, 1);
}

SEC("uprobe")
int tell_allocation(struct pt_regs *context)
{
	struct heap_step step = {
		.program = PT_REGS_PARM1(context),
		.id = PT_REGS_PARM2(context),
		.size = PT_REGS_PARM3(context),
		.calls = PT_REGS_PARM4(context),
		.bytes = PT_REGS_PARM5(context),
		.step = HEAP_ALLOCATED,
	};

	pass_on(context, &step);
	return 0;
}

SEC("uprobe")
int tell_free(struct pt_regs *context)
{
	struct heap_step step = {
		.program = PT_REGS_PARM1(context),
		.id = PT_REGS_PARM2(context),
		.step = HEAP_FREED,
	};

	pass_on(context, &step);
	return 0;
}

SEC("uprobe")
int tell_count(struct pt_regs *context)
{
	struct heap_step step = {
		.program = PT_REGS_PARM1(context),
		.calls = PT_REGS_PARM2(context),
		.bytes = PT_REGS_PARM3(context),
		.step = HEAP_COUNTED,
	};

	pass_on(context, &step);
	return 0;
}
