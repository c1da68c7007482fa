//! Go's own table of its functions, which every Go program has, also a stripped one: `runtime.pclntab`, as Go 1.18 and
//! later write it (`debug/gosym/pclntab.go`, `runtime/symtab.go`).
//!
//! ```text
//! header     magic, quantum, pointer size, then 8 bytes each: functions, files, address of the code (until Go 1.25),
//!            offsets of names, units, files, pc tables, and functions
//! functions  8 bytes each: bytes from the code's start, offset from here of what is said of the function
//! pc table   varints in pairs: what the value changes by, and for how much code it holds
//! ```

use std::ops::Range;

use super::image::{Image, Machine};

/// Go 1.18, and 1.20.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];

/// Sections that the table is in. The second is that of Go 1.18 to 1.25 in position-independent programs.
const NAMES: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Sections that `runtime.firstmoduledata` may be in, or what the dynamic linker writes there.
const MODULE_NAMES: [&str; 4] = [".go.module", ".noptrdata", ".data", ".data.rel.ro"];
const RELOCATION_NAMES: [&str; 2] = [".rela", ".rela.dyn"];

/// Places to look at that happen to hold the table's address.
const MAX_CANDIDATES: usize = 16;

/// Fields of `runtime.moduledata`: a pointer and six slices come first.
const MIN_PC: u64 = 8 + 6 * 24 + 8;
const TEXT: u64 = MIN_PC + 16;

/// Words of the header, after its first 8 bytes.
const FUNCTIONS: usize = 0;
const TEXT_START: usize = 2;
const NAMES_OFFSET: usize = 3;
const PC_TABLES_OFFSET: usize = 6;
const FUNCTIONS_OFFSET: usize = 7;

/// `runtime._func`, from its start.
const NAME: usize = 4;
const STACK_TABLE: usize = 16;

/// Flags of a function (`internal/abi/symtab.go`).
const TOP_FRAME: u8 = 1;
const WRITES_STACK_POINTER: u8 = 2;
const ASSEMBLY: u8 = 4;

/// The table of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pclntab<'f> {
    data: &'f [u8],
    /// `runtime.text`: what functions count their addresses from.
    text: u64,
    /// Bytes of the shortest instruction.
    quantum: u64,
    /// Where a function's flags are, from the start of what is said of it.
    flags: usize,
}

/// A Go function.
#[derive(Clone, Debug)]
pub(super) struct Function {
    pub(super) addresses: Range<u64>,
    /// Where what is said of it begins.
    at: usize,
    flags: u8,
}

impl Function {
    /// Whether it is the first of its stack.
    pub(super) fn is_top(&self) -> bool {
        self.flags & TOP_FRAME != 0
    }

    /// Whether it moves to another stack.
    pub(super) fn switches_stacks(&self) -> bool {
        self.flags & WRITES_STACK_POINTER != 0
    }

    /// Whether nobody but its author says what is in its frame.
    pub(super) fn is_assembly(&self) -> bool {
        self.flags & ASSEMBLY != 0
    }
}

impl<'f> Pclntab<'f> {
    /// The table of a file; None when it is not Go's, or older than 1.18.
    pub(super) fn find(image: &Image<'f>) -> Option<Self> {
        let section = NAMES.iter().find_map(|name| image.section(name))?;
        let data = section.data;
        let quantum = match image.machine {
            Machine::X86_64 => 1,
            Machine::Arm64 => 4,
        };
        let magic = u32::from_le_bytes(*data.first_chunk()?);
        let version = MAGICS.iter().position(|known| *known == magic)?;
        if data.get(4..8)? != [0, 0, quantum, 8] {
            return None;
        }
        let mut table = Self {
            data,
            text: 0,
            quantum: quantum.into(),
            flags: 37 + 4 * version, // Go 1.20 put the function's line before them
        };
        table.text = table.text_start(image, section.address)?;
        Some(table)
    }

    /// How many functions there are.
    pub(super) fn len(&self) -> usize {
        self.word(FUNCTIONS).unwrap_or(0) as usize
    }

    /// A function by its index.
    pub(super) fn function(&self, index: usize) -> Option<Function> {
        if index >= self.len() {
            return None;
        }
        let functions = self.word(FUNCTIONS_OFFSET)? as usize;
        let entry = functions.checked_add(index.checked_mul(8)?)?;
        let (start, end) = (self.u32_at(entry)?, self.u32_at(entry.checked_add(8)?)?);
        let at = functions.checked_add(self.u32_at(entry + 4)? as usize)?;
        Some(Function {
            addresses: self.text.checked_add(start.into())?..self.text.checked_add(end.into())?,
            at,
            flags: *self.data.get(at.checked_add(self.flags)?)?,
        })
    }

