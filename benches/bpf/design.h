/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What the designs that benchmarks compare have in common. Each file beside this one is a design, its program `sample`. */
#ifndef STACKHOUND_BENCH_DESIGN_H
#define STACKHOUND_BENCH_DESIGN_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

#define MAX_STACK_FRAMES 127

struct scratch {
	u64 kernel[MAX_STACK_FRAMES];
	u64 user[MAX_STACK_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline bool interrupted_kernel(const bpf_user_pt_regs_t *regs)
{
#if defined(__TARGET_ARCH_x86)
	return (regs->cs & 3) == 0;
#else
	return (regs->pstate & 0xf) != 0;
#endif
}

/* Both stacks into memory of this CPU: less than this no sampler of stacks can do. */
static __always_inline void walk(struct bpf_perf_event_data *context)
{
	u32 zero = 0;
	struct scratch *scratched = bpf_map_lookup_elem(&scratch, &zero);

	if (!scratched)
		return;
	if (interrupted_kernel(&context->regs))
		bpf_get_stack(context, scratched->kernel, sizeof(scratched->kernel), 0);
	bpf_get_stack(context, scratched->user, sizeof(scratched->user), BPF_F_USER_STACK);
}

#endif
