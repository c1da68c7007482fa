//! What the measuring itself costs.

use std::time::Duration;

use crate::fault_totals::FaultCounts;
use crate::mapped::page_bytes;
use crate::perf_event;

/// Nanoseconds of a clock.
pub fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock and a place for its time.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_BOOTTIME, the clock of every sample.
pub fn boottime_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// CLOCK_MONOTONIC, which stands still while the machine sleeps.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CPU time of this whole process, all threads, Python included.
pub fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Page faults of this process so far.
pub fn own_faults() -> FaultCounts {
    // SAFETY: a struct of our own, filled by the kernel.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    FaultCounts {
        minor: usage.ru_minflt as u64,
        major: usage.ru_majflt as u64,
    }
}

/// Unix time minus boot time: the smallest of a few readings' error, taken between two of the boot clock.
pub fn boot_to_unix_ns() -> i64 {
    let reading = || {
        let before = boottime_ns();
        let unix = clock_ns(libc::CLOCK_REALTIME);
        let after = boottime_ns();
        (after - before, unix as i64 - (before + (after - before) / 2) as i64)
    };
    (0..5).map(|_| reading()).min().map_or(0, |(_, offset)| offset)
}

/// Physical memory of this process in bytes, now.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * page_bytes() as u64
}

/// Gives back to the kernel what the C library keeps of columns that have grown and moved: about as much as they take.
pub fn give_back_memory() {
    // SAFETY: asks the allocator for something that it may do at any time.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What the timer interrupt of a sample takes here, without any program: the lower quartile of the gaps that interrupts
/// tear into a spinning thread (the upper ones are other threads' turns), less what reading the clock takes. None where such an event cannot be opened or never fires.
///
/// 20 interrupts at 10 kHz: 2 ms.
pub fn interrupt_ns() -> Option<u64> {
    const PERIOD: Duration = Duration::from_micros(100);
    const SPIN: Duration = Duration::from_millis(2);
    let _event = perf_event::own_cpu_clock(PERIOD.as_nanos() as u64).ok()?;
    let (mut gaps, mut steps) = (Vec::new(), Vec::new());
    let start = clock_ns(libc::CLOCK_MONOTONIC);
    let mut last = start;
    while last - start < SPIN.as_nanos() as u64 {
        let now = clock_ns(libc::CLOCK_MONOTONIC);
        if now - last > 1_000 {
            gaps.push(now - last);
        } else if steps.len() < 1_000 {
            steps.push(now - last);
        }
        last = now;
    }
    Some(lower_quartile(&mut gaps)?.saturating_sub(lower_quartile(&mut steps).unwrap_or(0)))
}

fn lower_quartile(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 4).copied()
}