    /// Whether a function's name begins with this.
    pub(super) fn is_named(&self, function: &Function, prefix: &str) -> bool {
        let name = || {
            let names = self.word(NAMES_OFFSET)? as usize;
            self.data
                .get(names.checked_add(self.u32_at(function.at.checked_add(NAME)?)? as usize)?..)
        };
        name().is_some_and(|name| name.starts_with(prefix.as_bytes()))
    }

    /// How many bytes a function has on the stack, without the return address on x86-64, from each address on.
    pub(super) fn stack_bytes(&self, function: &Function) -> StackBytes<'f> {
        let table = || {
            let offset = self.u32_at(function.at.checked_add(STACK_TABLE)?)?;
            let tables = self.word(PC_TABLES_OFFSET)? as usize;
            (offset != 0).then(|| self.data.get(tables.checked_add(offset as usize)?..))?
        };
        StackBytes {
            table: table().unwrap_or_default(),
            addresses: function.addresses.clone(),
            value: None,
            quantum: self.quantum,
        }
    }

    fn word(&self, index: usize) -> Option<u64> {
        let bytes = self.data.get(8 + 8 * index..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    fn u32_at(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.data.get(at..)?.first_chunk()?))
    }

    /// `runtime.text`: as the header says it, or as the runtime's module does, or the beginning of all code.
    fn text_start(&self, image: &Image<'f>, address: u64) -> Option<u64> {
        let first = u64::from(self.u32_at(self.word(FUNCTIONS_OFFSET)? as usize)?);
        let of_module = |module: u64| {
            let text = relocated_word(image, module.checked_add(TEXT)?)?;
            let min_pc = relocated_word(image, module.checked_add(MIN_PC)?)?;
            (min_pc == text.checked_add(first)?).then_some(text)
        };
        self.word(TEXT_START)
            .filter(|text| *text != 0)
            .or_else(|| modules(image, address).into_iter().find_map(of_module))
            .or_else(|| image.section(".text").map(|section| section.address))
    }
}

/// Where the address of the table is stored, or will be: `runtime.moduledata` begins with it.
fn modules(image: &Image, table: u64) -> Vec<u64> {
    let sections = MODULE_NAMES.iter().filter_map(|name| image.section(name));
    let stored = sections.flat_map(|section| {
        let words = section
            .data
            .chunks_exact(8)
            .map(word_of)
            .zip((section.address..).step_by(8));
        words.filter(|(word, _)| *word == table).map(|(_, address)| address)
    });
    let relocated = relocations(image).filter(|(_, target)| *target == table);
    stored
        .chain(relocated.map(|(address, _)| address))
        .take(MAX_CANDIDATES)
        .collect()
}

/// What the dynamic linker writes: where, and which address of this object (`Elf64_Rela`).
fn relocations<'f>(image: &Image<'f>) -> impl Iterator<Item = (u64, u64)> {
    let sections = RELOCATION_NAMES.iter().filter_map(|name| image.section(name));
    let entries = sections.flat_map(|section| section.data.chunks_exact(24));
    entries.map(|entry| (word_of(&entry[..8]), word_of(&entry[16..])))
}

/// The word at an address, once the dynamic linker has been there.
fn relocated_word(image: &Image, address: u64) -> Option<u64> {
    match image
        .loaded(address)?
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes))?
    {
        0 => relocations(image)
            .find(|(place, _)| *place == address)
            .map(|(_, target)| target),
        word => Some(word),
    }
}

/// A word of 8 bytes.
fn word_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Goes through a function's pc table: from each address on, how many bytes it has on the stack.
#[derive(Clone, Debug)]
pub(super) struct StackBytes<'f> {
    table: &'f [u8],
    /// What is left of the function.
    addresses: Range<u64>,
    /// None before the first.
    value: Option<i32>,
    quantum: u64,
}

impl StackBytes<'_> {
    fn varint(&mut self) -> Option<u32> {
        let mut value = 0;
        for shift in (0..32).step_by(7) {
            let (byte, rest) = self.table.split_first()?;
            self.table = rest;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl Iterator for StackBytes<'_> {
    type Item = (u64, i32);

    fn next(&mut self) -> Option<(u64, i32)> {
        let change = self.varint()?;
        let bytes = u64::from(self.varint()?).checked_mul(self.quantum)?;
        let is_end = change == 0 && self.value.is_some();
        if is_end || bytes == 0 || self.addresses.is_empty() {
            return None;
        }
        let change = (change >> 1) as i32 ^ -((change & 1) as i32);
        let value = self.value.unwrap_or(-1).wrapping_add(change);
        self.value = Some(value);
        let start = self.addresses.start;
        self.addresses.start = start.saturating_add(bytes);
        Some((start, value))
    }
}
