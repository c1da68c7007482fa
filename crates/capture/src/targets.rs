//! The processes that were asked for: which of them still run.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::procfs;

/// Descriptors of the processes that run. Each becomes readable when the last thread of its process has ended.
#[derive(Default)]
pub struct Targets {
    running: Vec<OwnedFd>,
    any: bool,
}

impl Targets {
    /// All of them run now.
    pub fn new(pids: &[u32]) -> Result<Self> {
        let mut targets = Self::default();
        pids.iter().try_for_each(|pid| targets.add(*pid))?;
        Ok(targets)
    }

    /// One more, which runs now.
    pub fn add(&mut self, pid: u32) -> Result<()> {
        let no_process = || Error::new(ErrorKind::NoProcess, format!("there is no process {pid}"), "");
        if procfs::has_ended(pid) {
            return Err(no_process());
        }
        self.running.push(open(pid).map_err(|_| no_process())?);
        self.any = true;
        Ok(())
    }

    /// Whether there were some, and none runs any more.
    pub fn have_ended(&self) -> bool {
        self.any && self.running.is_empty()
    }

    /// Waits until one of them ends, or a descriptor is readable, for at most this long. Returns whether that was more
    /// than a hint.
    pub fn wait(&mut self, callers: &[RawFd], hints: impl Iterator<Item = RawFd>, timeout: Duration) -> bool {
        let own = self.running.iter().map(AsRawFd::as_raw_fd);
        let callers = callers.iter().copied();
        let calls = own.len() + callers.len();
        let ready = poll(own.chain(callers).chain(hints), timeout);
        let mut has_ended = ready.iter();
        self.running.retain(|_| !has_ended.next().unwrap_or(&false));
        ready[..calls].contains(&true)
    }
}

/// poll(2): which of the descriptors are ready, or will never be. When a signal cuts it short none is.
pub fn poll(fds: impl Iterator<Item = RawFd>, timeout: Duration) -> Vec<bool> {
    let wanted = |fd| libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds: Vec<libc::pollfd> = fds.map(wanted).collect();
    let timeout_ms = timeout.as_micros().div_ceil(1000).min(libc::c_int::MAX as u128) as libc::c_int;
    // SAFETY: an array of that length.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout_ms) };
    fds.iter().map(|fd| fd.revents != 0).collect()
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ends_is_noticed_at_once() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut targets = Targets::new(&[child.id()]).unwrap();
        assert!(!targets.wait(&[], std::iter::empty(), Duration::ZERO));
        assert!(!targets.have_ended());
        drop(child.stdin.take());
        assert!(targets.wait(&[], std::iter::empty(), Duration::from_secs(60)));
        assert!(targets.have_ended());
        child.wait().unwrap();
        assert!(Targets::new(&[child.id()]).is_err());
    }

    #[test]
    fn nothing_has_ended_where_nothing_was_asked_for() {
        assert!(!Targets::new(&[]).unwrap().have_ended());
    }
}
