//! A process's memory for tests: pages that are written word by word.

use std::collections::BTreeMap;

use super::interpreter::Interpreter;
use super::memory::{Memory, Unreadable, further};
use super::runtime::Python;
use super::version::Version;
use crate::address::{ObjectAddr, ProcessAddr};
use crate::random::Random;

const PAGE_BYTES: u64 = 4096;

/// Memory that is there where it was written or mapped.
#[derive(Clone, Default)]
pub(super) struct Fake(BTreeMap<u64, Vec<u8>>);

impl Memory for Fake {
    fn read(&self, address: ProcessAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        for (offset, byte) in into.iter_mut().enumerate() {
            let at = further(address, offset as u64).0;
            let page = self.0.get(&(at / PAGE_BYTES)).ok_or(Unreadable(address))?;
            *byte = page[(at % PAGE_BYTES) as usize];
        }
        Ok(())
    }
}

impl Fake {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn map(&mut self, address: u64, bytes: usize) {
        for page in address / PAGE_BYTES..=(address + bytes as u64 - 1) / PAGE_BYTES {
            self.0.entry(page).or_insert_with(|| vec![0; PAGE_BYTES as usize]);
        }
    }

    pub(super) fn write(&mut self, address: ProcessAddr, word: u64) {
        self.write_bytes(address, &word.to_le_bytes());
    }

    pub(super) fn write_bytes(&mut self, address: ProcessAddr, bytes: &[u8]) {
        self.map(address.0, bytes.len().max(1));
        for (at, byte) in (address.0..).zip(bytes) {
            let page = self.0.entry(at / PAGE_BYTES).or_default();
            page[(at % PAGE_BYTES) as usize] = *byte;
        }
    }

    /// Where one of the pages begins: in these processes, an object.
    fn an_object(&self, random: &mut Random) -> ProcessAddr {
        let which = random.below(self.0.len() as u32) as usize;
        ProcessAddr(self.0.keys().nth(which).map_or(0, |page| page * PAGE_BYTES))
    }

    /// The same with three words overwritten, with anything or pointers to each other, within so many of an object.
    pub(super) fn lying(&self, random: &mut Random, words: u32) -> Self {
        let mut memory = self.clone();
        for _ in 0..3 {
            let word = match random.below(3) {
                0 => random.next(),
                1 => u64::from(random.below(64)),
                _ => self.an_object(random).0 + u64::from(random.below(8 * words)),
            };
            let object = self.an_object(random);
            memory.write(further(object, 8 * random.below(words)), word);
        }
        memory
    }

    /// A string of 3.11, whose characters have so many bytes each.
    pub(super) fn write_text(&mut self, address: ProcessAddr, text: &[u32], char_bytes: usize) {
        let is_ascii = text.iter().all(|code| *code < 0x80);
        self.write(further(address, 16_u32), text.len() as u64);
        let state = (char_bytes as u64) << 2 | 1 << 5 | u64::from(is_ascii) << 6;
        self.write(further(address, 32_u32), state);
        let start = further(address, if is_ascii { 48_u32 } else { 72 });
        let characters: Vec<u8> = text
            .iter()
            .flat_map(|code| code.to_le_bytes()[..char_bytes].to_vec())
            .collect();
        self.write_bytes(start, &characters);
    }
}

pub(super) const RUNTIME: ProcessAddr = ProcessAddr(0x10_0000);
pub(super) const CODE: ProcessAddr = ProcessAddr(0x50_0000);
pub(super) const NEWEST_FRAME: ProcessAddr = ProcessAddr(0x41_0000);
pub(super) const OLDEST_FRAME: ProcessAddr = ProcessAddr(0x42_0000);

const INTERPRETER: ProcessAddr = ProcessAddr(0x20_0000);
const THREADS: [ProcessAddr; 2] = [ProcessAddr(0x30_0000), ProcessAddr(0x31_0000)];
const CFRAME: ProcessAddr = ProcessAddr(0x40_0000);
const NAME: ProcessAddr = ProcessAddr(0x51_0000);
const QUALIFIED_NAME: ProcessAddr = ProcessAddr(0x52_0000);
const FILE: ProcessAddr = ProcessAddr(0x53_0000);
const LINES: ProcessAddr = ProcessAddr(0x54_0000);

/// A process with CPython 3.11: one interpreter, two threads, the older of which is in a function that it called itself.
pub(super) fn fake_3_11() -> Fake {
    let mut memory = Fake::new();
    let mut write = |base, offset: u32, word| memory.write(further(base, offset), word);
    write(RUNTIME, 40, INTERPRETER.0);
    write(RUNTIME, 360, 0); // the lock
    write(INTERPRETER, 0, 0);
    write(INTERPRETER, 16, THREADS[0].0);
    for (thread, (pthread, native_id)) in THREADS.iter().zip([(0x7000, 102), (0x6000, 101)]) {
        write(*thread, 152, pthread);
        write(*thread, 160, native_id);
    }
    write(THREADS[0], 8, THREADS[1].0);
    write(THREADS[1], 56, CFRAME.0);
    write(CFRAME, 8, NEWEST_FRAME.0);
    for (frame, previous, instruction, is_entry) in [(NEWEST_FRAME, OLDEST_FRAME.0, 186, 0), (OLDEST_FRAME, 0, 182, 1)]
    {
        write(frame, 32, CODE.0);
        write(frame, 48, previous);
        write(frame, 56, CODE.0 + instruction);
        write(frame, 68, is_entry);
    }
    for (offset, part) in [(112, FILE), (120, NAME), (128, QUALIFIED_NAME), (136, LINES)] {
        write(CODE, offset, part.0);
    }
    write(CODE, 72, 40);
    write(LINES, 16, 2);
    memory.write_bytes(further(LINES, 32_u32), &[0x80, 0x35]);
    let codes = |text: &str| text.chars().map(u32::from).collect::<Vec<_>>();
    memory.write_text(NAME, &codes("größe"), 1);
    memory.write_text(QUALIFIED_NAME, &codes("Straße.größe"), 1);
    memory.write_text(FILE, &codes("/srv/вес.py"), 2);
    memory
}

/// The interpreter of that process.
pub(super) fn python_3_11(memory: &Fake) -> Python {
    let interpreter = Interpreter {
        version: Version::of_minor(11),
        runtime: ObjectAddr(RUNTIME.0),
        code_type: None,
        is_debug_build: false,
        evaluation: Vec::new(),
        has_tail_calls: false,
    };
    Python::attach(&interpreter, 0, memory).unwrap()
}
