//! What the programs are told when they are loaded.

use std::os::unix::fs::MetadataExt;

use crate::abi;
use crate::block_tracepoints::BlockTracepoints;
use crate::cost;
use crate::drain::Layout;
use crate::fault_totals;
use crate::mapped;
use crate::options::{Options, Sampling};
use crate::perf_event::{self, Trigger};

/// `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
const INITIAL_PID_NAMESPACE_INODE: u64 = 0xeffffffc;

/// Of a return address. On arm64 its upper bits may sign it (PAC); addresses have 48 bits unless a program asks for more.
const CODE_MASK: u64 = if cfg!(target_arch = "aarch64") {
    (1 << 48) - 1
} else {
    u64::MAX
};

/// A place that no map has, and that stays so when a CPU's number is added.
const NO_RING: u64 = 1 << 31;

/// What all programs are told when they are loaded.
pub fn configure(options: &Options, triggers: &[Trigger], rings: &Layout, combine_slots: usize) -> abi::Config {
    let mut comm = [0; abi::COMM_BYTES];
    let wanted = options.comm.as_deref().unwrap_or_default().as_bytes();
    let length = wanted.len().min(abi::COMM_BYTES - 1);
    comm[..length].copy_from_slice(&wanted[..length]);
    let block = wanted_block_tracepoints(options);
    let max_stack = perf_event::sysctl("perf_event_max_stack").and_then(|frames| u32::try_from(frames).ok());
    abi::Config {
        pidns_inode: own_pid_namespace(),
        ring_bytes: rings.ring_bytes as u64,
        self_tgid: if options.include_self { 0 } else { std::process::id() },
        max_frames: max_stack.unwrap_or(u32::MAX).min(abi::MAX_STACK_FRAMES as u32),
        combine_slots: combine_slots as u32,
        own_counts: bits_of(triggers, Trigger::has_own_count),
        cpus: rings.cpus as u32,
        comm,
        tracepoint_periods: tracepoint_periods(triggers),
        filter_targets: (!options.pids.is_empty()).into(),
        filter_comm: options.comm.is_some().into(),
        filter_cgroup: options.cgroup.is_some().into(),
        inherit: options.inherit.into(),
        user_only: options.user_only.into(),
        kernel_only: options.kernel_only.into(),
        lone_event: lone_event(triggers).unwrap_or(abi::MAX_EVENTS) as u8,
        unwind: options.unwind.into(),
        code_mask: CODE_MASK,
        begin_boottime_ns: cost::boottime_ns(),
        count_faults: fault_totals::are_wanted(options, triggers).into(),
        first_ring: first_rings(&options.hooks(), rings.cpus),
        off_cpu_min_ns: nanoseconds(options.off_cpu_min),
        off_cpu_max_ns: nanoseconds(options.off_cpu_max),
        off_cpu_event: options.off_cpu_event().unwrap_or(0) as u32,
        off_cpu: options.off_cpu_event().is_some().into(),
        tells_submission: block.has_start.into(),
        queue_comes_first: block.queue_comes_first.into(),
        off_cpu_at_departure: options.off_cpu_at_departure.into(),
        addressed: bits_of(triggers, Trigger::has_address),
        block_io_event: options.block_io_event().unwrap_or(0) as u32,
        tells_end: block.has_done.into(),
        asyncio: options.asyncio.into(),
        kernel_walk: abi::KERNEL_WALK_ITS_OWN as u8,
        heap_interval_bytes: options.heap_interval_bytes(),
        page_bits: mapped::page_bytes().ilog2().into(),
        heap_event: options.heap_event().unwrap_or(0) as u32,
        timed_faults: 0,
    }
}

/// Where each hook's rings are; beyond the end for hooks that have none.
fn first_rings(hooks: &[u32], cpus: usize) -> [u64; abi::HOOKS] {
    let mut first = [NO_RING; abi::HOOKS];
    for (at, hook) in hooks.iter().enumerate() {
        first[*hook as usize] = (at * cpus) as u64;
    }
    first
}

/// The event that perf tells of, if there is but one; 0 where there is none. None: a cookie has to tell which.
pub fn lone_event(triggers: &[Trigger]) -> Option<usize> {
    let is_perf_event = |event: &usize| triggers[*event].is_perf_event();
    let mut told = (0..triggers.len()).filter(is_perf_event);
    let first = told.next().unwrap_or(0);
    told.next().is_none().then_some(first)
}

/// None of them where requests are not recorded.
pub fn wanted_block_tracepoints(options: &Options) -> BlockTracepoints {
    let event = options.block_io_event();
    event.map_or_else(BlockTracepoints::default, |_| BlockTracepoints::find())
}

/// A bit for each event that is so.
pub fn bits_of(triggers: &[Trigger], is_so: impl Fn(&Trigger) -> bool) -> u32 {
    let chosen = triggers.iter().enumerate().filter(|(_, trigger)| is_so(trigger));
    chosen.fold(0, |bits, (event, _)| bits | 1 << event)
}

fn nanoseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn tracepoint_periods(triggers: &[Trigger]) -> [u32; abi::MAX_EVENTS] {
    let mut periods = [1; abi::MAX_EVENTS];
    for (period, trigger) in periods.iter_mut().zip(triggers) {
        if let Sampling::Period(every) = trigger.event.sampling {
            *period = u32::try_from(every).unwrap_or(u32::MAX);
        }
    }
    periods
}

/// The inode of this process's PID namespace; 0 for the initial one.
fn own_pid_namespace() -> u64 {
    let inode = std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino());
    if inode == INITIAL_PID_NAMESPACE_INODE { 0 } else { inode }
}
