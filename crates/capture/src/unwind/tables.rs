//! The tables of files, as the walker reads them: put into the programs' memory, and taken out again.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::MapHandle;
use stackhound_core::elf::Segment;
use stackhound_core::unwind::{PAGE_BITS, RULE_BITS, Rule, TableView, rule_of};

use super::memory::{Memory, Piece};
use crate::abi;
use crate::error::{Error, Result};
use crate::mapped::Mapped;

const _: () = assert!(PAGE_BITS as usize == abi::UNWIND_PAGE_BITS && RULE_BITS as usize == abi::UNWIND_RULE_BITS);
const _: () = assert!(size_of::<Rule>() == size_of::<abi::UnwindRule>());

/// Words of rows that lie in one piece, at most: several pieces fill a segment well.
const PIECE_WORDS: usize = 1 << 15;
/// Pages of a file that a piece can hold: 500 MB of code, with what lies between.
const MAX_FILE_PAGES: usize = ((1 << abi::UNWIND_SEGMENT_BITS) - 64) / 2;

const FILES_BYTES: usize = abi::UNWIND_FILES * size_of::<abi::UnwindFile>();
const RULES_BYTES: usize = abi::UNWIND_RULES * size_of::<Rule>();

/// A table in the programs' memory.
#[derive(Default)]
pub struct Loaded {
    pieces: Vec<Piece>,
    /// Indices of its rules.
    rules: Vec<u32>,
    rows: usize,
    place: Place,
}

/// Where the walker finds a table: what a `struct unwind_file` says.
#[derive(Clone, Copy, Default)]
struct Place {
    reference: u32,
    page_count: u32,
    first_page: u32,
}

/// What became of a file's table.
pub enum Outcome {
    /// The walker uses it.
    Loaded(Loaded),
    /// It has no rows.
    Empty,
    /// The memory is full, or the file has more code than any.
    NoRoom,
}

/// Writes tables.
pub struct Tables {
    memory: Arc<Mutex<Memory>>,
    files: Mapped,
    rules: Rules,
}

impl Tables {
    /// On the programs' maps.
    pub fn new(memory: Arc<Mutex<Memory>>, files: &MapHandle, rules: &MapHandle) -> Result<Self> {
        let files = Mapped::new(files, 0, FILES_BYTES).map_err(cannot_map)?;
        let rules = Mapped::new(rules, 0, RULES_BYTES).map_err(cannot_map)?;
        Ok(Self::on(memory, files, rules))
    }

    /// In memory of this process alone.
    pub fn anonymous(memory: Arc<Mutex<Memory>>) -> Result<Self> {
        let files = Mapped::anonymous(FILES_BYTES).map_err(cannot_map)?;
        let rules = Mapped::anonymous(RULES_BYTES).map_err(cannot_map)?;
        Ok(Self::on(memory, files, rules))
    }

    fn on(memory: Arc<Mutex<Memory>>, files: Mapped, rules: Mapped) -> Self {
        Self {
            memory,
            files,
            rules: Rules::new(rules),
        }
    }

    /// Where the walker finds `struct unwind_file`.
    pub fn files(&self) -> NonNull<u64> {
        self.files.words()
    }

    /// Where it finds `struct unwind_rule`.
    pub fn rules(&self) -> NonNull<u64> {
        self.rules.memory.words()
    }

    /// Puts a file's table in place. `segments`: the file's; pages are counted in the file from here on.
    pub fn load(&mut self, file: u32, table: &TableView<'_>, segments: &[Segment]) -> Outcome {
        let Some((first_page, pages)) = file_pages(table, segments) else {
            return Outcome::NoRoom;
        };
        let mut loaded = Loaded {
            rules: table.rules.iter().map(|rule| self.rules.take(rule)).collect(),
            ..Loaded::default()
        };
        let Some(references) = self.store_rows(table, &pages, &mut loaded) else {
            self.free(loaded); // nothing referred to it yet
            return Outcome::NoRoom;
        };
        if loaded.rows == 0 {
            self.free(loaded);
            return Outcome::Empty;
        }
        let Some(index) = self.store(&references) else {
            self.free(loaded);
            return Outcome::NoRoom;
        };
        loaded.pieces.push(index);
        loaded.place = Place {
            reference: index.reference,
            page_count: pages.len() as u32,
            first_page,
        };
        self.publish(file, &loaded);
        Outcome::Loaded(loaded)
    }

