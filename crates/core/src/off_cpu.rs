//! What a thread waited for, told by the kernel's functions in the stack with which it left the CPU.

use hashbrown::HashMap;

use crate::profile::Profile;
use crate::rows::{LocationId, ObjectKind, StackId};

/// Functions of the kernel by how their names begin, and what a thread waits for in them. From the leaf on, the first
/// function of a stack that is here decides; in one function the first line that fits. Names of Linux 5.10 to 6.18.
const REASONS: &[(&str, &[&str])] = &[
    (
        "stop",
        &[
            "do_signal_stop",
            "ptrace_stop",
            "ptrace_notify",
            "do_freezer_trap",
            "__refrigerator",
        ],
    ),
    ("start", &["schedule_tail", "ret_from_fork"]),
    ("cpu quota", &["throttle_cfs_rq_work"]),
    ("futex", &["futex_", "do_futex", "__futex_"]),
    (
        "sleep",
        &[
            "do_nanosleep",
            "hrtimer_nanosleep",
            "common_nsleep",
            "msleep",
            "alarm_timer_nsleep",
        ],
    ),
    (
        "poll",
        &[
            "do_sys_poll",
            "do_poll",
            "do_select",
            "core_sys_select",
            "ep_poll",
            "do_epoll_wait",
        ],
    ),
    (
        "io_uring",
        &["io_cqring_wait", "io_uring_enter", "__do_sys_io_uring_enter"],
    ),
    (
        "pipe",
        &[
            "pipe_read",
            "pipe_write",
            "anon_pipe_read",
            "anon_pipe_write",
            "fifo_open",
            "wait_for_partner",
        ],
    ),
    (
        "socket",
        &[
            "unix_stream_",
            "unix_dgram_",
            "unix_wait_for_peer",
            "sk_wait_data",
            "sk_stream_wait_",
            "tcp_",
            "udp_",
            "inet_csk_accept",
            "inet_stream_connect",
            "inet_wait_for_connect",
            "__skb_wait_for_more_packets",
            "__skb_recv_",
            "skb_recv_datagram",
            "sock_",
            "netlink_",
            "packet_",
            "vsock_",
        ],
    ),
    (
        "child",
        &[
            "do_wait",
            "kernel_wait4",
            "kernel_waitid",
            "wait_for_vfork_done",
            "kernel_clone",
        ],
    ),
    (
        "signal",
        &[
            "do_sigtimedwait",
            "sigsuspend",
            "__do_sys_pause",
            "__x64_sys_pause",
            "__se_sys_pause",
        ],
    ),
    ("terminal", &["n_tty_read", "n_tty_write", "tty_", "ptm_", "pty_"]),
    ("timer", &["timerfd_read"]),
    (
        "eventfd",
        &[
            "eventfd_read",
            "eventfd_write",
            "signalfd_",
            "inotify_read",
            "fanotify_read",
        ],
    ),
    ("message queue", &["do_msgrcv", "do_msgsnd", "wq_sleep", "do_mq_"]),
    ("semaphore", &["do_semtimedop", "__do_semtimedop"]),
    (
        "file lock",
        &[
            "locks_lock_inode_wait",
            "posix_lock_inode_wait",
            "flock_lock_inode_wait",
            "fcntl_setlk",
            "__break_lease",
        ],
    ),
    (
        "memory",
        &[
            "try_to_free_pages",
            "do_try_to_free_pages",
            "shrink_",
            "throttle_direct_reclaim",
            "reclaim_throttle",
            "mem_cgroup_handle_over_high",
            "mem_cgroup_out_of_memory",
            "compact_zone",
            "try_to_compact_pages",
        ],
    ),
    (
        "disk",
        &[
            "io_schedule",
            "folio_wait_",
            "wait_on_page_",
            "wait_on_buffer",
            "__wait_on_buffer",
            "submit_bio_wait",
            "blk_mq_get_tag",
            "rq_qos_wait",
            "wbt_wait",
            "jbd2_",
            "balance_dirty_pages",
            "blkdev_",
            "__blkdev_",
            "iomap_dio_",
            "xlog_",
            "wait_transaction_",
            "wait_current_trans",
            "bdev_",
        ],
    ),
    (
        "kernel lock",
        &[
            "__mutex_lock",
            "mutex_lock",
            "rwsem_down_",
            "down_read",
            "down_write",
            "__down",
            "rt_mutex_",
            "rt_spin_lock",
            "percpu_rwsem_wait",
            "__percpu_",
            "__wait_rcu_gp",
            "synchronize_rcu",
            "synchronize_srcu",
        ],
    ),
    (
        "device",
        &[
            "vfio_",
            "drm_",
            "i915_",
            "amdgpu_",
            "nvidia_",
            "kvm_vcpu_block",
            "kvm_vcpu_halt",
            "fuse_",
            "nfs_",
        ],
    ),
    ("exit", &["do_exit", "do_group_exit", "exit_mm", "coredump_wait"]),
];

