//! The files behind mappings, held from first sight: deleted, replaced, memfd and other-namespace files stay readable.
//!
//! A file is held by an O_PATH descriptor, which never blocks and reads nothing. It is opened for reading when a
//! sample is seen in it, and not at all on FUSE, whose daemon may never answer.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use stackhound_core::address::{FileOffset, ObjectAddr};
use stackhound_core::elf::Elf;
use stackhound_core::profile::Profile;
use stackhound_core::rows::{ObjectId, ObjectKind};
use stackhound_core::symbolize::Source;

use crate::abi;
use crate::sideband::MappedFile;

/// ELF header, program headers and build-id lie within this in everything that linkers make.
const PREFIX_BYTES: usize = 64 << 10;

/// A file in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u32);

impl FileId {
    /// Its place in the order in which files were first seen.
    pub fn index(self) -> u32 {
        self.0
    }

    /// The other way round.
    pub fn from_index(index: u32) -> Self {
        Self(index)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: (u32, u32),
    inode: u64,
    /// Tells files apart that could not be held, so that an inode can be another file's later.
    path: Option<Vec<u8>>,
}

/// A file, as the kernel knows it. Of the vDSO, which is none, all is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inode {
    /// Major and minor number.
    pub device: (u32, u32),
    /// On that device.
    pub number: u64,
}

impl From<Inode> for abi::InodeKey {
    fn from(inode: Inode) -> Self {
        Self {
            inode: inode.number,
            device: inode.device.0 << 20 | inode.device.1,
            reserved: 0,
        }
    }
}

struct HeldFile {
    /// None where it is not held, so that it can be another file's later.
    inode: Option<Inode>,
    handle: Option<OwnedFd>,
    path: String,
    kind: ObjectKind,
    reason: &'static str,
    loaded: Option<Loaded>,
}

struct Loaded {
    object: ObjectId,
    elf: Option<Elf>,
}

impl HeldFile {
    fn load(&mut self, profile: &mut Profile) -> &Loaded {
        self.loaded
            .get_or_insert_with(|| load(self.handle.as_ref(), self.kind, &self.path, profile))
    }
}

/// Every file that was seen mapped, once.
#[derive(Default)]
pub struct FileStore {
    files: Vec<HeldFile>,
    by_key: HashMap<FileKey, FileId>,
    by_object: HashMap<ObjectId, FileId>,
    fuse_devices: HashMap<(u32, u32), bool>,
    vdso: Option<FileId>,
}

impl FileStore {
    /// Holds the file behind a process's mapping.
    pub fn hold(&mut self, pid: u32, map: &MappedFile) -> FileId {
        if map.path == b"[vdso]" {
            return self.vdso();
        }
        let key = FileKey {
            device: map.device,
            inode: map.inode,
            path: None,
        };
        if let Some(file) = self.by_key.get(&key) {
            return *file;
        }
        let unheld = FileKey {
            path: Some(map.path.clone()),
            ..key.clone()
        };
        if let Some(file) = self.by_key.get(&unheld) {
            return *file;
        }
        let path = String::from_utf8_lossy(&map.path).into_owned();
        let path = path.strip_suffix(" (deleted)").unwrap_or(&path).to_string();
        let (handle, reason) = if self.is_on_fuse(pid, map.device) {
            (None, "on a FUSE file system, which could hang the reader")
        } else {
            (open_mapped(pid, map), "file gone before it could be opened")
        };
        let inode = handle.is_some().then_some(Inode {
            device: map.device,
            number: map.inode,
        });
        let key = if handle.is_some() { key } else { unheld };
        self.add(
            key,
            HeldFile {
                inode,
                handle,
                path,
                kind: ObjectKind::Elf,
                reason,
                loaded: None,
            },
        )
    }

    /// A file that is held already.
    pub fn known(&self, device: (u32, u32), inode: u64) -> Option<FileId> {
        let path = None;
        self.by_key.get(&FileKey { device, inode, path }).copied()
    }

    fn add(&mut self, key: FileKey, file: HeldFile) -> FileId {
        let id = FileId(self.files.len() as u32);
        self.files.push(file);
        self.by_key.insert(key, id);
        id
    }

    /// The vDSO is the same in every process of the machine: ours is copied.
    fn vdso(&mut self) -> FileId {
        if let Some(file) = self.vdso {
            return file;
        }
        let handle = own_vdso().and_then(|mut bytes| memory_file("vdso", &mut bytes).ok());
        let key = FileKey {
            device: (0, 0),
            inode: 0,
            path: Some(b"[vdso]".to_vec()),
        };
        let reason = "the vDSO cannot be read";
        let file = HeldFile {
            inode: Some(Inode::default()),
            handle,
            path: "[vdso]".into(),
            kind: ObjectKind::Vdso,
            reason,
            loaded: None,
        };
        let id = self.add(key, file);
        self.vdso = Some(id);
        id
    }

