//! A failed request: what went wrong, and what to do about it.

use std::io;

/// What kind of request failed; the Python side has an exception for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The options make no sense.
    Usage,
    /// Recording broke off, or could not begin.
    Recording,
    /// A capability or a sysctl is in the way.
    Permission,
    /// This kernel lacks what is needed.
    Kernel,
    /// This machine has no such event.
    Event,
    /// A process to record is not there.
    NoProcess,
}

/// A failed request, in one line, and its remedy.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What kind of request failed.
    pub kind: ErrorKind,
    /// What went wrong, without a full stop.
    pub message: String,
    /// What to do about it; may be empty.
    pub remedy: String,
}

/// Of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with its remedy.
    pub fn new(kind: ErrorKind, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// A failed system call: EPERM and EACCES name the capabilities, the rest is a plain recording error.
    pub fn system(what: &str, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::new(
                ErrorKind::Permission,
                format!("{what}: permission denied"),
                "run it with sudo, or give it CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH \
                 ('stackhound doctor' names what is missing)",
            ),
            Some(libc::EMFILE | libc::ENFILE) => Self::new(
                ErrorKind::Recording,
                format!("{what}: too many open files"),
                "raise the limit with `ulimit -n`",
            ),
            Some(libc::ENOMEM) => Self::new(
                ErrorKind::Recording,
                format!("{what}: out of memory"),
                "ask for a smaller ring",
            ),
            _ => Self::new(ErrorKind::Recording, format!("{what}: {error}"), ""),
        }
    }
}
