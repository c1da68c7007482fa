//! What the compiler says of each function, in `.eh_frame` or `.debug_frame`.

use std::ops::Range;

use hashbrown::HashMap;

use super::conversion;
use super::entries::{Cie, Entry, Fde, Section};
use super::layers::Layer;
use super::rule::Rule;
use super::state::{Executor, State, Step};
use super::statistics::Reason;
use super::writer::Writer;
use crate::image::Machine;

/// Functions of a file: Chromium has 600,000.
const MAX_FUNCTIONS: usize = 4 << 20;

/// CIEs to keep. A compiler writes one or two for an object file, and the linker keeps one of each.
const MAX_CIES: usize = 1024;

/// A section's functions, by address.
pub(super) struct Frames<'f> {
    section: Section<'f>,
    machine: Machine,
    /// Each function: bytes from `start` in the upper half, from the section's start in the lower.
    index: Vec<u64>,
    /// The first address of code.
    start: u64,
    /// The first in the index that was not given yet.
    next: usize,
    /// The function that was given last.
    current: Option<(Fde<'f>, usize)>,
    cies: Cies<'f>,
    executor: Executor<'f>,
}

impl<'f> Frames<'f> {
    /// Find all functions that lie in `code`.
    pub(super) fn read(section: Section<'f>, machine: Machine, code: &[Range<u64>], writer: &mut Writer) -> Self {
        let mut frames = Self {
            section,
            machine,
            index: Vec::new(),
            start: code.first().map_or(0, |range| range.start),
            next: 0,
            current: None,
            cies: Cies::default(),
            executor: Executor::new(machine),
        };
        frames.fill_index(code, writer);
        frames.index.sort_unstable();
        frames
    }

    fn fill_index(&mut self, code: &[Range<u64>], writer: &mut Writer) {
        let mut entries = self.section.entries();
        for offset in entries.by_ref() {
            match self.parse(offset) {
                Ok(Some((fde, _))) if fde.bytes == 0 => {} // what the linker took out
                Ok(Some((fde, _))) if !is_within(code, fde.start) => writer.note(Reason::OutsideCode),
                Ok(Some(_)) if self.index.len() == MAX_FUNCTIONS => return writer.note(Reason::TooMany),
                Ok(Some((fde, _))) => self.index.push((fde.start - self.start) << 32 | offset as u64),
                Ok(None) => {}
                Err(reason) => writer.note(reason),
            }
        }
        if entries.is_cut() {
            writer.note(Reason::Malformed);
        }
    }

    /// A function, and the index of its CIE; None when the entry is a CIE.
    fn parse(&mut self, offset: usize) -> Result<Option<(Fde<'f>, usize)>, Reason> {
        let Entry { cie: Some(cie), rest } = self.section.entry(offset)? else {
            return Ok(None);
        };
        let cie = self.cies.find(cie, self.section, &mut self.executor)?;
        let fde = self.cies.known[cie].0.function(rest)?;
        Ok(Some((fde, cie)))
    }

    fn address_at(&self, index: usize) -> Option<u64> {
        self.index.get(index).map(|entry| self.start + (entry >> 32))
    }

    /// Write the rules of a function; an error where they end, and why.
    fn run(
        &mut self,
        fde: &Fde<'f>,
        cie: usize,
        addresses: &Range<u64>,
        writer: &mut Writer,
    ) -> Result<(), (u64, Reason)> {
        let (cie, initial) = &self.cies.known[cie];
        let executor = &mut self.executor;
        let mut location = addresses.start;
        let at = |location| move |reason| (location, reason);
        executor.begin(initial.map_err(at(location))?);
        let mut end = fde.start;
        let mut instructions = fde.instructions;
        while !instructions.is_empty() {
            end = match executor.step(&mut instructions, cie).map_err(at(location))? {
                Step::Done => continue,
                Step::Advance(bytes) => end.saturating_add(bytes),
                Step::Locate(address) if address >= end => address,
                Step::Locate(_) => return Err((location, Reason::Malformed)),
            };
            if end > location {
                write_state(location, executor, cie, self.machine, writer);
                location = end;
            }
            if location >= addresses.end {
                return Ok(());
            }
        }
        write_state(location, executor, cie, self.machine, writer);
        Ok(())
    }
}

fn write_state(address: u64, executor: &mut Executor, cie: &Cie, machine: Machine, writer: &mut Writer) {
    if let Some(state) = executor.take_change() {
        let (rule, reason) = conversion::rule(state, cie, machine);
        reason.into_iter().for_each(|reason| writer.note(reason));
        writer.set(address, rule);
    }
}

impl Layer for Frames<'_> {
    /// A function ends where the next begins, whatever it claims: so do unwinders that search by the first address.
    fn next(&mut self, gap: &Range<u64>, writer: &mut Writer) -> Option<Range<u64>> {
        while let Some(start) = self.address_at(self.next).filter(|start| *start < gap.end) {
            let offset = self.index[self.next] as u32 as usize;
            self.next += 1;
            let Ok(Some((fde, cie))) = self.parse(offset) else {
                writer.note(Reason::Malformed);
                continue;
            };
            let limit = self.address_at(self.next).unwrap_or(u64::MAX).min(gap.end);
            let addresses = start.max(gap.start)..start.saturating_add(fde.bytes).min(limit);
            if !addresses.is_empty() {
                self.current = Some((fde, cie));
                return Some(addresses);
            }
        }
        None
    }

    fn write(&mut self, addresses: &Range<u64>, writer: &mut Writer) {
        let Some((fde, cie)) = self.current.take() else {
            return;
        };
        if let Err((address, reason)) = self.run(&fde, cie, addresses, writer) {
            writer.note(reason);
            writer.set(address, Rule::UNSUPPORTED);
        }
    }
}

fn is_within(code: &[Range<u64>], address: u64) -> bool {
    let after = code.partition_point(|range| range.start <= address);
    after > 0 && address < code[after - 1].end
}

/// The CIEs of a section, each read once.
#[derive(Default)]
pub(super) struct Cies<'f> {
    /// Each with the state that its functions begin with.
    pub(super) known: Vec<(Cie<'f>, Result<State<'f>, Reason>)>,
    /// Offset to index.
    by_offset: HashMap<usize, usize>,
    /// Offset and index of the one that was asked for last.
    last: Option<(usize, usize)>,
}

impl<'f> Cies<'f> {
    /// The index of the CIE at an offset.
    pub(super) fn find(
        &mut self,
        offset: usize,
        section: Section<'f>,
        executor: &mut Executor<'f>,
    ) -> Result<usize, Reason> {
        match self.last {
            Some((last, index)) if last == offset => return Ok(index),
            _ => {}
        }
        let index = match self.by_offset.get(&offset) {
            Some(&index) => index,
            None => self.add(offset, section, executor)?,
        };
        self.last = Some((offset, index));
        Ok(index)
    }

    fn add(&mut self, offset: usize, section: Section<'f>, executor: &mut Executor<'f>) -> Result<usize, Reason> {
        let cie = section.cie(offset)?;
        if self.known.len() == MAX_CIES {
            self.known.clear();
            self.by_offset.clear();
        }
        self.by_offset.insert(offset, self.known.len());
        self.known.push((cie, executor.initial_state(&cie)));
        Ok(self.known.len() - 1)
    }
}
