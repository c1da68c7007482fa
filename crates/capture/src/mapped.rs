//! Memory of a BPF array that this process shares with the programs.
//!
//! Or memory like it, where no program reads: replay.rs.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::ptr::NonNull;

/// A part of an array, mapped for as long as this lives.
pub struct Mapped {
    words: NonNull<u64>,
    len: usize,
}

// SAFETY: a mapping belongs to the process; whoever uses its words takes care of who else does.
unsafe impl Send for Mapped {}

impl Mapped {
    /// `bytes` of the array from `offset` on, which is the start of a page.
    pub fn new(map: &impl AsFd, offset: usize, bytes: usize) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_SHARED, map.as_fd().as_raw_fd(), offset)
    }

    /// Zeros that belong to no array.
    pub fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    fn map(bytes: usize, flags: libc::c_int, fd: RawFd, offset: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let offset = offset as libc::off_t;
        // SAFETY: a fresh mapping; the kernel chooses where, and refuses what is not in the array.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, offset) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            words: NonNull::new(address.cast()).expect("mmap gives no null"),
            len: bytes / 8,
        })
    }

    /// Its first word.
    pub fn words(&self) -> NonNull<u64> {
        self.words
    }

    /// Words in it.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: our own mapping of this very length, which nothing borrows any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.len * 8) };
    }
}

/// Of the kernel's pages.
pub fn page_bytes() -> usize {
    // SAFETY: asks for a constant.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
