//! Tables of the code that processes make at run time: what their jitdumps say of it, and the trampolines of CPython.
//!
//! Such code lies in memory without a file. The walker finds its table as it finds a file's: regions of that memory have
//! places in the table of files, behind those of the files, and addresses in them are counted from their start.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use memmap2::Mmap;
use stackhound_core::jitdump::JitDump;
use stackhound_core::unwind::{MadeCode, TRAMPOLINE_HEAD_BYTES, Table, Unwinding, build_made, trampolines};

use super::builder::Builder;
use crate::abi;
use crate::files::{FileId, FileStore, reopen};
use crate::made_code::is_jitdump;
use crate::mappings::{Mapping, Target};

/// Places in the table of files for regions; those before them are for files.
const REGIONS: usize = 1024;
pub const FIRST_REGION: u32 = (abi::UNWIND_FILES - REGIONS) as u32;

/// Regions of one process.
const MAX_REGIONS: usize = 4;
/// What lies between two pieces of one region: each 4 KiB take 8 bytes of the walker's memory.
const MAX_GAP_BYTES: u64 = 16 << 20;
/// A table spans less than 500 MB.
const MAX_SPAN_BYTES: u64 = 448 << 20;
/// Pieces of code of one process, the newest ones.
const MAX_PIECES: usize = 1 << 16;
/// Of one process's memory, to look for trampolines in at once.
const MAX_SCAN_BYTES: u64 = 16 << 20;
/// After the regions of a process were made they stay as they are for so many times as long: a process that makes code
/// all the time takes 5% of the collector's.
const REST: u32 = 20;
/// What takes no longer than this needs no rest.
const FREE: Duration = Duration::from_millis(1);
/// Mappings to remember of one process.
const MAX_SCANS: usize = 4096;
const PAGE_BYTES: u64 = 4096;
/// As ELF numbers them: x86-64, arm64.
const OWN_MACHINE: u32 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };

/// Some memory of a process that has a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where addresses are counted from.
    pub base: u64,
    end: u64,
    /// Place in the table of files.
    pub file: u32,
}

/// Of all processes.
pub struct MadeTables {
    processes: HashMap<u32, Process>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Process {
    /// By start, end, and the time when it was mapped: the trampolines in it.
    scanned: HashMap<(u64, u64, u64), Vec<Range<u64>>>,
    dumps: HashMap<FileId, Dump>,
    regions: Vec<Region>,
    /// How often trampolines came or went.
    changes: usize,
    /// The revision that the regions were made of.
    made_of: (usize, usize),
    /// Its mappings are not looked at before then.
    rests_until: Option<Instant>,
    /// They have changed since they were looked at.
    is_behind: bool,
}

#[derive(Default)]
struct Dump {
    contents: JitDump,
    bytes: Option<Mmap>,
}

impl Default for MadeTables {
    fn default() -> Self {
        Self {
            processes: HashMap::new(),
            free: (FIRST_REGION..abi::UNWIND_FILES as u32).collect(),
        }
    }
}

impl MadeTables {
    /// The regions of a process that has these mappings now; and those that are not to be used any more, once it has
    /// been published.
    pub fn update(
        &mut self,
        pid: u32,
        mappings: &[Mapping],
        files: &FileStore,
        builder: &Builder,
    ) -> (&[Region], Vec<Region>) {
        if !self.processes.contains_key(&pid) && !makes_code(mappings, files) {
            return (&[], Vec::new());
        }
        let process = self.processes.entry(pid).or_default();
        process.is_behind = process.rests();
        if process.is_behind {
            return (&process.regions, Vec::new());
        }
        let begun = Instant::now();
        process.scan(pid, mappings);
        process.read_dumps(mappings, files);
        let before = process.make_regions(&mut self.free, builder);
        process.rests_until = Some(Instant::now() + REST * begun.elapsed().saturating_sub(FREE));
        (&process.regions, before)
    }

