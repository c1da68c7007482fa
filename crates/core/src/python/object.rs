//! Python's strings and bytes in a process's memory, as PEP 393 lays them out.

use super::layout::{Bytes, Text};
use super::memory::{Memory, Unreadable, further, within_page};
use crate::address::ProcessAddr;

/// Characters of a name to read; file systems allow paths of 4,096 bytes.
const MAX_TEXT_CHARS: u64 = 4096;

/// Stands for the rest of a name that is longer.
const REST: char = '…';

/// Bytes to read at first: most objects are shorter, and a read takes as long as copying some kilobytes.
const FIRST_BYTES: usize = 256;

/// What the state of a string has above the size of a character: two bits.
const COMPACT: u32 = 1 << 3;
const ASCII: u32 = 1 << 4;

/// An object, of which the beginning was read.
struct Object<'m> {
    memory: &'m dyn Memory,
    at: ProcessAddr,
    beginning: Vec<u8>,
}

impl<'m> Object<'m> {
    /// At least its head, and more where that costs nothing.
    fn read(memory: &'m dyn Memory, at: ProcessAddr, head_bytes: u16) -> Result<Self, Unreadable> {
        let mut beginning = vec![0; within_page(at, FIRST_BYTES).max(head_bytes.into())];
        memory.read(at, &mut beginning)?;
        Ok(Self { memory, at, beginning })
    }

    fn u64(&self, offset: u16) -> u64 {
        u64_in(&self.beginning, offset).unwrap_or(0) // the head is there
    }

    fn pointer(&self, offset: u16) -> Result<ProcessAddr, Unreadable> {
        let bytes = self.contents(offset, size_of::<u64>())?;
        Ok(ProcessAddr(u64_in(&bytes, 0).unwrap_or(0)))
    }

    /// So many bytes from an offset on.
    fn contents(&self, offset: u16, bytes: usize) -> Result<Vec<u8>, Unreadable> {
        let offset = usize::from(offset);
        if let Some(contents) = self.beginning.get(offset..offset + bytes) {
            return Ok(contents.to_vec());
        }
        read_vec(self.memory, further(self.at, offset as u64), bytes)
    }
}

pub(super) fn read_vec(memory: &dyn Memory, at: ProcessAddr, bytes: usize) -> Result<Vec<u8>, Unreadable> {
    let mut contents = vec![0; bytes];
    memory.read(at, &mut contents)?;
    Ok(contents)
}

/// So many words.
pub(super) fn read_words(memory: &dyn Memory, at: ProcessAddr, count: usize) -> Result<Vec<u64>, Unreadable> {
    let bytes = read_vec(memory, at, 8 * count)?;
    Ok(bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect())
}

/// A string: what is no character of any language is escaped like `\udc80`, as in Python, and names that are too long
/// end with `…`. None when there is no string.
pub(super) fn read_text(memory: &dyn Memory, layout: &Text, at: ProcessAddr) -> Result<Option<String>, Unreadable> {
    let object = Object::read(memory, at, layout.ascii)?;
    let (length, state) = (
        object.u64(layout.length),
        object.u64(layout.state) as u32 >> layout.kind_bit,
    );
    let char_bytes = match state & 7 {
        size @ (1 | 2 | 4) => size as usize,
        _ => return Ok(None),
    };
    let bytes = length.min(MAX_TEXT_CHARS) as usize * char_bytes;
    let characters = match (state & COMPACT != 0, state & ASCII != 0) {
        (true, true) => object.contents(layout.ascii, bytes)?,
        (true, false) => object.contents(layout.other, bytes)?,
        // Instances of subclasses have them elsewhere.
        (false, _) => read_vec(memory, object.pointer(layout.other)?, bytes)?,
    };
    let mut text = decode(&characters, char_bytes);
    if length > MAX_TEXT_CHARS {
        text.push(REST);
    }
    Ok(Some(text))
}

fn decode(characters: &[u8], char_bytes: usize) -> String {
    let mut text = String::with_capacity(characters.len());
    for character in characters.chunks_exact(char_bytes) {
        let code = character
            .iter()
            .rev()
            .fold(0, |code, byte| code << 8 | u32::from(*byte));
        match char::from_u32(code) {
            Some(character) => text.push(character),
            None => text.push_str(&escaped(code)),
        }
    }
    text
}

fn escaped(code: u32) -> String {
    match code {
        0..=0xffff => format!("\\u{code:04x}"),
        _ => format!("\\U{code:08x}"),
    }
}

/// The first `max` bytes of a `bytes`.
pub(super) fn read_bytes(
    memory: &dyn Memory,
    layout: &Bytes,
    at: ProcessAddr,
    max: u64,
) -> Result<Vec<u8>, Unreadable> {
    let object = Object::read(memory, at, layout.contents)?;
    let length = object.u64(layout.length);
    object.contents(layout.contents, length.min(max) as usize)
}

pub(super) fn u64_in(bytes: &[u8], offset: u16) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset.into()..)?.first_chunk()?))
}

pub(super) fn u32_in(bytes: &[u8], offset: u16) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset.into()..)?.first_chunk()?))
}
