//! Go's own table of its functions, which every Go program has, also a stripped one: `runtime.pclntab`, as
//! `debug/gosym/pclntab.go` and `runtime/symtab.go` read it.
//!
//! ```text
//! header     magic, quantum, pointer size, then 8 bytes each: functions, files, address of the code (Go 1.18 to 1.25),
//!            offsets of names, units, file names, pc tables, and functions; of all these Go 1.2 has the first only
//! functions  in pairs: where it starts, offset of what is said of it. From Go 1.18 on of 4 bytes each, the start
//!            counted from the code's; before that of 8 bytes each
//! function   start, name, …, offsets of pc tables, unit, flags; then offsets of more pc tables, and of data
//! unit       offsets of file names (`cutab`); before Go 1.16 one list for all
//! pc table   varints in pairs: what the value changes by, and for how much code it holds
//! ```

use std::ops::Range;

use crate::image::{Image, Machine, half_word_at, word_at};

/// Sections that the table is in. The second is that of Go 1.18 to 1.25 in position-independent programs.
const NAMES: [&str; 2] = [".gopclntab", ".data.rel.ro.gopclntab"];

/// Sections that `runtime.firstmoduledata` may be in, or what the dynamic linker writes there.
const MODULE_NAMES: [&str; 4] = [".go.module", ".noptrdata", ".data", ".data.rel.ro"];

/// Places to look at that happen to hold the table's address.
const MAX_CANDIDATES: usize = 16;

/// Fields of `runtime.moduledata`: a pointer and six slices come first.
const MIN_PC: u64 = 8 + 6 * 24 + 8;
const TEXT: u64 = MIN_PC + 16;

/// Its field `gofunc`, where Go 1.20 put two others before it. Since Go 1.26 the end of the table follows it, by which it
/// is found: Go 1.27 put three more before it.
const GO_FUNC_1_18: u64 = TEXT + 16 * 8;
const GO_FUNC_1_20: u64 = GO_FUNC_1_18 + 16;
const MAX_GO_FUNC: u64 = GO_FUNC_1_20 + 16 * 8;

/// Bytes of the header before its words.
const HEAD_BYTES: usize = 8;

/// `runtime._func`, from its name on.
const STACK_TABLE: usize = 12;
const FILE_TABLE: usize = 16;
const LINE_TABLE: usize = 20;
const MORE_TABLES: usize = 24;
const UNIT: usize = 28;

/// From the flags on: how many data there are, and the offsets of tables and data.
const DATA_COUNT: usize = 2;
const OFFSETS: usize = 3;

/// Of the further tables and data, those that say what was inlined (`internal/abi/symtab.go`), since Go 1.16.
const INLINE_TABLE: usize = 2;
const INLINE_DATA: usize = 3;

/// Flags of a function (`internal/abi/symtab.go`).
const TOP_FRAME: u8 = 1;
const WRITES_STACK_POINTER: u8 = 2;
const ASSEMBLY: u8 = 4;

/// Bytes of a name to look at.
const MAX_NAME_BYTES: usize = 8 << 10;

/// Which Go wrote the table, or a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    Go1_2,
    Go1_16,
    Go1_18,
    Go1_20,
}

impl Version {
    fn of_magic(magic: u32) -> Option<Self> {
        match magic {
            0xffff_fffb => Some(Self::Go1_2),
            0xffff_fffa => Some(Self::Go1_16),
            0xffff_fff0 => Some(Self::Go1_18),
            0xffff_fff1 => Some(Self::Go1_20),
            _ => None,
        }
    }

    /// Bytes of an address.
    fn address_bytes(self) -> usize {
        if self < Self::Go1_18 { 8 } else { 4 }
    }

    /// Where a function's flags are, from its start. Go 1.20 put the function's line before them.
    fn flags(self) -> Option<usize> {
        match self {
            Self::Go1_2 | Self::Go1_16 => None,
            Self::Go1_18 => Some(37),
            Self::Go1_20 => Some(41),
        }
    }
}

/// The table of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pclntab<'f> {
    version: Version,
    /// Bytes of the shortest instruction.
    quantum: u64,
    /// Where the table is loaded.
    addresses: (u64, u64),
    /// What functions count their addresses from: `runtime.text`, or 0 before Go 1.18.
    text: u64,
    functions: usize,
    starts: &'f [u8],
    /// What is said of each function.
    said: &'f [u8],
    names: &'f [u8],
    units: &'f [u8],
    file_names: &'f [u8],
    pc_tables: &'f [u8],
}

