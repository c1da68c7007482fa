/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0 */
/*
 * The few kernel types that the programs use, for CO-RE: field offsets are relocated at load time, so these declare
 * names and kinds only, and one object file serves every kernel.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s64 s64;
typedef _Bool bool;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;

enum { false = 0, true = 1 };

/* UAPI: what the programs use of <linux/bpf.h>. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_CGROUP_ARRAY = 8,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
};

enum {
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
	BPF_F_INNER_MAP = 1U << 12,
};

enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1ULL << 0,
};

enum {
	BPF_F_USER_STACK = 1ULL << 8,
};

enum {
	BPF_RB_NO_WAKEUP = 1ULL << 0,
	BPF_RB_FORCE_WAKEUP = 1ULL << 1,
};

/* UAPI: the context of a perf_event program, whose layout is fixed. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
typedef struct pt_regs bpf_user_pt_regs_t;
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};
typedef struct user_pt_regs bpf_user_pt_regs_t;
#else
#error "x86-64 and arm64 only"
#endif

struct bpf_perf_event_data {
	bpf_user_pt_regs_t regs;
	__u64 sample_period;
	__u64 addr;
};

struct bpf_perf_event_value {
	__u64 counter;
	__u64 enabled;
	__u64 running;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
	unsigned int level;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct mm_struct;

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long sp;
	unsigned long fsbase;
};
#else
struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};
#endif

struct thread_info {
	u32 cpu;
};

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_arrival;
	unsigned long long last_queued;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	int on_cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	int exit_state;
	unsigned int in_iowait : 1;
	unsigned long nvcsw;
	unsigned long nivcsw;
	unsigned int flags;
	struct mm_struct *mm;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
	u32 self_exec_id;
	u32 parent_exec_id;
	struct pid *thread_pid;
	u64 start_boottime;
	unsigned long min_flt;
	unsigned long maj_flt;
	char comm[16];
	struct signal_struct *signal;
	struct thread_struct thread;
};

struct super_block {
	unsigned long s_magic;
	u32 s_dev;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct file {
	struct inode *f_inode;
};

struct mm_struct {
	unsigned long exec_vm;
	unsigned long start_code;
	unsigned long end_code;
	unsigned long arg_start;
	unsigned long arg_end;
	unsigned long saved_auxv[44];
	struct file *exe_file;
};

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_pgoff;
	unsigned long vm_flags;
	struct file *vm_file;
};

struct vm_fault {
	struct vm_area_struct *vma;
	unsigned long pgoff;
};

struct gendisk {
	int major;
	int first_minor;
};

struct elevator_queue;

struct request_queue {
	struct gendisk *disk;
	struct elevator_queue *elevator;
};

struct kernfs_node {
	u64 id;
};

struct cgroup_root {
	int hierarchy_id;
};

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct bio {
	struct blkcg_gq *bi_blkg;
};

struct request {
	struct bio *bio;
	struct request_queue *q;
	u32 cmd_flags;
	u32 rq_flags;
	u32 __data_len;
	u64 __sector;
};

/* Until Linux 5.14. */
struct request___with_disk {
	struct gendisk *rq_disk;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* include/linux/blk-mq.h, since Linux 6.11 */
enum rqf_flags {
	__RQF_FLUSH_SEQ = 1,
	__RQF_IO_STAT = 8,
};

#endif
