//! What memory lies at an address of a process: a file, the heap, a stack, or memory without a name.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;

use stackhound_core::address::{FileOffset, ProcessAddr};
use stackhound_core::maps::{Map, parse_maps};
use stackhound_core::profile::Profile;
use stackhound_core::rows::{ObjectId, ObjectKind};

use crate::abi;
use crate::files::FileStore;
use crate::mapped::page_bytes;
use crate::mappings::is_shared_anonymous;
use crate::procfs;

/// The kernel's own numbers of devices (include/linux/kdev_t.h).
const MINOR_BITS: u32 = 20;
const MINOR_MASK: u32 = (1 << MINOR_BITS) - 1;

/// A path takes at most that, with its zero (PATH_MAX).
const NAME_BYTES: usize = 4096;

/// `struct procmap_query` of include/uapi/linux/fs.h, since Linux 6.11.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_bytes: u64,
    file_offset: u64,
    inode: u64,
    device: [u32; 2],
    name_bytes: u32,
    build_id_bytes: u32,
    name: u64,
    build_id: u64,
}
const _: () = assert!(size_of::<Query>() == 104);

/// `_IOWR('f', 17, struct procmap_query)`
const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;

/// Looks at memory when a sample says that it was touched there.
#[derive(Default)]
pub struct Memory {
    /// Files that are no code, by device and inode.
    seen: HashMap<((u32, u32), u64), ObjectId>,
    /// Of the last look without the query.
    slow_look_ns: u64,
}

impl Memory {
    /// The object that an address of a process belongs to, and how far from its start: in a file, or in the mapping where
    /// there is none. None where the process is gone, or nothing is there any more.
    pub fn place(
        &mut self,
        pid: u32,
        address: ProcessAddr,
        now_ns: u64,
        files: &mut FileStore,
        profile: &mut Profile,
    ) -> Option<(ObjectId, u64)> {
        let map = query(pid, address).unwrap_or_else(|| self.look_slowly(pid, address, now_ns))?;
        let offset = address.0 - map.start.0;
        Some(match name_of(&map) {
            Some(name) => (profile.object(ObjectKind::Data, name, &[]), offset),
            None => (
                self.object_of_file(&map, files, profile),
                map.file_offset.0.wrapping_add(offset),
            ),
        })
    }

    /// The same as the kernel knows it of a fault in a file that was seen before, when nobody can be asked any more.
    pub fn place_in_file(
        &self,
        fault: &abi::Fault,
        files: &mut FileStore,
        profile: &mut Profile,
    ) -> Option<(ObjectId, u64)> {
        let (device, inode) = ((fault.device >> MINOR_BITS, fault.device & MINOR_MASK), fault.inode);
        let page_bytes = page_bytes() as u64;
        let object = match files.known(device, inode) {
            _ if fault.has_file == 0 => None,
            Some(file) => Some(files.object(file, profile)),
            None => self.seen.get(&(device, inode)).copied(),
        };
        object.map(|object| (object, fault.page * page_bytes))
    }

    /// A program or library that is known by its code, else the file by its name and inode.
    fn object_of_file(&mut self, map: &Map, files: &mut FileStore, profile: &mut Profile) -> ObjectId {
        if let Some(file) = files.known(map.device, map.inode) {
            return files.object(file, profile);
        }
        let object = data_object(map, profile);
        self.seen.insert((map.device, map.inode), object);
        object
    }

    /// Reads all mappings of the process, which takes some 100 µs: not more often than each 10 ms.
    fn look_slowly(&mut self, pid: u32, address: ProcessAddr, now_ns: u64) -> Option<Map> {
        const INTERVAL_NS: u64 = 10_000_000;
        if now_ns.saturating_sub(self.slow_look_ns) < INTERVAL_NS {
            return None;
        }
        self.slow_look_ns = now_ns;
        let maps = procfs::maps(pid)?;
        parse_maps(&maps).find(|map| map.start <= address && address < map.end)
    }
}

