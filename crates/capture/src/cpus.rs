//! Which CPUs there are.

use std::fs;
use std::io;

/// USER_HZ, 100 on every architecture that counts: the unit of /proc/stat.
pub const IDLE_TICK_NS: u64 = 1_000_000_000 / 100;

/// Ids of the CPUs that are online now, ascending.
pub fn online() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = parse_list(text.trim());
    if cpus.is_empty() { vec![0] } else { cpus }
}

/// Whether an event could not be opened because its CPU went offline just now.
pub fn has_left(cpu: u32, error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)) && !online().contains(&cpu)
}

/// What the CPUs have idled so far, all together, to within a tick of 10 ms each; 0 where the kernel does not say.
pub fn idle_ns() -> u64 {
    sum_idle_ticks(&fs::read_to_string("/proc/stat").unwrap_or_default()) * IDLE_TICK_NS
}

/// Of the first line of /proc/stat: `cpu user nice system idle iowait …`.
fn sum_idle_ticks(stat: &str) -> u64 {
    let columns = stat.lines().next().unwrap_or_default().split_whitespace().skip(4);
    columns.take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// `0-2,5` → 0, 1, 2, 5. What cannot be read is left out.
fn parse_list(text: &str) -> Vec<u32> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::{parse_list, sum_idle_ticks};

    #[test]
    fn waiting_for_a_disk_is_idling_too() {
        assert_eq!(sum_idle_ticks("cpu  9 9 9 40 2 9 9\ncpu0 1 1 1 1 1"), 42);
        assert_eq!(sum_idle_ticks(""), 0);
    }

    #[test]
    fn ranges_and_single_cpus_are_listed() {
        assert_eq!(parse_list("0-2,5"), [0, 1, 2, 5]);
        assert!(parse_list("").is_empty());
        assert_eq!(parse_list("x,3"), [3]);
    }
}
