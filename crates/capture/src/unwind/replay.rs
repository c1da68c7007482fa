//! What the walker reads of processes, in memory of this process: for `bpf/stack/host.c`, the walker in user space.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use memmap2::Mmap;
use stackhound_core::elf::Elf;
use stackhound_core::unwind::{self, Rule, Table};

use super::mapping_words;
use super::memory::Memory;
use super::tables::{Outcome, Tables, lock};
use crate::error::{Error, Result};
use crate::files::{FileId, FileStore, reopen};
use crate::mappings::{Mapping, Target};
use crate::processes::{Known, Processes};

/// Code of a process.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// First address.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// Of the first byte, in the file.
    pub file_offset: u64,
    /// The file's index; None for code without one.
    pub file: Option<u32>,
}

/// Tables and mappings, as the kernel would have them.
pub struct Replay {
    files: FileStore,
    memory: Arc<Mutex<Memory>>,
    tables: Tables,
    loaded: HashSet<u32>,
    publications: NonZeroU32,
    /// Changes each rule before it is written: a way to see what a wrong one does.
    change: fn(&mut Rule),
}

impl Replay {
    /// Nothing yet. `change` is applied to each rule: a way to see that a wrong one is found out.
    pub fn new(change: fn(&mut Rule)) -> Result<Self> {
        let memory = Arc::new(Mutex::new(Memory::anonymous()));
        Ok(Self {
            files: FileStore::default(),
            tables: Tables::anonymous(Arc::clone(&memory))?,
            memory,
            loaded: HashSet::new(),
            publications: NonZeroU32::MIN,
            change,
        })
    }

    /// Publishes the code that a process has now, with the tables of its files. Gives the walker's reference to its
    /// mappings, and what they are.
    pub fn publish(&mut self, pid: u32) -> Result<(u32, Vec<Code>)> {
        let mut processes = Processes::new(false);
        processes.scan(pid, &mut self.files, 0);
        let mappings = processes.take_changed().find_map(|(_, _, known)| match known {
            Known::Mappings(mappings) => Some(mappings.to_vec()),
            Known::Ended(_) | Known::Gone => None,
        });
        let mappings = mappings.unwrap_or_default();
        for mapping in &mappings {
            if let Target::File(file) = mapping.target {
                self.load(file)?;
            }
        }
        Ok((self.store(&mappings)?, mappings.iter().map(Code::from).collect()))
    }

    fn store(&mut self, mappings: &[Mapping]) -> Result<u32> {
        self.publications = self.publications.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let words = mapping_words(mappings, &[], self.publications, 0);
        let piece = lock(&self.memory).store(&words);
        let full = || Error::system("no room for more mappings", &std::io::ErrorKind::OutOfMemory.into());
        let piece = piece.ok_or_else(full)?;
        Ok(piece.reference)
    }

    fn load(&mut self, file: FileId) -> Result<()> {
        if !self.loaded.insert(file.index()) {
            return Ok(());
        }
        let outcome = match self.file(file.index()).and_then(|bytes| self.table(&bytes)) {
            Some((elf, table)) => self.tables.load(file.index(), &table.view(), &elf.segments),
            None => Outcome::Empty,
        };
        if !matches!(outcome, Outcome::Loaded(_)) {
            self.tables.set_none(file.index());
        }
        Ok(())
    }

    /// A file's table is not there, as long as nobody has made it.
    pub fn forget(&mut self, file: u32) {
        self.tables.forget(file);
    }

    fn table(&self, bytes: &[u8]) -> Option<(Elf, Table)> {
        let mut table = unwind::build(bytes).ok()?;
        table.rules.iter_mut().for_each(self.change);
        Some((Elf::parse(bytes).ok()?, table))
    }

    /// A file's contents, while it is there.
    pub fn file(&self, index: u32) -> Option<Mmap> {
        let file = reopen(&self.files.duplicate(FileId::from_index(index))?).ok()?;
        // SAFETY: whoever replays does not change the programs that it looks at.
        unsafe { Mmap::map(&file) }.ok()
    }

    /// A file's path.
    pub fn path(&self, index: u32) -> &str {
        self.files.path(FileId::from_index(index))
    }

    /// Where the segments lie.
    pub fn segments(&self) -> Vec<NonNull<u64>> {
        lock(&self.memory).segments().collect()
    }

    /// Where the `struct unwind_file` lie.
    pub fn file_words(&self) -> NonNull<u64> {
        self.tables.files()
    }

    /// Where the `struct unwind_rule` lie.
    pub fn rule_words(&self) -> NonNull<u64> {
        self.tables.rules()
    }
}

impl From<&Mapping> for Code {
    fn from(mapping: &Mapping) -> Self {
        Self {
            start: mapping.start,
            end: mapping.end,
            file_offset: mapping.file_offset,
            file: match mapping.target {
                Target::File(file) => Some(file.index()),
                Target::Anonymous | Target::Vsyscall => None,
            },
        }
    }
}