    /// The rows of all pages, and for each page what `struct unwind_page` says.
    fn store_rows(&mut self, table: &TableView<'_>, pages: &[Option<usize>], loaded: &mut Loaded) -> Option<Vec<u32>> {
        let mut references = vec![0; 2 * pages.len()];
        let mut words = Vec::with_capacity(PIECE_WORDS);
        let mut waiting = Vec::new();
        for (at, page) in pages.iter().enumerate() {
            let rows = page.map_or(&[][..], |page| table.rows_of(&table.pages[page]));
            if words.len() + rows.len() > PIECE_WORDS
                && !self.store_piece(&mut words, &mut waiting, &mut references, loaded)
            {
                return None;
            }
            if !rows.is_empty() {
                waiting.push(at);
                references[2 * at] = words.len() as u32;
                references[2 * at + 1] = rows.len() as u32;
                words.extend(
                    rows.iter()
                        .map(|row| (row >> RULE_BITS << RULE_BITS) | loaded.rules[rule_of(*row) as usize]),
                );
            }
        }
        let is_stored = words.is_empty() || self.store_piece(&mut words, &mut waiting, &mut references, loaded);
        is_stored.then_some(references)
    }

    /// Stores the rows so far, and makes the pages that wait for that refer to them.
    fn store_piece(
        &mut self,
        words: &mut Vec<u32>,
        waiting: &mut Vec<usize>,
        references: &mut [u32],
        loaded: &mut Loaded,
    ) -> bool {
        let Some(piece) = self.store(words) else {
            return false;
        };
        for at in waiting.drain(..) {
            references[2 * at] += piece.reference;
        }
        loaded.rows += words.len();
        loaded.pieces.push(piece);
        words.clear();
        true
    }

    fn store(&self, words: &[u32]) -> Option<Piece> {
        lock(&self.memory).store(words)
    }

    /// Nothing tells how to unwind this file's code: the walker need not ask again.
    pub fn set_none(&mut self, file: u32) {
        self.details(file).store(HAS_NONE, Ordering::Release);
    }

    /// Gives back what a table takes, which no program can be reading: a grace period ago the last file forgot it.
    pub fn free(&mut self, loaded: Loaded) {
        free(&self.memory, &loaded.pieces);
        loaded.rules.iter().for_each(|rule| self.rules.give_back(*rule));
    }

    /// A file has no table any more, nor is it known that there is none.
    pub fn forget(&mut self, file: u32) {
        self.place(file).store(0, Ordering::Release);
        self.details(file).store(0, Ordering::Release);
    }

    /// Lets the walker use a table for a file.
    pub fn publish(&mut self, file: u32, table: &Loaded) {
        let Place {
            reference,
            page_count,
            first_page,
        } = table.place;
        self.details(file).store(u64::from(first_page), Ordering::Release);
        let place = u64::from(page_count) << 32 | u64::from(reference);
        self.place(file).store(place, Ordering::Release);
    }

    /// `pages` and `page_count` of its `struct unwind_file`.
    fn place(&self, file: u32) -> &AtomicU64 {
        self.word(2 * file as usize)
    }

    /// `first_page`, `has_none` and `wanted`.
    fn details(&self, file: u32) -> &AtomicU64 {
        self.word(2 * file as usize + 1)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.files.len());
        // SAFETY: within the mapping, aligned, and shared with the programs as a word that changes.
        unsafe { AtomicU64::from_ptr(self.files.words().add(index).as_ptr()) }
    }
}

/// `has_none` of the second word of a `struct unwind_file`.
const HAS_NONE: u64 = 1 << 32;
const _: () = assert!(std::mem::offset_of!(abi::UnwindFile, has_none) == 12);

fn cannot_map(error: std::io::Error) -> Error {
    Error::system("the unwind tables cannot be mapped", &error)
}