/// Asks for one mapping; None before Linux 6.11, which has no such question.
fn query(pid: u32, address: ProcessAddr) -> Option<Option<Map>> {
    let Ok(maps) = File::open(format!("/proc/{pid}/maps")) else {
        return Some(None);
    };
    let mut name = [0u8; NAME_BYTES];
    let mut query = Query {
        size: size_of::<Query>() as u64,
        address: address.0,
        name: name.as_mut_ptr() as u64,
        name_bytes: NAME_BYTES as u32,
        ..Query::default()
    };
    // SAFETY: the kernel reads and fills the struct, and writes at most `name_bytes` to `name`.
    if unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &mut query) } != 0 {
        let is_unknown = std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOTTY);
        return if is_unknown { None } else { Some(None) };
    }
    let path = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(Some(query.map(&String::from_utf8_lossy(path))))
}

impl Query {
    fn map(&self, path: &str) -> Map {
        const EXECUTABLE: u64 = 4;
        let name = path.strip_suffix(" (deleted)");
        Map {
            start: ProcessAddr(self.start),
            end: ProcessAddr(self.end),
            executable: self.vma_flags & EXECUTABLE != 0,
            file_offset: FileOffset(self.file_offset),
            device: (self.device[0], self.device[1]),
            inode: self.inode,
            path: name.unwrap_or(path).into(),
            deleted: name.is_some(),
        }
    }
}

/// What memory without a file is called; None where there is a file. The names that programs give theirs are left out.
fn name_of(map: &Map) -> Option<&'static str> {
    match &*map.path {
        "[heap]" => Some("[heap]"),
        "[stack]" => Some("[stack]"),
        path if is_shared_anonymous(path.as_bytes()) || path.starts_with("/memfd:") => Some("[shared memory]"),
        _ if map.inode == 0 => Some("[anonymous memory]"),
        _ => None,
    }
}

fn data_object(map: &Map, profile: &mut Profile) -> ObjectId {
    let identity: Vec<u8> = [u64::from(map.device.0), u64::from(map.device.1), map.inode]
        .iter()
        .flat_map(|number| number.to_le_bytes())
        .collect();
    profile.object_with_identity(ObjectKind::Data, &map.path, &[], &identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(address: u64) -> (String, u64) {
        let (mut files, mut profile) = (FileStore::default(), Profile::default());
        let place = Memory::default().place(
            std::process::id(),
            ProcessAddr(address),
            1 << 40,
            &mut files,
            &mut profile,
        );
        let tables = profile.tables();
        let (_, objects) = tables.iter().find(|(name, _)| *name == "objects").unwrap();
        let paths = objects.column_by_name("path").unwrap().as_any();
        let paths: &arrow_array::StringArray = paths.downcast_ref().unwrap();
        place.map_or(("nothing".into(), 0), |(object, offset)| {
            (paths.value(object.index()).into(), offset)
        })
    }

    #[test]
    fn a_file_is_told_from_memory_without_one() {
        let on_the_stack = 0u8;
        let (name, _) = place_of(std::ptr::from_ref(&on_the_stack) as u64);
        assert!(["[stack]", "[anonymous memory]"].contains(&&*name), "{name}"); // tests run on threads
        let (name, offset) = place_of(place_of as *const () as u64);
        assert!(name.contains("stackhound_capture") && offset > 0, "{name}");
        assert_eq!(place_of(8).0, "nothing");
    }

    #[test]
    fn both_ways_to_look_find_the_same() {
        let address = ProcessAddr(both_ways_to_look_find_the_same as *const () as u64);
        let slow = Memory::default().look_slowly(std::process::id(), address, 1 << 40);
        if let Some(fast) = query(std::process::id(), address) {
            assert_eq!(fast, slow);
        }
    }

    #[test]
    fn reading_all_mappings_is_bounded() {
        let mut memory = Memory::default();
        let address = ProcessAddr(reading_all_mappings_is_bounded as *const () as u64);
        assert!(memory.look_slowly(std::process::id(), address, 1 << 40).is_some());
        assert!(memory.look_slowly(std::process::id(), address, (1 << 40) + 1).is_none());
    }

    #[test]
    fn names_that_programs_give_to_memory_are_not_shown() {
        let map = |path: &str, inode| Map {
            path: path.into(),
            inode,
            ..Query::default().map("")
        };
        assert_eq!(name_of(&map("[anon:\x1b]0;x]", 0)), Some("[anonymous memory]"));
        assert_eq!(name_of(&map("/memfd:x", 7)), Some("[shared memory]"));
        assert_eq!(name_of(&map("/SYSV00000000", 7)), Some("[shared memory]"));
        assert_eq!(name_of(&map("/usr/lib/x", 7)), None);
    }
}