/// Functions that decide only where no function of [`REASONS`] does, from the leaf on.
const OTHERWISE: &[(&str, &[&str])] = &[
    (
        "page fault",
        &[
            "exc_page_fault",
            "asm_exc_page_fault",
            "do_page_fault",
            "do_user_addr_fault",
            "el0_da",
        ],
    ),
    ("yield", &["do_sched_yield", "__do_sys_sched_yield"]),
];

const PREEMPTED: &[&str] = &[
    "preempt_schedule",
    "irqentry_exit",
    "exit_to_user_mode",
    "syscall_exit_to_user_mode",
];

/// What threads waited for, by their stacks.
pub(crate) struct WaitReasons<'a> {
    profile: &'a Profile,
    names: HashMap<LocationId, &'a str>,
    /// By the kernel's part of a stack, leaf first: there are few.
    known: HashMap<Vec<LocationId>, &'static str>,
}

impl<'a> WaitReasons<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        let is_innermost = |line: &&crate::symbolize::LineRow| line.depth == 0;
        let functions = profile.functions.rows(0);
        let lines = profile.lines.iter().filter(is_innermost);
        let names = lines.map(|line| (line.location, &*functions[line.function.index()].name));
        Self {
            profile,
            names: names.collect(),
            known: HashMap::new(),
        }
    }

    /// `other` where the kernel's part does not tell.
    pub(crate) fn of(&mut self, stack: StackId) -> &'static str {
        let kernel = self.kernel_part(stack);
        if let Some(reason) = self.known.get(&kernel) {
            return reason;
        }
        let names: Vec<&str> = kernel
            .iter()
            .filter_map(|location| self.names.get(location).copied())
            .collect();
        let reason = reason_of(&names);
        self.known.insert(kernel, reason);
        reason
    }

    /// Leaf first.
    fn kernel_part(&self, stack: StackId) -> Vec<LocationId> {
        let Profile { objects, locations, .. } = self.profile;
        let is_kernel = |location: &LocationId| {
            let object = locations.object[location.index()];
            matches!(objects.kind[object.index()], ObjectKind::Kernel | ObjectKind::Module)
        };
        self.profile.stacks.frames(stack).take_while(is_kernel).collect()
    }
}

fn reason_of(names: &[&str]) -> &'static str {
    let find = |reasons: &[(&'static str, &[&str])]| {
        names.iter().find_map(|name| {
            let fits = |(_, starts): &&(_, &[&str])| starts.iter().any(|start| name.starts_with(start));
            reasons.iter().find(fits).map(|(reason, _)| *reason)
        })
    };
    let is_turn = |name: &&str| PREEMPTED.iter().any(|start| name.starts_with(start));
    find(REASONS)
        .or_else(|| find(OTHERWISE))
        .unwrap_or_else(|| if names.iter().any(is_turn) { "cpu" } else { "other" })
}

#[cfg(test)]
mod tests {
    use super::reason_of;

    #[test]
    fn the_function_nearest_to_the_leaf_tells_what_a_thread_waits_for() {
        let syscall = ["do_syscall_64", "entry_SYSCALL_64_after_hwframe"];
        let with = |names: &[&'static str]| reason_of(&[names, &syscall].concat());
        assert_eq!(
            with(&["__schedule", "schedule", "futex_wait_queue", "futex_wait", "do_futex"]),
            "futex"
        );
        assert_eq!(
            with(&["__schedule", "schedule", "do_nanosleep", "hrtimer_nanosleep"]),
            "sleep"
        );
        assert_eq!(
            with(&[
                "schedule",
                "io_schedule",
                "folio_wait_bit_common",
                "filemap_fault",
                "exc_page_fault"
            ]),
            "disk"
        );
        assert_eq!(
            with(&["schedule", "rwsem_down_read_slowpath", "down_read", "exc_page_fault"]),
            "kernel lock"
        );
        assert_eq!(
            with(&["__schedule", "schedule", "unix_stream_read_generic", "sock_recvmsg"]),
            "socket"
        );
        assert_eq!(with(&["__schedule", "something_new"]), "other");
        assert_eq!(
            reason_of(&["__schedule", "schedule", "exit_to_user_mode_loop", "irqentry_exit"]),
            "cpu"
        );
    }
}