/// Gives back pieces that no program can be reading.
pub fn free(memory: &Mutex<Memory>, pieces: &[Piece]) {
    let mut memory = lock(memory);
    pieces.iter().for_each(|piece| memory.free(*piece));
}

/// Another thread's panic leaves the memory as usable as it was.
pub fn lock(memory: &Mutex<Memory>) -> std::sync::MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The table's pages in the order of the file's, from the first page of code to the last. None where there are more
/// than fit, or where the file's pages are not the table's.
fn file_pages(table: &TableView<'_>, segments: &[Segment]) -> Option<(u32, Vec<Option<usize>>)> {
    const PAGE_BYTES: u64 = 1 << PAGE_BITS;
    let code = || segments.iter().filter(|segment| segment.executable && segment.size > 0);
    let pages_of = |segment: &Segment| {
        let end = segment.file_offset.0.checked_add(segment.size)?;
        Some(segment.file_offset.0 >> PAGE_BITS..end.div_ceil(PAGE_BYTES))
    };
    let first = code().map(|segment| segment.file_offset.0 >> PAGE_BITS).min()?;
    let end = code().map(|segment| pages_of(segment).map(|pages| pages.end)).max()??;
    let count = usize::try_from(end - first)
        .ok()
        .filter(|count| *count <= MAX_FILE_PAGES)?;
    let mut pages = vec![None; count];
    for segment in code() {
        let distance = segment.address.0.wrapping_sub(segment.file_offset.0);
        if distance % PAGE_BYTES != 0 {
            return None;
        }
        for page in pages_of(segment)? {
            let of_table = page.wrapping_add(distance >> PAGE_BITS).wrapping_sub(table.first_page);
            let place = &mut pages[(page - first) as usize];
            if place.is_none() && of_table < table.pages.len() as u64 {
                *place = Some(of_table as usize);
            }
        }
    }
    Some((u32::try_from(first).ok()?, pages))
}

/// The rules of all tables, each once, for as long as a table has it.
struct Rules {
    memory: Mapped,
    known: HashMap<Rule, u32>,
    /// How many tables have it, by its place.
    users: Vec<u32>,
    free: Vec<u32>,
}

impl Rules {
    const UNSUPPORTED: u32 = 1;

    /// The first two are here for good.
    fn new(memory: Mapped) -> Self {
        let mut rules = Self {
            memory,
            known: HashMap::new(),
            users: Vec::new(),
            free: Vec::new(),
        };
        rules.take(&Rule::NONE);
        rules.take(&Rule::UNSUPPORTED);
        rules
    }

    /// Its place, for one table more. A rule that finds no room is as good as one that cannot be said.
    fn take(&mut self, rule: &Rule) -> u32 {
        let known = self.known.get(rule).copied();
        let index = known.or_else(|| self.add(rule)).unwrap_or(Self::UNSUPPORTED);
        self.users[index as usize] += 1;
        index
    }

