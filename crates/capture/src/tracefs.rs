//! Tracepoints by name, also where nobody mounted tracefs: it is opened detached, which changes nothing on the machine.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;

/// The events directory of tracefs, and what keeps it reachable.
pub struct Tracefs {
    root: PathBuf,
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// The mounted one, otherwise a detached mount of our own (since Linux 5.2).
    pub fn open() -> io::Result<Self> {
        for root in MOUNT_POINTS.map(PathBuf::from) {
            if root.join("events").is_dir() {
                return Ok(Self { root, _mount: None });
            }
        }
        let mount = detached_mount("tracefs")?;
        Ok(Self {
            root: format!("/proc/self/fd/{}", mount.as_raw_fd()).into(),
            _mount: Some(mount),
        })
    }

    /// The number of `category:name`, for `perf_event_attr.config`.
    pub fn id(&self, tracepoint: &str) -> io::Result<u64> {
        let (category, name) = tracepoint.split_once(':').ok_or(io::ErrorKind::InvalidInput)?;
        if [category, name]
            .iter()
            .any(|part| part.is_empty() || part.contains(['/', '.']))
        {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let text = fs::read_to_string(self.root.join("events").join(category).join(name).join("id"))?;
        text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// All of them as `category:name`, sorted.
    pub fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for category in directories(&self.root.join("events"))? {
            for event in directories(&category)?.iter().filter(|event| event.join("id").exists()) {
                names.push(format!("{}:{}", base_name(&category), base_name(event)));
            }
        }
        names.sort();
        Ok(names)
    }
}

fn directories(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path)?.filter_map(|entry| Some(entry.ok()?.path()));
    Ok(entries.filter(|path| path.is_dir()).collect())
}

fn base_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// fsopen(2), fsconfig(2), fsmount(2): a file system that is attached nowhere and ends with its descriptor.
fn detached_mount(kind: &str) -> io::Result<OwnedFd> {
    let kind = CString::new(kind)?;
    // SAFETY: plain system calls on strings and descriptors that outlive them.
    unsafe {
        let context = descriptor(libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC))?;
        let null = std::ptr::null::<u8>();
        if libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            null,
            null,
            0,
        ) != 0
        {
            return Err(io::Error::last_os_error());
        }
        descriptor(libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            FSMOUNT_CLOEXEC,
            0,
        ))
    }
}

/// # Safety
/// `result` is what a system call that makes a descriptor returned.
unsafe fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { OwnedFd::from_raw_fd(result as i32) })
}

/// The machine's tracepoints as `category:name`; empty with the reason where they cannot be read.
pub fn list_events() -> (Vec<String>, Option<String>) {
    match Tracefs::open().and_then(|tracefs| tracefs.list()) {
        Ok(names) => (names, None),
        Err(error) => (Vec::new(), Some(format!("tracefs cannot be read: {error}"))),
    }
}
