//! Which CPUs there are.

use std::fs;
use std::io;

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
    use super::parse_list;

    #[test]
    fn ranges_and_single_cpus_are_listed() {
        assert_eq!(parse_list("0-2,5"), [0, 1, 2, 5]);
        assert!(parse_list("").is_empty());
        assert_eq!(parse_list("x,3"), [3]);
    }
}
