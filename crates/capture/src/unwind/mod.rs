//! Unwinding by tables: what the walker in `bpf/stack/unwind.h` needs to know of each process and file.
//!
//! `process_table` says which process has which mappings, `tables` what a file's code is like, both in the memory of
//! `memory`, which the programs read. `builder` has the threads that make the tables when the walker misses them.

mod builder;
mod cache;
mod known_files;
mod made;
mod memory;
mod process_table;
pub mod replay;
mod tables;
mod users;
mod wanted;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libbpf_rs::MapHandle;

use crate::abi;
use crate::error::Result;
use crate::files::{FileId, FileStore};
use crate::mappings::{Mapping, Target};
use crate::python::Found;
use crate::waker::Waker;
use builder::Builder;
use known_files::KnownFiles;
use made::{FIRST_REGION, MadeTables, Region, region_of};
use memory::{Memory, Piece};
use process_table::ProcessTable;
use tables::Tables;
use users::Users;
use wanted::Wanted;

/// The maps that the walker reads.
pub struct Maps {
    /// Outer map of the segments.
    pub segments: MapHandle,
    /// `struct unwind_rule`.
    pub rules: MapHandle,
    /// `struct unwind_file`.
    pub files: MapHandle,
    /// Slots of processes.
    pub processes: MapHandle,
    /// Files that have tables, by inode.
    pub inodes: MapHandle,
    /// Ring of files whose tables were missed.
    pub wanted: MapHandle,
}

/// Their names, in any object that walks.
pub const MAPS: [&str; 6] = [
    "unwind_segments",
    "unwind_rules",
    "unwind_files",
    "unwind_processes",
    "unwind_inodes",
    "unwind_wanted",
];

impl Maps {
    /// Of an object: each by its name.
    pub fn of(map: impl FnMut(&'static str) -> MapHandle) -> Self {
        let [segments, rules, files, processes, inodes, wanted] = MAPS.map(map);
        Self {
            segments,
            rules,
            files,
            processes,
            inodes,
            wanted,
        }
    }
}

/// The walker compares addresses as if they had a sign (`at_most` of bpf/stack/unwind.h).
const SEARCHED_BELOW: u64 = 1 << 63;

/// Keeps the walker informed.
pub struct Unwinder {
    memory: Arc<Mutex<Memory>>,
    processes: ProcessTable,
    published: HashMap<u32, Piece>,
    /// Of processes that run Python: their `struct python`.
    pythons: HashMap<u32, Piece>,
    publications: NonZeroU32,
    retired: Vec<Piece>,
    /// Files whose tables were asked for.
    requested: HashSet<u32>,
    users: Users,
    made: MadeTables,
    wanted: Wanted,
    builder: Builder,
}

/// Pieces are given back by so many, since each time takes a grace period.
const RETIRED_BYTES: usize = 256 << 10;
/// A table outlives its last process by this: the next one of the same program may begin soon, as those of compilers do
/// that run for a quarter of a minute.
const UNUSED: Duration = Duration::from_secs(60);

impl Unwinder {
    /// Nothing is known yet. `waker` is woken when an interpreter turned up.
    pub fn new(maps: Maps, waker: Waker) -> Result<Self> {
        let memory = Arc::new(Mutex::new(Memory::new(maps.segments)));
        let tables = Tables::new(Arc::clone(&memory), &maps.files, &maps.rules)?;
        Ok(Self {
            processes: ProcessTable::new(&maps.processes)?,
            published: HashMap::new(),
            pythons: HashMap::new(),
            publications: NonZeroU32::MIN,
            retired: Vec::new(),
            requested: HashSet::new(),
            users: Users::default(),
            made: MadeTables::default(),
            wanted: Wanted::new(maps.wanted)?,
            builder: Builder::start(tables, KnownFiles::new(maps.inodes), Arc::clone(&memory), waker)?,
            memory,
        })
    }

    /// Readable when tables are wanted.
    pub fn fd(&self) -> RawFd {
        self.wanted.fd()
    }

    /// Has the tables made that the walker missed.
    pub fn serve(&mut self, files: &FileStore) {
        for file in self.wanted.take() {
            self.request(file, files);
        }
    }

    /// Has the tables of these mappings made.
    pub fn prepare(&mut self, mappings: &[Mapping], files: &FileStore) {
        for file in mappings.iter().filter_map(file_of) {
            self.request(file, files);
        }
    }

    /// The same for a process that ended too soon: the next one of its program, which may be as short, is walked by them.
    pub fn expect_again(&mut self, pid: u32, mappings: &[Mapping], files: &FileStore) {
        self.prepare(mappings, files);
        self.users.set(pid, mappings.iter().filter_map(file_of).collect());
        self.users.remove(pid);
    }

    /// Waits until the tables are there that were asked for, for at most this long: samples without them are marked.
    pub fn wait_for_tables(&self, patience: Duration) {
        self.builder.wait(Instant::now() + patience);
    }

    /// The interpreters of Python that turned up in files since the last call.
    pub fn take_interpreters(&self) -> Vec<(FileId, Found)> {
        self.builder.take_interpreters()
    }

    fn request(&mut self, file: u32, files: &FileStore) {
        if file < FIRST_REGION && self.requested.insert(file) {
            let id = FileId::from_index(file);
            self.builder.load(file, files.duplicate(id), files.inode(id));
        }
    }

