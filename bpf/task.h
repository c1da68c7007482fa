/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/* What the programs ask of a task, with the older way where a kernel lacks the newer one. */
#ifndef STACKHOUND_TASK_H
#define STACKHOUND_TASK_H

#include "maps.h"
#include <bpf/bpf_core_read.h>

#define PF_VCPU 0x00000001 /* include/linux/sched.h: running a guest's code */
#define PF_IO_WORKER 0x00000010
#define PF_USER_WORKER 0x00004000
#define PF_KTHREAD 0x00200000

enum bpf_func_id___with_btf_task {
	BPF_FUNC_get_current_task_btf___with_btf_task = 158,
};

/* The value is relocated, and decides at load time which branch the verifier sees. */
static __always_inline bool has_btf_task(void)
{
	return bpf_core_enum_value_exists(enum bpf_func_id___with_btf_task,
					  BPF_FUNC_get_current_task_btf___with_btf_task);
}

/* Since Linux 5.11 fields are read directly, before that through bpf_probe_read_kernel. */
static __always_inline struct task_struct *current_task(void)
{
	if (has_btf_task())
		return bpf_get_current_task_btf();
	return (struct task_struct *)bpf_get_current_task();
}

#define READ(pointer, field) (has_btf_task() ? (pointer)->field : BPF_CORE_READ(pointer, field))

#define MAX_PIDNS_LEVEL 32 /* include/linux/pid_namespace.h */
#define NUMBERS_MASK 1023  /* of offsets: tells the verifier of Linux 6.1 that they are bounded */

static __always_inline struct upid *number_at(struct pid *pid, u32 level)
{
	void *numbers = (void *)pid + bpf_core_field_offset(struct pid, numbers);

	return numbers + (level * bpf_core_type_size(struct upid) & NUMBERS_MASK);
}

/* The id in the collector's PID namespace; 0 when the collector cannot see the task. */
static __always_inline u32 collector_id(struct pid *pid, u32 global_id)
{
	u32 innermost;

	if (!config.pidns_inode)
		return global_id;
	innermost = pid ? BPF_CORE_READ(pid, level) : 0;
	for (u32 level = 1; level <= MAX_PIDNS_LEVEL && level <= innermost; level++) {
		struct upid *number = number_at(pid, level);

		if (BPF_CORE_READ(number, ns, ns.inum) == (u32)config.pidns_inode)
			return BPF_CORE_READ(number, nr);
	}
	return 0;
}

/* The id in the task's own, innermost PID namespace. */
static __always_inline u32 own_id(struct pid *pid, u32 global_id)
{
	u32 level;

	if (!pid)
		return global_id;
	level = READ(pid, level);
	return level ? BPF_CORE_READ(number_at(pid, level), nr) : global_id;
}

static __always_inline void read_comm(u8 *comm, struct task_struct *task)
{
	u64 *words = (u64 *)comm;

	if (!has_btf_task()) {
		bpf_get_current_comm(comm, COMM_BYTES);
		return;
	}
	words[0] = ((const volatile u64 *)task->comm)[0];
	words[1] = ((const volatile u64 *)task->comm)[1];
}

static __always_inline u32 collector_tgid(struct task_struct *task)
{
	if (!config.pidns_inode)
		return READ(task, tgid);
	return collector_id(BPF_CORE_READ(task, group_leader, thread_pid), READ(task, tgid));
}

#endif
