//! The machine's BPF programs, whoever loaded them: what they are, where they are attached, what they take.

mod attachments;
pub mod code;
mod maps;
mod nothing;
mod object;
mod owners;
mod programs;
mod statistics;
pub mod trial;

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

pub use attachments::Attachment;
pub use maps::{Map, maps};
pub use nothing::NOTHING;
pub use object::{Contained, Object, Verified, contents};
pub use owners::Owner;
pub use programs::{Program, programs, programs_alone};
pub use statistics::{Count, Statistics};

/// The objects of a kind, by their numbers. One that is gone before it can be opened is passed over.
fn each(
    next: unsafe extern "C" fn(u32, *mut u32) -> i32,
    open: unsafe extern "C" fn(u32) -> i32,
) -> impl Iterator<Item = (u32, OwnedFd)> {
    let mut id = 0;
    std::iter::from_fn(move || {
        loop {
            // SAFETY: writes the next number to where it is told.
            if unsafe { next(id, &raw mut id) } != 0 {
                return None;
            }
            // SAFETY: takes a number.
            match unsafe { open(id) } {
                fd if fd >= 0 => {
                    // SAFETY: a new descriptor that nobody else owns.
                    return Some((id, unsafe { OwnedFd::from_raw_fd(fd) }));
                }
                _ if io::Error::last_os_error().raw_os_error() == Some(libc::ENOENT) => {}
                _ => return None,
            }
        }
    })
}

/// Memory that an object is charged for, in bytes; 0 where the kernel does not say.
fn memory_bytes(fd: &OwnedFd) -> u64 {
    use std::os::fd::AsRawFd;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap_or_default();
    let field = |line: &str| line.strip_prefix("memlock:")?.trim().parse().ok();
    info.lines().find_map(field).unwrap_or(0)
}
