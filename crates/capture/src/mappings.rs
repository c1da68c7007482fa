//! Ranges of code in one process: ordered, and apart from each other.

use crate::files::FileId;

/// Code at an address range of a process.
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// Of the first byte, in the file.
    pub file_offset: u64,
    /// What is there.
    pub target: Target,
    /// When it was first seen, CLOCK_BOOTTIME.
    pub first_ns: u64,
}

/// What a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file's code.
    File(FileId),
    /// Memory without a file: made code.
    Anonymous,
    /// The page of old system calls.
    Vsyscall,
}

/// What is at an address.
pub fn find(mappings: &[Mapping], address: u64) -> Option<Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    let mapping = mappings.get(after.checked_sub(1)?)?;
    (address < mapping.end).then_some(*mapping)
}

/// Removes a range from mappings that are ordered and do not overlap.
pub fn cut_out(mappings: &mut Vec<Mapping>, start: u64, end: u64) {
    let first = mappings.partition_point(|mapping| mapping.end <= start);
    let behind = mappings.partition_point(|mapping| mapping.start < end);
    if first >= behind {
        return;
    }
    let (left, right) = (mappings[first], mappings[behind - 1]);
    let before = (left.start < start).then_some(Mapping { end: start, ..left });
    let after = (end < right.end).then(|| Mapping {
        start: end,
        file_offset: right.file_offset.wrapping_add(end - right.start),
        ..right
    });
    mappings.splice(first..behind, before.into_iter().chain(after));
}

/// Memory that processes share has the name of a file that is no file (mm/shmem.c, ipc/shm.c, fs/hugetlbfs/inode.c).
pub fn is_shared_anonymous(path: &[u8]) -> bool {
    [&b"/dev/zero"[..], b"/SYSV", b"/anon_hugepage"]
        .iter()
        .any(|name| path.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64) -> Mapping {
        Mapping {
            start,
            end,
            file_offset: start,
            target: Target::Anonymous,
            first_ns: 0,
        }
    }

    #[test]
    fn a_new_mapping_cuts_a_hole_into_the_old_one() {
        let mut mappings = vec![mapping(0, 10), mapping(20, 50)];
        cut_out(&mut mappings, 30, 40);
        let ranges: Vec<_> = mappings.iter().map(|m| (m.start, m.end, m.file_offset)).collect();
        assert_eq!(ranges, [(0, 10, 0), (20, 30, 20), (40, 50, 40)]);
        cut_out(&mut mappings, 0, 100);
        assert!(mappings.is_empty());
    }
}