    /// A process has these mappings from now on.
    pub fn publish(&mut self, pid: u32, mappings: &[Mapping], files: &FileStore) {
        if mappings.is_empty() {
            return; // a kernel thread, or a program that is being loaded
        }
        self.publications = self.publications.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let (regions, left) = self.made.update(pid, mappings, files, &self.builder);
        let python = self.pythons.get(&pid).map_or(0, |piece| piece.reference);
        let words = mapping_words(mappings, regions, self.publications, python);
        let stored = tables::lock(&self.memory).store(&words);
        let Some(piece) = stored else {
            self.clear(pid); // no room: better no mappings than old ones
            self.made.give_back(left, &self.builder);
            return;
        };
        if self.processes.set(pid, piece.reference) {
            let before = self.published.insert(pid, piece);
            self.retired.extend(before);
            self.users.set(pid, mappings.iter().filter_map(file_of).collect());
        } else {
            self.retired.push(piece);
        }
        self.made.give_back(left, &self.builder);
    }

    /// What there was no room for, in words.
    pub fn lacks(&self) -> Vec<String> {
        let memory = tables::lock(&self.memory)
            .lack()
            .map(|lack| format!("some code has no unwind table: {lack}"));
        let refused = self.processes.refused();
        let processes = (refused > 0).then(|| format!("{refused} processes found no room in the table of mappings"));
        memory.into_iter().chain(processes).collect()
    }

    /// The process runs Python, and this is where the walker finds its frames.
    pub fn set_python(&mut self, pid: u32, python: &abi::Python) {
        let mut memory = tables::lock(&self.memory);
        let Some(piece) = memory.store(words_of(python)) else {
            return;
        };
        if let Some(mappings) = self.published.get(&pid) {
            memory.set_word(*mappings, PYTHON_WORD, piece.reference);
        }
        self.retired.extend(self.pythons.insert(pid, piece));
    }

    /// It became another program.
    pub fn clear(&mut self, pid: u32) {
        self.processes.clear(pid);
        self.withdraw(pid);
    }

    /// It has ended.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(pid);
        self.withdraw(pid);
    }

    /// Memory of the kernel that tables and mappings take.
    pub fn memory_bytes(&self) -> usize {
        tables::lock(&self.memory).bytes()
    }

    fn withdraw(&mut self, pid: u32) {
        self.retired.extend(self.published.remove(&pid));
        self.retired.extend(self.pythons.remove(&pid));
        self.users.remove(pid);
        self.made.remove(pid, &self.builder);
    }

    /// Reads on what processes tell of the code that they make; those that are to be published again.
    pub fn read_made_code(&mut self, files: &FileStore) -> Vec<u32> {
        self.made.read_on(files)
    }

    /// Gives back what is not used any more.
    pub fn keep_up(&mut self) {
        for file in self.users.take_unused(UNUSED) {
            if self.requested.remove(&file) {
                self.builder.unload(file);
            }
        }
        if self.retired.iter().map(Piece::bytes).sum::<usize>() > RETIRED_BYTES {
            self.builder.retire(std::mem::take(&mut self.retired));
        }
    }
}

fn words_of(python: &abi::Python) -> &[u32] {
    // SAFETY: plain integers without padding, aligned for u64, as long as they are borrowed.
    unsafe {
        std::slice::from_raw_parts(
            std::ptr::from_ref(python).cast(),
            size_of_val(python) / size_of::<u32>(),
        )
    }
}

/// Of a `struct unwind_mappings`: the one that refers to the process's `struct python`.
const PYTHON_WORD: u32 = (std::mem::offset_of!(abi::UnwindMappings, python) / size_of::<u32>()) as u32;

/// `struct unwind_mappings`, the starts, and `struct unwind_mapping` for each.
fn mapping_words(mappings: &[Mapping], regions: &[Region], publication: NonZeroU32, python: u32) -> Vec<u32> {
    let below = mappings.partition_point(|mapping| mapping.start < SEARCHED_BELOW); // all but the vsyscall page
    let mappings = &mappings[..below.min(abi::UNWIND_MAX_MAPPINGS)];
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let mut words = vec![mappings.len() as u32, publication.get(), python, 0];
    words.extend(mappings.iter().flat_map(|mapping| halves(mapping.start)));
    for mapping in mappings {
        words.extend(halves(mapping.end));
        let region = region_of(mapping, regions);
        let offset = region.map_or(mapping.file_offset, |region| mapping.start.wrapping_sub(region.base));
        let file = region.map(|region| region.file).or_else(|| file_of(mapping));
        words.extend(halves(offset));
        words.extend([file.unwrap_or(abi::UNWIND_NO_FILE as u32), 0]);
    }
    words
}

/// Its place in the table of files; None for code without a file, or one too many.
fn file_of(mapping: &Mapping) -> Option<u32> {
    match mapping.target {
        Target::File(file) => Some(file.index()).filter(|index| *index < FIRST_REGION),
        Target::Anonymous | Target::Vsyscall => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_laid_out_as_the_walker_reads_them() {
        let mapping = |start: u64, file| Mapping {
            start,
            end: start + 0x1000,
            file_offset: 0x2000,
            target: Target::File(FileId::from_index(file)),
            first_ns: 0,
        };
        let words = mapping_words(
            &[
                mapping(0x7_0000_0000, 3),
                mapping(0x8_0000_0000, 99_999),
                mapping(0xffff_ffff_ff60_0000, 0),
            ],
            &[],
            NonZeroU32::MIN,
            5,
        );
        let starts = [2, 1, 5, 0, 0, 7, 0, 8];
        let first = [0x1000, 7, 0x2000, 0, 3, 0];
        let second = [0x1000, 8, 0x2000, 0, abi::UNWIND_NO_FILE as u32, 0];
        assert_eq!(words, [&starts[..], &first, &second].concat());
        assert_eq!(size_of::<abi::UnwindMapping>(), 4 * first.len());
    }
}
