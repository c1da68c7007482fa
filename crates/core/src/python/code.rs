//! Code objects: what a function, a class body or a module was compiled to.

use hashbrown::HashMap;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::bytecode::Bytecode;
use super::layout::{Layout, Names};
use super::lines::{Lines, Position};
use super::memory::{Memory, Unreadable, further, read_u64};
use super::module::module_of;
use super::object::{read_bytes, read_text, u32_in, u64_in};
use crate::address::ProcessAddr;

/// Bytes of a line table to read: functions have some hundred, the largest generated modules 600 KB.
const MAX_LINES_BYTES: u64 = 1 << 20;

/// A code object as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `co_name`, like `run`, `<module>` or `<lambda>`.
    pub name: String,
    /// `co_qualname`, like `Server.run`. From 3.11 on.
    pub qualified_name: Option<String>,
    /// `co_filename`, as the interpreter has it: a path, or a name like `<string>`.
    pub file: String,
    /// `co_firstlineno`.
    pub first_line: u32,
    /// The same for the same code, also in other processes.
    pub hash: u64,
    /// Whether the object is still the same.
    pub fingerprint: Fingerprint,
    /// What tells it in a sample from another one that had its address: [`tag`] of the pointers to its names; 0 where
    /// they do not follow each other.
    pub tag: u16,
    lines: Kept,
}

/// What is kept of where its instructions are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// All.
    Table(Lines),
    /// Of the instructions that will be asked for.
    Positions(HashMap<i64, Position>),
}

/// Tells an object from another one that later has its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

/// Why there is no code object at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCode {
    /// The process is gone, or the address never was one.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// It is another object, or it became another one meanwhile.
    #[error("what is there is no code object, or none any more")]
    Other,
}

/// Reads the code objects of one process.
#[derive(Clone, Copy)]
pub struct Codes<'m> {
    memory: &'m dyn Memory,
    layout: &'m Layout,
    /// `PyCode_Type`, where the interpreter's file tells.
    kind: Option<ProcessAddr>,
}

/// The fields of an object, read at once.
struct Head {
    name: ProcessAddr,
    qualified_name: Option<ProcessAddr>,
    file: ProcessAddr,
    lines: ProcessAddr,
    first_line: i32,
    /// What points to its file, its names and its lines, in the order of the object; empty where they are no row.
    row: Vec<u64>,
}

impl Head {
    fn fingerprint(&self) -> Fingerprint {
        let pointers = [self.name, self.file, self.lines].map(|pointer| pointer.0.to_le_bytes());
        Fingerprint(xxh3_64(
            &[pointers.as_flattened(), &self.first_line.to_le_bytes()].concat(),
        ))
    }
}

impl<'m> Codes<'m> {
    pub(super) fn new(memory: &'m dyn Memory, layout: &'m Layout, kind: Option<ProcessAddr>) -> Self {
        Self { memory, layout, kind }
    }

    /// What the object is at an address. One read: it is asked before an object that was read before is believed.
    pub fn fingerprint(&self, at: ProcessAddr) -> Result<Fingerprint, NotCode> {
        Ok(self.head(at)?.fingerprint())
    }

    /// What tells the object at an address from another one, as in samples.
    pub fn tag(&self, at: ProcessAddr) -> Result<u16, NotCode> {
        Ok(self.tag_of(&self.head(at)?))
    }

    /// The object at an address.
    pub fn read(&self, at: ProcessAddr) -> Result<Code, NotCode> {
        let head = self.head(at)?;
        let layout = self.layout;
        let lines = Lines {
            counted: layout.walk.counted,
            first_line: head.first_line,
            table: read_bytes(self.memory, &layout.bytes, head.lines, MAX_LINES_BYTES)?,
        };
        let qualified_name = head.qualified_name.map(|name| self.text(name)).transpose()?;
        let (name, file) = (self.text(head.name)?, self.text(head.file)?);
        let fingerprint = head.fingerprint();
        if self.fingerprint(at)? != fingerprint {
            return Err(NotCode::Other);
        }
        Ok(Code {
            hash: hash(qualified_name.as_ref().unwrap_or(&name), &file, &lines),
            name,
            qualified_name,
            file,
            first_line: u32::try_from(lines.first_line).unwrap_or(0),
            fingerprint,
            tag: self.tag_of(&head),
            lines: Kept::Table(lines),
        })
    }

    /// Where its bytecode is; None where threads have no copies.
    pub fn bytecode(&self, at: ProcessAddr) -> Result<Option<Bytecode>, Unreadable> {
        Bytecode::read(self.memory, &self.layout.walk, at)
    }