    /// Reads on in all jitdumps; the processes whose regions are not what they should be now.
    pub fn read_on(&mut self, files: &FileStore) -> Vec<u32> {
        let awake = self.processes.iter_mut().filter(|(_, process)| !process.rests());
        let outdated = awake.filter_map(|(pid, process)| {
            process.read_known_dumps(files);
            (process.is_behind || process.revision() != process.made_of).then_some(*pid)
        });
        outdated.collect()
    }

    /// Takes regions out of use.
    pub fn give_back(&mut self, regions: Vec<Region>, builder: &Builder) {
        for region in regions {
            builder.unload_made(region.file);
            self.free.push(region.file);
        }
    }

    /// A process has ended, or has become another program.
    pub fn remove(&mut self, pid: u32, builder: &Builder) {
        let process = self.processes.remove(&pid);
        self.give_back(process.map(|process| process.regions).unwrap_or_default(), builder);
    }
}

/// Whether there is anything to look at.
fn makes_code(mappings: &[Mapping], files: &FileStore) -> bool {
    mappings.iter().any(|mapping| match mapping.target {
        Target::Anonymous => true,
        Target::File(file) => is_jitdump(files.path(file).as_bytes()),
        Target::Vsyscall => false,
    })
}

/// The region that a mapping lies in.
pub fn region_of<'r>(mapping: &Mapping, regions: &'r [Region]) -> Option<&'r Region> {
    let is_over = |region: &&Region| region.base < mapping.end && mapping.start < region.end;
    (mapping.target == Target::Anonymous).then(|| regions.iter().find(is_over))?
}

impl Process {
    fn rests(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    /// Makes the regions anew if what they are made of has changed; returns those that were there before.
    fn make_regions(&mut self, free: &mut Vec<u32>, builder: &Builder) -> Vec<Region> {
        let revision = self.revision();
        if revision == self.made_of {
            return Vec::new();
        }
        self.made_of = revision;
        let regions = load(&self.pieces(), free, builder);
        std::mem::replace(&mut self.regions, regions)
    }

    /// Looks for trampolines in memory that was not looked at yet, and forgets what is not mapped any more.
    fn scan(&mut self, pid: u32, mappings: &[Mapping]) {
        let anonymous = mappings.iter().filter(|mapping| mapping.target == Target::Anonymous);
        let keys: HashSet<_> = anonymous
            .map(|mapping| (mapping.start, mapping.end, mapping.first_ns))
            .take(MAX_SCANS)
            .collect();
        let gone = self.scanned.extract_if(|key, _| !keys.contains(key));
        self.changes += gone.filter(|(_, found)| !found.is_empty()).count();
        let fresh: Vec<_> = keys.into_iter().filter(|key| !self.scanned.contains_key(key)).collect();
        let memory = (!fresh.is_empty())
            .then(|| File::open(format!("/proc/{pid}/mem")).ok())
            .flatten();
        let mut left_bytes = MAX_SCAN_BYTES;
        for key in fresh {
            let found = memory.as_ref().map_or_else(Vec::new, |memory| {
                find_trampolines(memory, key.0..key.1, &mut left_bytes)
            });
            self.changes += usize::from(!found.is_empty());
            self.scanned.insert(key, found);
        }
    }

    fn read_dumps(&mut self, mappings: &[Mapping], files: &FileStore) {
        for mapping in mappings {
            if let Target::File(file) = mapping.target
                && is_jitdump(files.path(file).as_bytes())
            {
                self.dumps.entry(file).or_default();
            }
        }
        self.read_known_dumps(files);
    }

    fn read_known_dumps(&mut self, files: &FileStore) {
        for (file, dump) in &mut self.dumps {
            dump.read(*file, files);
        }
    }

    /// Another one whenever the pieces are other ones.
    fn revision(&self) -> (usize, usize) {
        let codes = self.dumps.values().map(|dump| dump.contents.described_codes());
        (self.changes, codes.sum())
    }

    fn pieces(&self) -> Vec<MadeCode<'_>> {
        let trampolines = self.scanned.values().flatten().map(|addresses| MadeCode {
            addresses: addresses.clone(),
            unwinding: Unwinding::Trampoline,
        });
        let described = self.dumps.values().flat_map(Dump::pieces);
        apart(trampolines.chain(described).take(MAX_PIECES))
    }
}