/// A Go function.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) addresses: Range<u64>,
    /// Where what is said of it begins.
    at: usize,
    flags: u8,
}

impl Function {
    /// Whether it is the first of its stack.
    pub(crate) fn is_top(&self) -> bool {
        self.flags & TOP_FRAME != 0
    }

    /// Whether it moves to another stack.
    pub(crate) fn switches_stacks(&self) -> bool {
        self.flags & WRITES_STACK_POINTER != 0
    }

    /// Whether nobody but its author says what is in its frame.
    pub(crate) fn is_assembly(&self) -> bool {
        self.flags & ASSEMBLY != 0
    }
}

impl<'f> Pclntab<'f> {
    /// The table of a file; None when it is not Go's.
    pub(crate) fn find(image: &Image<'f>) -> Option<Self> {
        let section = NAMES.iter().find_map(|name| image.section(name))?;
        let data = section.data;
        let quantum = match image.machine {
            Machine::X86_64 => 1,
            Machine::Arm64 => 4,
        };
        let version = Version::of_magic(half_word_at(data, 0)?)?;
        if data.get(4..HEAD_BYTES)? != [0, 0, quantum, 8] {
            return None;
        }
        let end = section.address.checked_add(data.len() as u64)?;
        let table = Self::of_parts(version, quantum.into(), (section.address, end), data)?;
        let text = match version {
            Version::Go1_2 | Version::Go1_16 => 0,
            Version::Go1_18 | Version::Go1_20 => table.text_start(image, word(data, 2)?)?,
        };
        Some(Self { text, ..table })
    }

    fn of_parts(version: Version, quantum: u64, addresses: (u64, u64), data: &'f [u8]) -> Option<Self> {
        let functions = word(data, 0)? as usize;
        let part = |index| data.get(word(data, index)? as usize..);
        let first = if version == Version::Go1_16 { 2 } else { 3 };
        let table = Self {
            version,
            quantum,
            addresses,
            text: 0,
            functions,
            starts: data,
            said: data,
            names: data,
            units: data,
            file_names: data,
            pc_tables: data,
        };
        if version == Version::Go1_2 {
            let starts = data.get(HEAD_BYTES + 8..)?;
            let end = functions.checked_mul(16)?.checked_add(8)?;
            let units = data.get(half_word_at(starts, end)? as usize..)?;
            return Some(Self { starts, units, ..table });
        }
        Some(Self {
            names: part(first)?,
            units: part(first + 1)?,
            file_names: part(first + 2)?,
            pc_tables: part(first + 3)?,
            said: part(first + 4)?,
            starts: part(first + 4)?,
            ..table
        })
    }

    /// Whether it has the flags that tell functions apart.
    pub(crate) fn has_flags(&self) -> bool {
        self.version.flags().is_some()
    }

    /// A function by its index.
    pub(crate) fn function(&self, index: usize) -> Option<Function> {
        if index >= self.functions {
            return None;
        }
        let at = self.start_at(index.checked_mul(2)?.checked_add(1)?)? as usize;
        let flags = match self.version.flags() {
            Some(flags) => *self.said.get(at.checked_add(flags)?)?,
            None => 0,
        };
        let addresses = self.start(index)?..self.start(index + 1)?;
        Some(Function { addresses, at, flags })
    }

    /// The function that has an address.
    pub(crate) fn function_at(&self, address: u64) -> Option<Function> {
        let (mut first, mut end) = (0, self.functions);
        while first < end {
            let middle = first + (end - first) / 2;
            if self.start(middle)? <= address {
                first = middle + 1;
            } else {
                end = middle;
            }
        }
        let function = self.function(first.checked_sub(1)?)?;
        function.addresses.contains(&address).then_some(function)
    }

    fn start(&self, index: usize) -> Option<u64> {
        self.start_at(index.checked_mul(2)?)?.checked_add(self.text)
    }

    /// A number among starts and offsets.
    fn start_at(&self, place: usize) -> Option<u64> {
        match self.version.address_bytes() {
            4 => half_word_at(self.starts, place.checked_mul(4)?).map(u64::from),
            _ => word_at(self.starts, place.checked_mul(8)?),
        }
    }