    fn head(&self, at: ProcessAddr) -> Result<Head, NotCode> {
        let layout = &self.layout.code;
        let last = [
            Some(layout.name),
            layout.qualified_name,
            Some(layout.file),
            Some(layout.lines),
        ];
        let names = self.layout.names();
        let bytes = last.into_iter().flatten().max().unwrap_or(0) + 8;
        let mut bytes = vec![0; bytes.max(layout.first_line + 4).max(layout.kind + 8).into()];
        self.memory.read(at, &mut bytes)?;
        let pointer = |offset| u64_in(&bytes, offset).map(ProcessAddr).ok_or(NotCode::Other);
        if self.kind.is_some_and(|kind| pointer(layout.kind) != Ok(kind)) {
            return Err(NotCode::Other);
        }
        Ok(Head {
            name: pointer(layout.name)?,
            qualified_name: layout.qualified_name.map(pointer).transpose()?,
            file: pointer(layout.file)?,
            lines: pointer(layout.lines)?,
            first_line: u32_in(&bytes, layout.first_line).ok_or(NotCode::Other)? as i32,
            row: names.map_or(Vec::new(), |names| words_in(&bytes, names)),
        })
    }

    /// Pointers alone do not do: the next object often has its parts where the last one had them.
    fn tag_of(&self, head: &Head) -> u16 {
        let Some(names) = self.layout.names() else { return 0 };
        let hash = read_u64(self.memory, further(head.name, names.hash));
        tag(head.row.iter().copied().chain([hash.unwrap_or(0)]))
    }

    fn text(&self, at: ProcessAddr) -> Result<String, NotCode> {
        read_text(self.memory, &self.layout.text, at)?.ok_or(NotCode::Other)
    }
}

