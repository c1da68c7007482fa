// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0
/*
 * Allocations of programs as they are: uprobes on the functions of their allocators, and on their ends, for a window of
 * time (crates/capture/src/allocators.rs). Each call is a trap, so that samples are chosen here, as in preload/heap.c.
 *
 * What an allocator calls of itself, or of another one (operator new calls malloc), is part of the outermost call.
 */
#include "maps.h"
#include "heap.h"
#include <bpf/bpf_tracing.h>

/* mmap(2) */
#define PROT_NONE 0
#define MAP_ANONYMOUS 0x20
#define MAP_FAILED (~0ULL)

/* Of a thread. */
struct heap_call {
	s64 until_chosen; /* bytes */
	u64 stack;        /* its stack pointer in the outermost call of an allocator; 0: it is in none */
	u64 id;           /* of the allocation that it is about to get, if that is chosen */
	u64 result;       /* where posix_memalign stores the address; 0: it is returned */
	u32 has_begun;
	u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct heap_call);
} heap_calls SEC(".maps");

struct chosen_key {
	u64 address;
	u64 tgid;
};

struct chosen_allocation {
	u64 id;
	u64 window;
};

/* Chosen allocations. Changed only from process context, by threads that have or had them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* user space makes room where it is used */
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct chosen_key);
	__type(value, struct chosen_allocation);
} chosen_allocations SEC(".maps");

static u64 last_heap_id;

/*
 * -ln(u) * interval for a random u in (0, 1): the binary logarithm bit by bit, by squaring.
 * Source: Knuth, The Art of Computer Programming, 1.2.2, exercise 25
 */
static __always_inline s64 draw_bytes(void)
{
	u64 mantissa = bpf_get_prandom_u32() | 1;
	u64 log = 0; /* of the mantissa in [1, 2), in 1/65536 */
	u64 shift = 0;

	for (u32 step = 16; step; step /= 2) {
		if (mantissa >> (32 - step))
			continue;
		mantissa <<= step;
		shift += step;
	}
	for (u32 bit = 0; bit < 16; bit++) {
		mantissa = mantissa * mantissa >> 31;
		log *= 2;
		if (mantissa >> 32) {
			mantissa >>= 1;
			log++;
		}
	}
	/* 45426 = 65536 ln 2 */
	return (config.heap_interval_bytes * ((shift + 1) * 65536 - log) >> 16) * 45426 >> 16;
}

static __always_inline u64 window(void)
{
	u32 zero = 0;
	struct settings *current_settings = bpf_map_lookup_elem(&settings, &zero);

	return current_settings ? current_settings->heap_window : 0;
}

static __always_inline u64 requested_bytes(struct pt_regs *context, u32 call)
{
	switch (call) {
	case CALL_CALLOC:
		return PT_REGS_PARM1(context) * PT_REGS_PARM2(context);
	case CALL_REALLOC:
	case CALL_ALIGNED:
	case CALL_MMAP:
		return PT_REGS_PARM2(context);
	case CALL_REALLOCARRAY:
		return PT_REGS_PARM2(context) * PT_REGS_PARM3(context);
	case CALL_MREMAP:
	case CALL_POSIX_MEMALIGN:
		return PT_REGS_PARM3(context);
	default:
		return PT_REGS_PARM1(context);
	}
}

/* The end of an allocation, if it was chosen in this window. */
static __always_inline void end_chosen(void *context, struct task_struct *task, u64 address, struct counters *counters)
{
	struct chosen_key key = {.address = address, .tgid = READ(task, tgid)};
	struct chosen_allocation *found = address ? bpf_map_lookup_elem(&chosen_allocations, &key) : 0;
	struct heap_step step = {.program = window(), .step = HEAP_FREED};
	bool is_of_window;

	if (!found)
		return;
	step.id = found->id;
	is_of_window = found->window == step.program;
	bpf_map_delete_elem(&chosen_allocations, &key);
	if (!is_of_window)
		return; /* it is not followed any more */
	__sync_fetch_and_add(&counters->entries, 1);
	tell_heap_step(context, task, &step, counters);
}

/* True for one in so many bytes. */
static __always_inline bool is_chosen(struct heap_call *thread, u64 size)
{
	if (!thread->has_begun) {
		thread->has_begun = 1;
		thread->until_chosen = draw_bytes();
	}
	thread->until_chosen -= size + 1;
	if (thread->until_chosen >= 0)
		return false;
	thread->until_chosen = draw_bytes();
	return true;
}