/// Pieces in increasing order: of those that overlap, the one that came first here.
fn apart<'d>(pieces: impl Iterator<Item = MadeCode<'d>>) -> Vec<MadeCode<'d>> {
    let mut kept: BTreeMap<u64, MadeCode<'d>> = BTreeMap::new();
    for piece in pieces {
        let before = kept.range(..piece.addresses.end).next_back();
        if before.is_none_or(|(_, before)| before.addresses.end <= piece.addresses.start) {
            kept.insert(piece.addresses.start, piece);
        }
    }
    kept.into_values().collect()
}

impl Dump {
    fn read(&mut self, file: FileId, files: &FileStore) {
        let Some(file) = files.duplicate(file).and_then(|handle| reopen(&handle).ok()) else {
            return;
        };
        let before = self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if file.metadata().is_ok_and(|metadata| metadata.len() == before) {
            return;
        }
        // SAFETY: read under the guard of sigbus.rs, and any bytes may come at any time.
        self.bytes = unsafe { Mmap::map(&file) }.ok();
        if self.contents.read(self.bytes.as_deref().unwrap_or_default()).is_err() {
            self.contents = JitDump::default();
        }
    }

    /// The newest first.
    fn pieces(&self) -> impl Iterator<Item = MadeCode<'_>> {
        let bytes = self.bytes.as_deref().unwrap_or_default();
        let is_ours = self.contents.machine() == OWN_MACHINE;
        let codes = self.contents.codes().iter().rev().filter(move |_| is_ours);
        codes.filter_map(move |code| {
            let (eh_frame, distance) = self.contents.eh_frame(bytes, code)?;
            Some(MadeCode {
                addresses: code.start..code.end(),
                unwinding: Unwinding::EhFrame(eh_frame, code.start.checked_add(distance)?),
            })
        })
    }
}

/// `left_bytes`: how much may be read, and is left after that.
fn find_trampolines(memory: &File, addresses: Range<u64>, left_bytes: &mut u64) -> Vec<Range<u64>> {
    let read = |bytes: usize| {
        let mut code = vec![0; bytes];
        let read = memory.read_at(&mut code, addresses.start).unwrap_or(0);
        code.truncate(read);
        code
    };
    if trampolines(&read(TRAMPOLINE_HEAD_BYTES)).is_empty() {
        return Vec::new();
    }
    let bytes = (addresses.end - addresses.start).min(*left_bytes);
    *left_bytes -= bytes;
    let code = read(bytes as usize);
    let found = trampolines(&code).into_iter();
    found
        .map(|range| addresses.start + range.start as u64..addresses.start + range.end as u64)
        .collect()
}

/// Regions for these pieces, with their tables in place.
fn load(pieces: &[MadeCode], free: &mut Vec<u32>, builder: &Builder) -> Vec<Region> {
    let mut regions = Vec::new();
    for pieces in spans(pieces).take(MAX_REGIONS) {
        let Some(file) = free.pop() else { break };
        let base = pieces[0].addresses.start / PAGE_BYTES * PAGE_BYTES;
        let end = pieces[pieces.len() - 1].addresses.end;
        let table = table_from(base, pieces);
        if table.is_some_and(|table| builder.load_made(file, &table, end - base)) {
            regions.push(Region { base, end, file });
        } else {
            free.push(file);
        }
    }
    regions
}