/// As `read_tag` of `bpf/stack/python.h` has it.
pub fn tag(words: impl Iterator<Item = u64>) -> u16 {
    (words.fold(0, |hash: u64, word| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 48) as u16
}

fn words_in(object: &[u8], names: Names) -> Vec<u64> {
    (0..names.words)
        .map_while(|word| u64_in(object, names.offset + 8 * word))
        .collect()
}

/// XXH3 of name ‖ 0 ‖ file ‖ 0 ‖ first line (4 bytes, little-endian) ‖ line table.
fn hash(name: &str, file: &str, lines: &Lines) -> u64 {
    let mut hash = Xxh3::new();
    for part in [
        name.as_bytes(),
        b"\0",
        file.as_bytes(),
        b"\0",
        &lines.first_line.to_le_bytes(),
        &lines.table,
    ] {
        hash.update(part);
    }
    hash.digest()
}

impl Code {
    /// Where an instruction is in the source: as a frame says it, or, from 3.11 on, its distance from the code object.
    pub fn position(&self, instruction: i64) -> Position {
        match &self.lines {
            Kept::Table(lines) => lines.position(instruction),
            Kept::Positions(known) => known.get(&instruction).copied().unwrap_or_default(),
        }
    }

    /// Whether it knows where each of its instructions is.
    pub fn is_whole(&self) -> bool {
        matches!(self.lines, Kept::Table(_))
    }

    /// The same without its line table, for when no other instructions than these will be asked for.
    pub fn settled(&self, instructions: impl Iterator<Item = i64>) -> Self {
        let known = instructions.map(|instruction| (instruction, self.position(instruction)));
        Self {
            name: self.name.clone(),
            qualified_name: self.qualified_name.clone(),
            file: self.file.clone(),
            lines: Kept::Positions(known.collect()),
            ..*self
        }
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        let qualified = self.qualified_name.as_ref().map_or(0, String::len);
        let lines = match &self.lines {
            Kept::Table(lines) => lines.table.len(),
            Kept::Positions(known) => known.allocation_size(),
        };
        size_of::<Self>() + self.name.len() + qualified + self.file.len() + lines
    }

    /// The name to show: `module.function`, both qualified as far as can be known from outside.
    ///
    /// A code object does not say which module it is of, so it is taken from the file (`json/decoder.py` of the
    /// standard library is `json.decoder`, a script its own name). Modules' own code is `module.<module>`; what comes
    /// from no file is the function's name alone.
    pub fn shown_name(&self) -> String {
        let function = self.qualified_name.as_ref().unwrap_or(&self.name);
        match module_of(&self.file) {
            Some(module) => format!("{module}.{function}"),
            None => function.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{CODE, fake_3_11, python_3_11};
    use super::super::memory::further;
    use super::*;
    use crate::random::Random;

    /// Names with any letters, and where each instruction is.
    #[test]
    fn code_objects_are_read() {
        let memory = fake_3_11();
        let python = python_3_11(&memory);
        let code = python.codes(&memory).read(CODE).unwrap();
        assert_eq!((code.name.as_str(), code.file.as_str()), ("größe", "/srv/вес.py"));
        assert_eq!(code.shown_name(), "вес.Straße.größe");
        assert_eq!(code.position(184).column, Some(3));
        assert_eq!(code.position(182).line, Some(40));
    }

    /// The same code has the same hash wherever it lies; another line makes it other code.
    #[test]
    fn hashes_follow_the_contents() {
        let mut memory = fake_3_11();
        let python = python_3_11(&memory);
        let code = python.codes(&memory).read(CODE).unwrap();
        memory.write_text(
            ProcessAddr(0x60_0000),
            &"größe".chars().map(u32::from).collect::<Vec<_>>(),
            1,
        );
        memory.write(further(CODE, 120_u32), 0x60_0000);
        let moved = python.codes(&memory).read(CODE).unwrap();
        assert_eq!(moved.hash, code.hash);
        assert_ne!(moved.fingerprint, code.fingerprint);
        memory.write(further(CODE, 72_u32), 41);
        assert_ne!(python.codes(&memory).read(CODE).unwrap().hash, code.hash);
    }

    /// As where code is compiled again and again: all of the next object lies where the last one did.
    #[test]
    fn tags_tell_objects_apart_whose_names_have_the_same_places() {
        let mut memory = fake_3_11();
        let python = python_3_11(&memory);
        let first = python.codes(&memory).read(CODE).unwrap();
        assert_eq!(python.codes(&memory).tag(CODE), Ok(first.tag));
        memory.write(
            further(python.codes(&memory).head(CODE).unwrap().name, 24_u32),
            0x1234_5678,
        );
        let next = python.codes(&memory).read(CODE).unwrap();
        assert_eq!(next.fingerprint, first.fingerprint);
        assert_ne!(next.tag, first.tag);
    }

    /// Without its line table it knows the places that were asked for, and takes less memory.
    #[test]
    fn settled_code_keeps_the_places_that_were_asked_for() {
        let memory = fake_3_11();
        let code = python_3_11(&memory).codes(&memory).read(CODE).unwrap();
        let settled = code.settled([184].into_iter());
        assert_eq!(settled.position(184), code.position(184));
        assert_eq!(settled.position(182), Position::default());
        assert_eq!((settled.shown_name(), settled.hash), (code.shown_name(), code.hash));
        assert!(code.is_whole() && !settled.is_whole());
    }

    /// What Python escapes is escaped, and endless names end.
    #[test]
    fn odd_names_are_readable() {
        let mut memory = fake_3_11();
        let python = python_3_11(&memory);
        let name = ProcessAddr(0x60_0000);
        memory.write(further(CODE, 120_u32), name.0);
        memory.write_text(name, &[0x61, 0xdc80, 0x62], 2);
        assert_eq!(python.codes(&memory).read(CODE).unwrap().name, "a\\udc80b");
        memory.write_text(name, &[0x1f40d, 0x7fff_ffff], 4);
        assert_eq!(python.codes(&memory).read(CODE).unwrap().name, "🐍\\U7fffffff");
        memory.write_text(name, &vec![0x78; 5000], 1);
        memory.write(further(name, 16_u32), u64::MAX);
        let read = python.codes(&memory).read(CODE).unwrap();
        assert_eq!((read.name.chars().count(), read.name.chars().last()), (4097, Some('…')));
    }

    /// Instances of subclasses of `str` have their letters elsewhere; a name at the end of memory is read as well.
    #[test]
    fn names_are_read_wherever_they_are() {
        let mut memory = fake_3_11();
        let python = python_3_11(&memory);
        let last = ProcessAddr(0x60_0fc8); // 56 bytes, of a page without a next one
        memory.write(further(CODE, 120_u32), last.0);
        memory.write_text(last, &[0x61, 0x62], 1);
        assert_eq!(python.codes(&memory).read(CODE).unwrap().name, "ab");
        let instance = ProcessAddr(0x61_0000);
        memory.write(further(CODE, 120_u32), instance.0);
        memory.write(further(instance, 16_u32), 3);
        memory.write(further(instance, 32_u32), 1 << 2 | 1 << 6);
        memory.write(further(instance, 72_u32), 0x62_0000);
        memory.write_bytes(ProcessAddr(0x62_0000), b"abc");
        assert_eq!(python.codes(&memory).read(CODE).unwrap().name, "abc");
    }

    /// Objects of another type are refused where the type is known.
    #[test]
    fn other_objects_are_no_code() {
        let memory = fake_3_11();
        let python = python_3_11(&memory);
        let codes = Codes::new(&memory, &python.layout, Some(ProcessAddr(0x1234)));
        assert_eq!(codes.read(CODE), Err(NotCode::Other));
        let nowhere = ProcessAddr(u64::MAX - 3);
        assert_eq!(
            python.codes(&memory).read(nowhere),
            Err(NotCode::Unreadable(Unreadable(nowhere)))
        );
    }

    /// An object that is overwritten while it is read is an error or another object, never a panic.
    #[test]
    fn overwritten_objects_do_no_harm() {
        let mut random = Random::new(5);
        let whole = fake_3_11();
        let python = python_3_11(&whole);
        for _ in 0..3000 {
            let mut memory = whole.clone();
            for _ in 0..4 {
                let object = ProcessAddr(CODE.0 + 0x1_0000 * u64::from(random.below(5)));
                memory.write_bytes(further(object, random.below(192)), &[random.next() as u8]);
            }
            if let Ok(code) = python.codes(&memory).read(CODE) {
                let _ = (code.position(random.next() as i64), code.shown_name());
            }
        }
    }
}
