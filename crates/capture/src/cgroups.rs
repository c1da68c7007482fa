//! What control groups (version 2) are called that the kernel tells by number.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// `FILEID_KERNFS` of include/linux/exportfs.h: a handle that is nothing but a cgroup's number, since Linux 5.5.
const FILEID_KERNFS: i32 = 0xfe;

/// Paths of control groups, each looked up once: one that is gone later keeps what it was called.
pub struct Cgroups {
    mount: Option<PathBuf>,
    paths: HashMap<u64, String>,
}

impl Default for Cgroups {
    fn default() -> Self {
        Self {
            mount: fs::read("/proc/self/mounts")
                .ok()
                .and_then(|mounts| find_mount(&mounts)),
            paths: HashMap::new(),
        }
    }
}

impl Cgroups {
    /// The path below the mount, as in `/proc/PID/cgroup`; empty where it is not known.
    pub fn path(&mut self, number: u64) -> &str {
        let mount = self.mount.as_deref().filter(|_| number > 0);
        self.paths.entry(number).or_insert_with(|| {
            let path = mount.and_then(|mount| read_path(mount, number).ok());
            path.unwrap_or_default()
        })
    }
}

/// Of the first file system of control groups. What is special in its path is not undone: it is where people put it.
fn find_mount(mounts: &[u8]) -> Option<PathBuf> {
    let fields = |line: &'_ [u8]| -> Option<PathBuf> {
        let mut words = line.split(|&byte| byte == b' ').skip(1);
        let path = words.next()?;
        (words.next()? == b"cgroup2").then(|| PathBuf::from(std::ffi::OsStr::from_bytes(path)))
    };
    mounts.split(|&byte| byte == b'\n').find_map(fields)
}

fn read_path(mount: &Path, number: u64) -> io::Result<String> {
    let directory = open_by_number(&File::open(mount)?, number)?;
    let path = fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))?;
    let below = path.strip_prefix(mount).map_err(io::Error::other)?;
    Ok(format!("/{}", below.to_string_lossy()))
}

fn open_by_number(mount: &File, number: u64) -> io::Result<OwnedFd> {
    /// `struct file_handle` with eight bytes.
    #[repr(C)]
    struct Handle {
        bytes: libc::c_uint,
        kind: libc::c_int,
        number: u64,
    }
    let mut handle = Handle {
        bytes: size_of::<u64>() as u32,
        kind: FILEID_KERNFS,
        number,
    };
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: the handle has as many bytes as it says, and lives through the call.
    let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new file descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_mount_is_that_of_version_2() {
        let mounts = b"cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(find_mount(mounts), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(find_mount(&mounts[..40]), None);
    }

    /// The number is that of the directory.
    #[test]
    fn a_cgroup_is_found_by_its_number() {
        let mut cgroups = Cgroups::default();
        let may_open = unsafe { libc::geteuid() } == 0; // SAFETY: always succeeds.
        let Some(mount) = cgroups.mount.clone().filter(|_| may_open) else {
            return;
        };
        let entries = fs::read_dir(&mount).unwrap().filter_map(Result::ok);
        let below = entries.map(|entry| entry.path()).find(|path| path.is_dir());
        let directory = below.unwrap_or_else(|| mount.clone());
        let name = directory.strip_prefix(&mount).unwrap().to_string_lossy();
        let number = fs::metadata(&directory).unwrap().ino();
        assert_eq!(cgroups.path(number), format!("/{name}"));
        assert_eq!(cgroups.path(u64::MAX), "");
        assert_eq!(cgroups.path(0), "");
    }
}
