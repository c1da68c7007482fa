//! Python's strings and bytes in a process's memory, as PEP 393 lays them out.

use super::layout::{Bytes, Text};
use super::memory::{Memory, Unreadable, further, read_pointer};
use crate::address::ProcessAddr;

/// Characters of a name to read; file systems allow paths of 4,096 bytes.
const MAX_TEXT_CHARS: u64 = 4096;

/// Stands for the rest of a name that is longer.
const REST: char = '…';

/// Bytes up to the characters in every layout: 32 of an object's head when free-threaded, 48 more.
const MAX_HEAD_BYTES: usize = 128;

/// What the state of a string has above the size of a character: two bits.
const COMPACT: u32 = 1 << 3;
const ASCII: u32 = 1 << 4;

/// A string: what is no character of any language is escaped like `\udc80`, as in Python, and names that are too long
/// end with `…`. None when there is no string.
pub(super) fn read_text(memory: &dyn Memory, layout: &Text, at: ProcessAddr) -> Result<Option<String>, Unreadable> {
    let mut head = [0; MAX_HEAD_BYTES];
    let head = &mut head[..MAX_HEAD_BYTES.min(layout.ascii.into())];
    memory.read(at, head)?;
    let (Some(length), Some(state)) = (u64_in(head, layout.length), u32_in(head, layout.state)) else {
        return Ok(None);
    };
    let state = state >> layout.kind_bit;
    let char_bytes = match state & 7 {
        size @ (1 | 2 | 4) => size as usize,
        _ => return Ok(None),
    };
    let Some(start) = characters(memory, layout, at, state)? else {
        return Ok(None);
    };
    let mut characters = vec![0; length.min(MAX_TEXT_CHARS) as usize * char_bytes];
    memory.read(start, &mut characters)?;
    let mut text = decode(&characters, char_bytes);
    if length > MAX_TEXT_CHARS {
        text.push(REST);
    }
    Ok(Some(text))
}

/// Where the characters are: after the head, or where that points to in instances of subclasses.
fn characters(
    memory: &dyn Memory,
    layout: &Text,
    at: ProcessAddr,
    state: u32,
) -> Result<Option<ProcessAddr>, Unreadable> {
    match (state & COMPACT != 0, state & ASCII != 0) {
        (true, true) => Ok(Some(further(at, layout.ascii))),
        (true, false) => Ok(Some(further(at, layout.other))),
        (false, _) => read_pointer(memory, further(at, layout.other)),
    }
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
    let length = super::memory::read_u64(memory, further(at, layout.length))?;
    let mut contents = vec![0; length.min(max) as usize];
    memory.read(further(at, layout.contents), &mut contents)?;
    Ok(contents)
}

pub(super) fn u64_in(bytes: &[u8], offset: u16) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset.into()..)?.first_chunk()?))
}

pub(super) fn u32_in(bytes: &[u8], offset: u16) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset.into()..)?.first_chunk()?))
}