    /// A function's name.
    pub(crate) fn name(&self, function: &Function) -> Option<&'f [u8]> {
        self.name_at(self.field(function, 0)?)
    }

    /// None where no name begins.
    fn name_at(&self, offset: u32) -> Option<&'f [u8]> {
        let before = (offset as usize).checked_sub(1);
        let is_begin = before.is_none_or(|before| self.names.get(before) == Some(&0));
        text_at(self.names, offset as usize).filter(|_| is_begin)
    }

    /// How many bytes a function has on the stack, without the return address on x86-64, from each address on.
    pub(crate) fn stack_bytes(&self, function: &Function) -> PcValues<'f> {
        self.values(function, self.field(function, STACK_TABLE).unwrap_or(0))
    }

    /// The file and the line of an address in a function; `steps` bounds how far that is searched for.
    pub(crate) fn line_at(&self, function: &Function, address: u64, steps: &mut u64) -> Option<(&'f [u8], u32)> {
        let mut value = |table| {
            let values = self.values(function, self.field(function, table)?);
            values.at(address, steps)
        };
        let file = u32::try_from(value(FILE_TABLE)?).ok()?;
        let line = u32::try_from(value(LINE_TABLE)?).ok()?;
        Some((self.file_name(function, file)?, line))
    }

    fn file_name(&self, function: &Function, file: u32) -> Option<&'f [u8]> {
        let unit = match self.version {
            Version::Go1_2 => 0,
            _ => self.field(function, UNIT)?,
        };
        let entry = (unit as usize).checked_add(file as usize)?.checked_mul(4)?;
        text_at(self.file_names, half_word_at(self.units, entry)? as usize)
    }

    fn values(&self, function: &Function, table: u32) -> PcValues<'f> {
        let table = self.pc_tables.get(table as usize..).filter(|_| table != 0);
        PcValues {
            table: table.unwrap_or_default(),
            addresses: function.addresses.clone(),
            value: None,
            quantum: self.quantum,
        }
    }

    /// What is said of a function, so many bytes from its name's offset.
    fn field(&self, function: &Function, offset: usize) -> Option<u32> {
        let at = function.at.checked_add(self.version.address_bytes())?;
        half_word_at(self.said, at.checked_add(offset)?)
    }

    /// `runtime.text`: as the header says it, or as the runtime's module does, or the beginning of all code.
    fn text_start(&self, image: &Image<'f>, stated: u64) -> Option<u64> {
        if stated != 0 {
            return Some(stated);
        }
        let first = self.start(0)?;
        let of_module = |module: u64| {
            let text = relocated_word(image, module.checked_add(TEXT)?)?;
            let min_pc = relocated_word(image, module.checked_add(MIN_PC)?)?;
            (min_pc == text.checked_add(first)?).then_some(text)
        };
        let modules = modules(image, self.addresses.0);
        let text = modules.into_iter().find_map(of_module);
        text.or_else(|| image.section(".text").map(|section| section.address))
    }

    /// What was inlined where, as far as the runtime's module says where that is. Before Go 1.18 it is told in ways that
    /// the table's version does not tell apart.
    pub(crate) fn inline_trees(&self, image: &Image<'f>) -> Option<InlineTrees<'f>> {
        let (record_bytes, name, parent) = match self.version {
            Version::Go1_2 | Version::Go1_16 => return None,
            Version::Go1_18 => (20, 12, 16),
            Version::Go1_20 => (16, 4, 8),
        };
        let is_ours = |module: &u64| relocated_word(image, module.wrapping_add(TEXT)) == Some(self.text);
        let module = modules(image, self.addresses.0).into_iter().find(is_ours)?;
        Some(InlineTrees {
            data: image.loaded(self.go_func(image, module)?)?,
            record_bytes,
            name,
            parent,
        })
    }

    /// `gofunc` of the runtime's module: what inline trees count from.
    fn go_func(&self, image: &Image<'f>, module: u64) -> Option<u64> {
        let field = |offset: u64| relocated_word(image, module.checked_add(offset)?);
        if self.version == Version::Go1_18 {
            return field(GO_FUNC_1_18);
        }
        let mut fields = (GO_FUNC_1_20..MAX_GO_FUNC).step_by(8);
        let found = fields.find(|offset| field(offset + 8) == Some(self.addresses.1));
        field(found.unwrap_or(GO_FUNC_1_20))
    }

    /// The function that was inlined at an address of another; None where none was.
    pub(crate) fn inlined_at(
        &self,
        trees: &InlineTrees<'f>,
        function: &Function,
        address: u64,
        steps: &mut u64,
    ) -> Option<Inlined<'f>> {
        let tables = self.field(function, MORE_TABLES)? as usize;
        let at = function.at.checked_add(self.version.flags()?)?;
        let data = *self.said.get(at + DATA_COUNT)? as usize;
        if tables <= INLINE_TABLE || data <= INLINE_DATA {
            return None;
        }
        let offset = |index: usize| half_word_at(self.said, at.checked_add(OFFSETS + 4 * index)?);
        let index = self.values(function, offset(INLINE_TABLE)?).at(address, steps)?;
        let tree = offset(tables.checked_add(INLINE_DATA)?)?;
        let record = trees.record(tree, u32::try_from(index).ok()?)?;
        let inlined = Inlined {
            name: self.name_at(half_word_at(record, trees.name)?)?,
            call: (function.addresses.start).checked_add(half_word_at(record, trees.parent)?.into())?,
        };
        function.addresses.contains(&inlined.call).then_some(inlined)
    }
}