static __always_inline void begin_call(struct pt_regs *context, struct task_struct *task, struct heap_call *thread,
				       u32 call, struct counters *counters)
{
	struct heap_step step = {.program = window(), .step = HEAP_ALLOCATED, .size = requested_bytes(context, call)};

	thread->id = 0;
	if (!is_chosen(thread, step.size)) {
		__sync_fetch_and_add(&counters->saved, 1);
		return;
	}
	step.id = __sync_fetch_and_add(&last_heap_id, 1) + 1;
	thread->result = call == CALL_POSIX_MEMALIGN ? PT_REGS_PARM1(context) : 0;
	if (tell_heap_step(context, task, &step, counters))
		thread->id = step.id;
}

/*
 * At the same place of the stack it is where the outermost call ends in a jump to another function (reallocarray to
 * realloc). One that was left another way than by returning (an exception) was at a place that is free now.
 */
static __always_inline bool is_inner_call(const struct heap_call *thread, u64 stack)
{
	return thread->stack && stack <= thread->stack;
}

/* A mapping of a file, or of addresses that are to be kept free, takes no memory. */
static __always_inline bool is_allocation(struct pt_regs *context, u32 call)
{
	if (call == CALL_FREE)
		return false;
	return call != CALL_MMAP || (PT_REGS_PARM4(context) & MAP_ANONYMOUS && PT_REGS_PARM3(context) != PROT_NONE);
}

static __always_inline bool ends_another(u32 call)
{
	return call == CALL_FREE || call == CALL_REALLOC || call == CALL_REALLOCARRAY || call == CALL_MREMAP;
}

static __always_inline void enter(struct pt_regs *context, struct task_struct *task, u32 call,
				  struct counters *counters)
{
	struct heap_call *thread = 0;

	if (ends_another(call))
		end_chosen(context, task, PT_REGS_PARM1(context), counters);
	if (is_allocation(context, call))
		thread = bpf_task_storage_get(&heap_calls, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!thread || is_inner_call(thread, PT_REGS_SP(context))) {
		__sync_fetch_and_add(&counters->saved, 1);
		return;
	}
	thread->stack = PT_REGS_SP(context);
	begin_call(context, task, thread, call, counters);
}

/* The cookie is the function's `enum allocator_call`. */
SEC("uprobe.multi")
int enter_allocator(struct pt_regs *context)
{
	struct task_struct *task = current_task();
	struct counters *counters = this_cpu_counters(HOOK_ALLOCATION);
	struct pass pass;

	if (!counters)
		return 0;
	pass = begin_trap(counters);
	if (is_wanted(task))
		enter(context, task, bpf_get_attach_cookie(context), counters);
	else
		__sync_fetch_and_add(&counters->filtered, 1);
	end_pass(&pass, counters);
	return 0;
}

/* The address of what was chosen, once it is known; without one there was no allocation. */
static __always_inline void note_address(struct pt_regs *context, struct task_struct *task, struct heap_call *thread,
					 struct counters *counters)
{
	struct chosen_key key = {.address = PT_REGS_RC(context), .tgid = READ(task, tgid)};
	struct heap_step step = {.program = window(), .id = thread->id, .step = HEAP_UNFOLLOWED};
	struct chosen_allocation chosen = {.id = thread->id, .window = step.program};

	thread->id = 0;
	if (thread->result && (key.address || bpf_probe_read_user(&key.address, sizeof(u64), (void *)thread->result)))
		key.address = 0;
	if (!key.address || key.address == MAP_FAILED) {
		step.step = HEAP_FREED;
	} else {
		end_chosen(context, task, key.address, counters); /* was given back where nobody saw it */
		if (!bpf_map_update_elem(&chosen_allocations, &key, &chosen, BPF_ANY))
			return;
	}
	__sync_fetch_and_add(&counters->entries, 1);
	tell_heap_step(context, task, &step, counters);
}

SEC("uretprobe.multi")
int leave_allocator(struct pt_regs *context)
{
	struct task_struct *task = current_task();
	struct counters *counters = this_cpu_counters(HOOK_ALLOCATION);
	struct heap_call *thread = bpf_task_storage_get(&heap_calls, task, 0, 0);
	struct pass pass;

	if (!counters)
		return 0;
	pass = begin_trap(counters);
	__sync_fetch_and_add(&counters->saved, 1);
	if (thread && thread->stack && PT_REGS_SP(context) >= thread->stack) {
		thread->stack = 0;
		if (thread->id)
			note_address(context, task, thread, counters);
	}
	end_pass(&pass, counters);
	return 0;
}