    fn add(&mut self, rule: &Rule) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.users.len() == abi::UNWIND_RULES => return None,
            None => {
                self.users.push(0);
                self.users.len() as u32 - 1
            }
        };
        // SAFETY: nothing refers to the rule that is there.
        unsafe { self.at(index).write(*rule) };
        self.known.insert(*rule, index);
        Some(index)
    }

    /// A table that had it is gone, and no program reads it any more.
    fn give_back(&mut self, index: u32) {
        let users = &mut self.users[index as usize];
        *users -= 1;
        if *users == 0 {
            // SAFETY: written when it was added.
            let rule = unsafe { self.at(index).read() };
            self.known.remove(&rule);
            self.free.push(index);
        }
    }

    fn at(&self, index: u32) -> NonNull<Rule> {
        assert!((index as usize) < abi::UNWIND_RULES);
        // SAFETY: within the mapping.
        unsafe { self.memory.words().cast::<Rule>().add(index as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stackhound_core::address::{FileOffset, ObjectAddr};
    use stackhound_core::unwind::{Page, Statistics};

    fn segment(file_offset: u64, address: u64, size: u64) -> Segment {
        Segment {
            file_offset: FileOffset(file_offset),
            address: ObjectAddr(address),
            size,
            executable: true,
        }
    }

    fn view(first_page: u64, pages: &[Page]) -> TableView<'_> {
        TableView {
            first_page,
            pages,
            rows: &[],
            rules: &[],
            statistics: Statistics::default(),
        }
    }

    /// A table of one page, whose only rule this is.
    fn load(tables: &mut Tables, file: u32, rule: Rule) -> Loaded {
        let table = TableView {
            first_page: 1,
            pages: &[Page { first_row: 0, count: 1 }],
            rows: &[1],
            rules: &[Rule::NONE, rule],
            statistics: Statistics::default(),
        };
        match tables.load(file, &table, &[segment(0x1000, 0x1000, 0x1000)]) {
            Outcome::Loaded(loaded) => loaded,
            _ => panic!("there is room"),
        }
    }

    fn rule(cfa_offset: i32) -> Rule {
        Rule {
            cfa_offset,
            ..Rule::FRAME_POINTER
        }
    }

    fn unload(tables: &mut Tables, file: u32, loaded: Loaded) {
        tables.forget(file);
        tables.free(loaded);
    }

    /// The rule that the walker would read for the first row of a table.
    fn rule_in_use(tables: &Tables, loaded: &Loaded) -> Rule {
        // SAFETY: in place since it was loaded.
        unsafe { tables.rules.at(loaded.rules[1]).read() }
    }

    #[test]
    fn rules_are_never_full_however_many_tables_come_and_go() {
        let memory = Arc::new(Mutex::new(Memory::anonymous()));
        let mut tables = Tables::anonymous(memory).unwrap();
        for offset in 0..abi::UNWIND_RULES as i32 + 2 {
            let loaded = load(&mut tables, 0, rule(offset));
            assert_eq!(rule_in_use(&tables, &loaded), rule(offset));
            unload(&mut tables, 0, loaded);
        }
    }

    #[test]
    fn a_rule_stays_until_its_last_table_is_gone() {
        let memory = Arc::new(Mutex::new(Memory::anonymous()));
        let mut tables = Tables::anonymous(memory).unwrap();
        let [first, second] = [0, 1].map(|file| load(&mut tables, file, rule(1)));
        unload(&mut tables, 0, first);
        let other = load(&mut tables, 0, rule(2));
        assert_eq!(rule_in_use(&tables, &second), rule(1));
        unload(&mut tables, 1, second);
        let next = load(&mut tables, 1, rule(3));
        assert_eq!(rule_in_use(&tables, &other), rule(2));
        assert_eq!(rule_in_use(&tables, &next), rule(3));
    }

    #[test]
    fn rules_beyond_those_that_fit_are_unsupported() {
        let memory = Arc::new(Mutex::new(Memory::anonymous()));
        let mut tables = Tables::anonymous(memory).unwrap();
        for offset in 0..abi::UNWIND_RULES as i32 {
            tables.rules.take(&rule(offset));
        }
        let loaded = load(&mut tables, 0, rule(-1));
        assert_eq!(rule_in_use(&tables, &loaded), Rule::UNSUPPORTED);
        tables.rules.give_back(2);
        let other = load(&mut tables, 1, rule(-2));
        assert_eq!(rule_in_use(&tables, &other), rule(-2));
    }

    #[test]
    fn pages_are_counted_in_the_file() {
        let pages = [Page::default(); 4];
        let table = view(0x401, &pages);
        let found = file_pages(
            &table,
            &[segment(0x1000, 0x40_1000, 0x1800), segment(0x4000, 0x40_4000, 0x10)],
        );
        assert_eq!(found, Some((1, vec![Some(0), Some(1), None, Some(3)])));
    }

    #[test]
    fn pages_that_do_not_fit_together_make_no_table() {
        let table = view(0, &[]);
        assert_eq!(file_pages(&table, &[segment(0x1000, 0x1800, 0x1000)]), None);
        assert_eq!(file_pages(&table, &[segment(u64::MAX, 0x1000, 0x1000)]), None);
        assert_eq!(file_pages(&table, &[segment(0, 0, 1 << 40)]), None);
    }
}