    fn is_on_fuse(&mut self, pid: u32, device: (u32, u32)) -> bool {
        // Real block devices have a major number; FUSE, like overlay and tmpfs, has 0.
        let look = || device.0 == 0 && is_fuse(pid, device);
        *self.fuse_devices.entry(device).or_insert_with(look)
    }

    /// The object a file is, and an offset in it as the object's own address.
    pub fn resolve(&mut self, file: FileId, offset: FileOffset, profile: &mut Profile) -> (ObjectId, ObjectAddr) {
        let loaded = self.files[file.0 as usize].load(profile);
        self.by_object.insert(loaded.object, file);
        let address = loaded.elf.as_ref().and_then(|elf| elf.object_addr(offset));
        (loaded.object, address.unwrap_or(ObjectAddr(offset.0)))
    }

    /// Whether a file is memory with code that a process made, and no program or library.
    pub fn is_made_code(&mut self, file: FileId, profile: &mut Profile) -> bool {
        let held = &mut self.files[file.0 as usize];
        is_memory(&held.path) && held.load(profile).elf.is_none()
    }

    /// The object of a file, for the table of mappings.
    pub fn object(&mut self, file: FileId, profile: &mut Profile) -> ObjectId {
        self.resolve(file, FileOffset(0), profile).0
    }

    /// Another handle on a file; None when it is not held.
    pub fn duplicate(&self, file: FileId) -> Option<OwnedFd> {
        self.files.get(file.0 as usize)?.handle.as_ref()?.try_clone().ok()
    }

    /// What the kernel knows it by; None when it is not held.
    pub fn inode(&self, file: FileId) -> Option<Inode> {
        self.files.get(file.0 as usize)?.inode
    }

    /// A file's path as the first process that mapped it saw it.
    pub fn path(&self, file: FileId) -> &str {
        &self.files[file.0 as usize].path
    }

    /// Where an object's symbols are to be had; None for objects that are no files.
    pub fn source(&mut self, object: ObjectId) -> Option<Source> {
        let held = &self.files[self.by_object.get(&object)?.0 as usize];
        let Some(handle) = &held.handle else {
            return Some(Source::Missing(held.reason.into()));
        };
        let by_handle = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
        let Ok(metadata) = fs::metadata(&by_handle) else {
            return Some(Source::Missing("file gone".into()));
        };
        if held.kind == ObjectKind::Vdso {
            return Some(Source::Elf {
                path: by_handle,
                origin: None,
            });
        }
        // By its name where that still leads to it: separate debug files are then found beside it.
        let real = fs::read_link(&by_handle).unwrap_or_default();
        let same = fs::metadata(&real).is_ok_and(|at| (at.dev(), at.ino()) == (metadata.dev(), metadata.ino()));
        let origin = real.parent().map(Path::to_path_buf);
        Some(if same {
            Source::Elf {
                path: real,
                origin: None,
            }
        } else {
            Source::Elf {
                path: by_handle,
                origin,
            }
        })
    }
}

fn load(handle: Option<&OwnedFd>, kind: ObjectKind, path: &str, profile: &mut Profile) -> Loaded {
    let Some(file) = handle.and_then(|handle| reopen(handle).ok()) else {
        return Loaded {
            object: profile.object(kind, path, &[]),
            elf: None,
        };
    };
    let mut prefix = vec![0; PREFIX_BYTES];
    let read = file.read_at(&mut prefix, 0).unwrap_or(0);
    let elf = Elf::parse(&prefix[..read]).ok(); // what is no ELF file has names all the same, or none with a reason
    let kind = if elf.is_none() && is_memory(path) {
        ObjectKind::Jit
    } else {
        kind
    };
    let build_id = elf.as_ref().map(|elf| elf.build_id.clone()).unwrap_or_default();
    let identity = file.metadata().map(|metadata| identity(&metadata)).unwrap_or_default();
    Loaded {
        object: profile.object_with_identity(kind, path, &build_id, &identity),
        elf,
    }
}

/// Whether the file lies in memory alone (mm/memfd.c, shm_open(3)), as of runtimes that map their code twice: once to
/// write it, once to run it.
fn is_memory(path: &str) -> bool {
    path.starts_with("/memfd:") || path.starts_with("/dev/shm/")
}

