//! /proc/PID, read with a bound on everything: a process can make its files as long as it likes.

use std::fs::File;
use std::io::{self, Read};

/// Of /proc/PID/maps: 64 Ki mappings of 256 bytes.
const MAPS_BYTES: u64 = 16 << 20;
/// Of what /proc hands out whole at the first read: one line, or a few.
const RECORD_BYTES: usize = 4 << 10;

/// Clock ticks a second in /proc/PID/stat: USER_HZ, 100 on every architecture that counts.
const TICK_NS: u64 = 1_000_000_000 / 100;

/// What /proc knows of a process.
#[derive(Clone, Debug, Default)]
pub struct ProcessInfo {
    /// Start in clock ticks since boot.
    pub start_ticks: u64,
    /// Its parent.
    pub parent: u32,
    /// Of its first thread.
    pub comm: String,
    /// Which program it is.
    pub program: ProgramInfo,
}

/// What only /proc knows of a program.
#[derive(Clone, Debug, Default)]
pub struct ProgramInfo {
    /// As it sees it.
    pub executable: String,
    /// Arguments, with spaces between them.
    pub command_line: String,
    /// Path in the cgroup hierarchy.
    pub cgroup: String,
}

impl ProgramInfo {
    /// Reads it all; what cannot be read is empty.
    pub fn read(pid: u32) -> Self {
        let executable = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        Self {
            executable: executable.to_string_lossy().into_owned(),
            command_line: command_line(&text(pid, "cmdline").unwrap_or_default()),
            cgroup: cgroup(pid).unwrap_or_default(),
        }
    }
}

/// Its path in the cgroup hierarchy; None when the process is gone.
pub fn cgroup(pid: u32) -> Option<String> {
    Some(cgroup_path(&text(pid, "cgroup")?))
}

/// Arguments, each with a null byte behind it, with spaces between them.
pub fn command_line(arguments: &str) -> String {
    arguments.trim_end_matches('\0').replace('\0', " ")
}

impl ProcessInfo {
    /// Reads it all; None when the process is gone.
    pub fn read(pid: u32) -> Option<Self> {
        let stat = text(pid, "stat")?;
        let (name_start, name_end) = (stat.find('(')? + 1, stat.rfind(')')?);
        let fields: Vec<&str> = stat.get(name_end + 1..)?.split_whitespace().collect();
        Some(Self {
            start_ticks: fields.get(19)?.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            comm: stat.get(name_start..name_end)?.into(),
            program: ProgramInfo::read(pid),
        })
    }

    /// Its start, CLOCK_BOOTTIME, as exactly as /proc says it.
    pub fn start_boottime_ns(&self) -> u64 {
        self.start_ticks * TICK_NS
    }

    /// Whether it is the process that began at this time, and not a later one with its number.
    pub fn began_at(&self, start_boottime_ns: u64) -> bool {
        self.start_ticks.abs_diff(start_boottime_ns / TICK_NS) <= 1
    }
}

/// /proc/PID/maps; None when the process is gone. A first thread that has ended has none: any other one's will do.
pub fn maps(pid: u32) -> Option<Vec<u8>> {
    let maps = all_bytes(pid, "maps", MAPS_BYTES).unwrap_or_default();
    if !maps.is_empty() {
        return Some(maps);
    }
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let names = threads.filter_map(|thread| thread.ok()?.file_name().into_string().ok());
    let each = names.filter_map(|tid| all_bytes(pid, &format!("task/{tid}/maps"), MAPS_BYTES));
    Some(each.into_iter().find(|maps| !maps.is_empty()).unwrap_or_default())
}

/// Ids of the processes there are.
pub fn pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Those of them that are on a CPU, or wait for one.
pub fn running(pids: &[u32]) -> Vec<u32> {
    let is_running = |pid: &&u32| {
        text(**pid, "stat").is_some_and(|stat| {
            let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
            state.starts_with('R')
        })
    };
    pids.iter().filter(is_running).copied().collect()
}

/// Whether there is such a process, running or not yet reaped.
pub fn exists(pid: u32) -> bool {
    // SAFETY: no signal is sent.
    let is_there = pid > 0 && unsafe { libc::kill(pid as i32, 0) } == 0;
    is_there || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// Whether it has ended, reaped or not: a process goes on when its first thread has ended and others have not.
pub fn has_ended(pid: u32) -> bool {
    let Some(stat) = text(pid, "stat") else {
        return true;
    };
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let has_threads = fields
        .get(17)
        .and_then(|threads| threads.parse().ok())
        .is_some_and(|threads: u64| threads > 1);
    match fields.first() {
        Some(&"Z" | &"X") => !has_threads,
        Some(_) => false,
        None => true,
    }
}

/// The id in the innermost namespace: the last of `NSpid: 4711 12 1`.
pub fn innermost_id(status: &str, key: &str) -> Option<u32> {
    status
        .lines()
        .find(|line| line.starts_with(key))?
        .split_whitespace()
        .last()?
        .parse()
        .ok()
}

/// The version-2 path (`0::/…`), else the first that is not the root.
fn cgroup_path(text: &str) -> String {
    let paths = || text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
    let chosen = unified
        .filter(|path| *path != "/")
        .or_else(|| paths().find(|path| *path != "/"));
    chosen.or(unified).unwrap_or_default().into()
}

/// One record of /proc, cut at `RECORD_BYTES`.
fn text(pid: u32, name: &str) -> Option<String> {
    let mut record = [0; RECORD_BYTES];
    let bytes = open(pid, name).and_then(|mut file| file.read(&mut record)).ok()?;
    Some(String::from_utf8_lossy(&record[..bytes]).into_owned())
}

fn all_bytes(pid: u32, name: &str, limit: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(RECORD_BYTES); // or the first read would be of 32
    open(pid, name)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .ok()?;
    Some(bytes)
}

fn open(pid: u32, name: &str) -> io::Result<File> {
    File::open(format!("/proc/{pid}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_is_read() {
        let info = ProcessInfo::read(std::process::id()).unwrap();
        assert!(info.program.executable.contains("stackhound"));
        assert!(info.start_ticks > 0 && !info.comm.is_empty());
        assert!(info.began_at(info.start_ticks * TICK_NS + 1));
        assert!(!info.began_at((info.start_ticks + 2) * TICK_NS));
    }

    #[test]
    fn the_innermost_namespace_id_is_the_last() {
        assert_eq!(innermost_id("Pid:\t5\nNSpid:\t4711\t12\t1\n", "NSpid:"), Some(1));
    }

    #[test]
    fn the_unified_cgroup_is_preferred_unless_it_is_the_root() {
        assert_eq!(cgroup_path("4:memory:/a\n0::/b\n"), "/b");
        assert_eq!(cgroup_path("4:memory:/a:c\n0::/\n"), "/a:c");
        assert_eq!(cgroup_path("0::/\n"), "/");
    }

    #[test]
    fn a_busy_process_is_running_and_a_waiting_one_is_not() {
        let sh = |script| {
            let mut command = std::process::Command::new("sh");
            command
                .args(["-c", script])
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        };
        let (mut busy, mut waiting) = (sh("while :; do :; done"), sh("exec sleep 600"));
        let pids = [u32::MAX, busy.id(), waiting.id()];
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let mut found = running(&pids);
        while found != [busy.id()] && std::time::Instant::now() < deadline {
            std::thread::yield_now();
            found = running(&pids);
        }
        for child in [&mut busy, &mut waiting] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found, [busy.id()]);
    }

    #[test]
    fn a_process_that_is_not_there_has_ended() {
        assert!(has_ended(u32::MAX) && !has_ended(std::process::id()));
    }
}
