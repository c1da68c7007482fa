//! Wakes the recording's thread when somebody asks it something.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use crate::targets::poll;

/// Both ends of an eventfd(2).
#[derive(Clone)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Nobody has called yet.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        Ok(Self(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Ends the present or the next wait.
    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: 8 bytes of our own. It fails only when it was called 2^64 times without an answer.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), size_of_val(&one)) };
    }

    /// Waits to be called, for at most this long.
    pub fn wait(&self, timeout: Duration) {
        poll([self.fd()].into_iter(), timeout);
    }

    /// Forgets the calls so far.
    pub fn clear(&self) {
        let mut calls = 0u64;
        // SAFETY: 8 bytes of our own. It fails when there were no calls, which is as well.
        unsafe { libc::read(self.fd(), (&raw mut calls).cast(), size_of_val(&calls)) };
    }

    /// Readable when it was called.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