/// `go:func.*`: for each function the calls that were inlined into it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineTrees<'f> {
    data: &'f [u8],
    record_bytes: usize,
    /// Where in a record the name's offset is, and the offset of the call in the function.
    name: usize,
    parent: usize,
}

impl<'f> InlineTrees<'f> {
    fn record(&self, tree: u32, index: u32) -> Option<&'f [u8]> {
        let start = (index as usize).checked_mul(self.record_bytes)?;
        self.data.get((tree as usize).checked_add(start)?..)
    }
}

/// A function that was inlined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inlined<'f> {
    pub(crate) name: &'f [u8],
    /// An address of the function that it was inlined into, with the file and line of the call.
    pub(crate) call: u64,
}

/// A word of the header.
fn word(data: &[u8], index: usize) -> Option<u64> {
    word_at(data, HEAD_BYTES + 8 * index)
}

/// Text that ends in 0.
fn text_at(data: &[u8], offset: usize) -> Option<&[u8]> {
    let text = data.get(offset..)?;
    let text = &text[..text.len().min(MAX_NAME_BYTES)];
    let end = memchr::memchr(0, text)?;
    Some(&text[..end]).filter(|text| !text.is_empty())
}

/// Where the address of the table is stored, or will be: `runtime.moduledata` begins with it.
fn modules(image: &Image, table: u64) -> Vec<u64> {
    let sections = MODULE_NAMES.iter().filter_map(|name| image.section(name));
    let stored = sections.flat_map(|section| {
        let words = section.data.chunks_exact(8).map(|word| word_at(word, 0));
        let words = words.zip((section.address..).step_by(8));
        words
            .filter(|(word, _)| *word == Some(table))
            .map(|(_, address)| address)
    });
    let relocated = image.relocations().filter(|relocation| relocation.addend == table);
    stored
        .chain(relocated.map(|relocation| relocation.address))
        .take(MAX_CANDIDATES)
        .collect()
}

/// The word at an address, once the dynamic linker has been there.
fn relocated_word(image: &Image, address: u64) -> Option<u64> {
    let relocated = || image.relocations().find(|relocation| relocation.address == address);
    match word_at(image.loaded(address)?, 0)? {
        0 => relocated().map(|relocation| relocation.addend),
        word => Some(word),
    }
}

/// Goes through one of a function's pc tables: from each address on, the value that holds there.
#[derive(Clone, Debug)]
pub(crate) struct PcValues<'f> {
    table: &'f [u8],
    /// What is left of the function.
    addresses: Range<u64>,
    /// None before the first.
    value: Option<i32>,
    quantum: u64,
}

impl PcValues<'_> {
    /// The value at an address, if it takes no more than so many steps.
    fn at(self, address: u64, steps: &mut u64) -> Option<i32> {
        let mut found = None;
        for (start, value) in self {
            if start > address {
                return found;
            }
            *steps = steps.checked_sub(1)?;
            found = Some(value);
        }
        found
    }

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

impl Iterator for PcValues<'_> {
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
