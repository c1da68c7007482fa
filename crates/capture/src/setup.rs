//! What a recording needs before its first sample.

use crate::abi;
use crate::cost;
use crate::intake::Intake;
use crate::options::Options;
use crate::procfs;

/// Reads the processes that the first samples will be of, and says which are left: they have time.
pub fn scan_first(options: &Options, intake: &mut Intake) -> Vec<u32> {
    let now_ns = cost::boottime_ns();
    let all = if options.walks_all() {
        procfs::pids()
    } else {
        Vec::new()
    };
    for pid in options.pids.iter().chain(&procfs::running(&all)) {
        intake.processes.scan(*pid, &mut intake.files, now_ns);
    }
    all
}

/// Up to this rate, a second of the longest stacks is little.
pub const SLOW_HZ: u64 = 128;

/// Of each CPU: a second's worth of records of 1 KiB, up to [`SLOW_HZ`] of 2 KiB, at most 2 MiB. Linux 5.10 takes no
/// value of 4 MiB or more.
pub fn ring_bytes(options: &Options) -> usize {
    const RECORD_BYTES: u64 = 1024;
    const LONG_RECORD_BYTES: u64 = 2048;
    const LEAST_BYTES: usize = 8192;
    const { assert!(LEAST_BYTES > size_of::<abi::Sample>()) };
    let wanted = match options.ring_bytes {
        Some(bytes) => bytes.max(LEAST_BYTES),
        None => (options.fastest_hz() * RECORD_BYTES).clamp(SLOW_HZ * LONG_RECORD_BYTES, 2 << 20) as usize,
    };
    wanted.next_power_of_two().min(1 << 30)
}

/// Each mapped file is held by a descriptor: the soft limit goes up to the hard one.
pub fn raise_open_files_limit() {
    // SAFETY: a struct of our own, filled and handed back.
    unsafe {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