/// Pieces that are near each other.
fn spans<'p, 'd>(mut pieces: &'p [MadeCode<'d>]) -> impl Iterator<Item = &'p [MadeCode<'d>]> {
    std::iter::from_fn(move || {
        let first = pieces.first()?.addresses.start;
        let is_far = |pair: &[MadeCode]| {
            pair[1].addresses.start - pair[0].addresses.end > MAX_GAP_BYTES
                || pair[1].addresses.end - first > MAX_SPAN_BYTES
        };
        let end = pieces.windows(2).position(is_far).map_or(pieces.len(), |last| last + 1);
        let (span, rest) = pieces.split_at(end);
        pieces = rest;
        Some(span)
    })
}

fn table_from(base: u64, pieces: &[MadeCode]) -> Option<Table> {
    let relative = pieces.iter().map(|piece| MadeCode {
        addresses: piece.addresses.start - base..piece.addresses.end - base,
        unwinding: match piece.unwinding {
            Unwinding::EhFrame(data, address) => Unwinding::EhFrame(data, address - base),
            Unwinding::Trampoline => Unwinding::Trampoline,
        },
    });
    build_made(&relative.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(addresses: Range<u64>) -> MadeCode<'static> {
        MadeCode {
            addresses,
            unwinding: Unwinding::Trampoline,
        }
    }

    #[test]
    fn pieces_far_from_each_other_have_regions_of_their_own() {
        let far = MAX_GAP_BYTES + 100;
        let pieces = [
            piece(10..30),
            piece(40..60),
            piece(far..far + 20),
            piece(far + MAX_GAP_BYTES..far + MAX_GAP_BYTES + 20),
        ];
        let lengths: Vec<usize> = spans(&pieces).map(<[_]>::len).collect();
        assert_eq!(lengths, [2, 2]);
    }

    #[test]
    fn a_mapping_belongs_to_the_region_that_it_overlaps() {
        let regions = [(0x1000, 0x3000, 7), (0x9000, 0xa000, 8)].map(|(base, end, file)| Region { base, end, file });
        let mapping = |start, end, target| Mapping {
            start,
            end,
            file_offset: 0,
            target,
            first_ns: 0,
        };
        let file = |mapping| region_of(&mapping, &regions).map(|region| region.file);
        assert_eq!(file(mapping(0x0, 0x2000, Target::Anonymous)), Some(7));
        assert_eq!(file(mapping(0x9800, 0xb000, Target::Anonymous)), Some(8));
        assert_eq!(file(mapping(0x3000, 0x9000, Target::Anonymous)), None);
        assert_eq!(file(mapping(0x1000, 0x2000, Target::Vsyscall)), None);
    }

    #[test]
    fn of_pieces_that_overlap_the_newest_is_kept() {
        let newest_first = [30..50, 10..31, 50..60, 0..10, 40..45, 5..70].map(piece);
        let kept: Vec<_> = apart(newest_first.into_iter())
            .into_iter()
            .map(|piece| piece.addresses)
            .collect();
        assert_eq!(kept, [0..10, 30..50, 50..60]);
    }

    #[test]
    fn memory_that_is_no_code_of_cpython_has_no_trampolines() {
        let memory = File::open("/proc/self/mem").unwrap();
        let code = [0x90_u8; 64];
        let start = code.as_ptr() as u64;
        let mut left_bytes = 100;
        assert_eq!(find_trampolines(&memory, start..start + 64, &mut left_bytes), []);
        assert_eq!(find_trampolines(&memory, 0..4096, &mut left_bytes), [], "not mapped");
        assert_eq!(left_bytes, 100);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn no_more_memory_is_looked_at_than_there_is_time_for() {
        let memory = File::open("/proc/self/mem").unwrap();
        let code = [
            0x48_u8, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3, 0, 0, 0, 0, 0,
        ]
        .repeat(4);
        let start = code.as_ptr() as u64;
        let mut left_bytes = 100;
        let found: Vec<usize> = (0..3)
            .map(|_| find_trampolines(&memory, start..start + 64, &mut left_bytes).len())
            .collect();
        assert_eq!((found, left_bytes), (vec![4, 2, 0], 0));
    }
}