/// What tells a file without a build-id from another of its path: size and time of the last change.
fn identity(metadata: &fs::Metadata) -> Vec<u8> {
    [metadata.size() as i64, metadata.mtime(), metadata.mtime_nsec()]
        .iter()
        .flat_map(|n| n.to_le_bytes())
        .collect()
}

/// Opens a held file for reading.
pub fn reopen(handle: &OwnedFd) -> io::Result<File> {
    open_for_reading(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

fn open_for_reading(path: impl AsRef<Path>) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok(file)
}

/// Through the mapping itself where that is allowed, otherwise by name. Each is checked: by now the pid may be another
/// process, and the name another file.
fn open_mapped(pid: u32, map: &MappedFile) -> Option<OwnedFd> {
    let mapping = format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.end).into_bytes();
    let in_its_root = [format!("/proc/{pid}/root").as_bytes(), &map.path].concat();
    [mapping, in_its_root, map.path.clone()].iter().find_map(|path| {
        let handle = open_path(path).ok()?;
        is_file_of(&handle, map).then_some(handle)
    })
}

/// The same device and inode; on overlayfs, whose files have two, the same name must do.
fn is_file_of(handle: &OwnedFd, map: &MappedFile) -> bool {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let Ok(metadata) = fs::metadata(&link) else {
        return false;
    };
    let is_same = metadata.ino() == map.inode && device(metadata.dev()) == map.device;
    let has_no_device = map.device.0 == 0 || device(metadata.dev()).0 == 0;
    let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    let is_named_so = || fs::read_link(&link).is_ok_and(|real| name(real.as_os_str().as_bytes()) == name(&map.path));
    metadata.is_file() && (is_same || has_no_device && is_named_so())
}

fn device(number: u64) -> (u32, u32) {
    (libc::major(number), libc::minor(number))
}

fn open_path(path: &[u8]) -> io::Result<OwnedFd> {
    let path = CString::new(path)?;
    // SAFETY: a C string that outlives the call, and a descriptor that nobody else owns.
    unsafe {
        match libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// An anonymous file with these contents.
fn memory_file(name: &str, contents: &mut dyn Read) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    // SAFETY: a C string that outlives the call, and a descriptor that nobody else owns.
    let mut file = match unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) } {
        fd if fd >= 0 => unsafe { File::from_raw_fd(fd) },
        _ => return Err(io::Error::last_os_error()),
    };
    io::copy(contents, &mut file)?;
    file.flush()?;
    Ok(file.into())
}

fn own_vdso() -> Option<&'static [u8]> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let range = maps
        .lines()
        .find(|line| line.ends_with("[vdso]"))?
        .split_whitespace()
        .next()?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let bytes = usize::from_str_radix(end, 16).ok()?.checked_sub(start)?;
    // SAFETY: the kernel maps it readable there for as long as the process lives.
    Some(unsafe { std::slice::from_raw_parts(start as *const u8, bytes) })
}

/// Whether mountinfo has this device as FUSE, in the process's mount namespace or in ours.
fn is_fuse(pid: u32, device: (u32, u32)) -> bool {
    let number = format!("{}:{}", device.0, device.1);
    [format!("/proc/{pid}/mountinfo"), "/proc/self/mountinfo".into()]
        .iter()
        .any(|path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.lines().any(|line| is_fuse_mount(line, &number))
        })
}

/// `36 35 98:0 /root /mount options - type source options`
fn is_fuse_mount(line: &str, number: &str) -> bool {
    let kind = line.split_once(" - ").map_or("", |(_, rest)| rest);
    line.split(' ').nth(2) == Some(number) && kind.starts_with("fuse")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuse_mount_is_recognized_by_its_device() {
        let line = "36 35 0:52 / /mnt rw,relatime shared:1 - fuse.sshfs host: rw";
        assert!(is_fuse_mount(line, "0:52"));
        assert!(!is_fuse_mount(line, "0:5"));
        assert!(!is_fuse_mount("36 35 0:52 / /mnt rw - tmpfs tmpfs rw", "0:52"));
    }

    #[test]
    fn a_deleted_file_stays_readable_through_its_mapping() {
        let path = std::env::temp_dir().join(format!("stackhound-held-{}", std::process::id()));
        fs::write(&path, b"contents").unwrap();
        let handle = open_path(path.as_os_str().as_bytes()).unwrap();
        fs::remove_file(&path).unwrap();
        let mut text = String::new();
        reopen(&handle).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "contents");
    }

    #[test]
    fn the_vdso_is_an_elf_file() {
        assert!(own_vdso().unwrap().starts_with(b"\x7fELF"));
    }
}
