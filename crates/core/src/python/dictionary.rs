//! Python's dictionaries in a process's memory, as CPython 3.12 and 3.13 lay them out (`Include/internal/pycore_dict.h`).

use super::layout::Text;
use super::memory::{Memory, Unreadable, further, read_array, read_u64};
use super::object::{read_text, read_vec, u64_in};
use crate::address::ProcessAddr;

/// `PyDictObject.ma_keys`.
const KEYS: u32 = 32;

/// `PyDictKeysObject`: the logarithm of how many bytes its index has, what kinds of keys, how many entries. The index
/// and the entries come behind it.
const HEAD_BYTES: usize = 32;
const INDEX_BYTES_LOG2: usize = 9;
const KIND: usize = 10;
const COUNT: u16 = 24;

/// `DICT_KEYS_GENERAL`: before each entry's key is its hash. Else all keys are strings.
const GENERAL: u8 = 0;

/// Entries to look at: programs have some thousand modules.
const MAX_ENTRIES: u64 = 1 << 14;
const MAX_INDEX_LOG2: u8 = 24;

/// The value of a key that is a string.
pub(super) fn look_up(
    memory: &dyn Memory,
    text: &Text,
    dictionary: ProcessAddr,
    key: &str,
) -> Result<Option<ProcessAddr>, Unreadable> {
    for [at, value] in entries(memory, dictionary)? {
        if at != 0 && value != 0 && read_text(memory, text, ProcessAddr(at))?.as_deref() == Some(key) {
            return Ok(Some(ProcessAddr(value)));
        }
    }
    Ok(None)
}

/// Key and value of each entry; those that were taken out are null.
fn entries(memory: &dyn Memory, dictionary: ProcessAddr) -> Result<Vec<[u64; 2]>, Unreadable> {
    let keys = ProcessAddr(read_u64(memory, further(dictionary, KEYS))?);
    let head: [u8; HEAD_BYTES] = read_array(memory, keys)?;
    let words = if head[KIND] == GENERAL { 3 } else { 2 };
    let count = u64_in(&head, COUNT).unwrap_or(0).min(MAX_ENTRIES) as usize; // the head is there
    let index_bytes = 1_u64 << head[INDEX_BYTES_LOG2].min(MAX_INDEX_LOG2);
    let entries = read_vec(
        memory,
        further(keys, HEAD_BYTES as u64 + index_bytes),
        8 * words * count,
    )?;
    let entry = |entry: &[u8]| [words - 2, words - 1].map(|word| u64_in(entry, 8 * word as u16).unwrap_or(0));
    Ok(entries.chunks_exact(8 * words).map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, fake_3_11, python_3_11};
    use super::*;

    const DICTIONARY: ProcessAddr = ProcessAddr(0x70_0000);
    const TABLE: ProcessAddr = ProcessAddr(0x71_0000);
    const NAMES: [ProcessAddr; 2] = [ProcessAddr(0x72_0000), ProcessAddr(0x73_0000)];

    /// Of two entries behind one that was taken out; keys are strings, or anything.
    fn fake(is_general: bool) -> Fake {
        let mut memory = fake_3_11();
        memory.write(further(DICTIONARY, KEYS), TABLE.0);
        memory.write_bytes(further(TABLE, 8_u32), &[3, 3, u8::from(!is_general)]);
        memory.write(further(TABLE, COUNT), 3);
        let words = if is_general { 3 } else { 2 };
        for (at, (name, text)) in NAMES.into_iter().zip(["_asyncio", "näher"]).enumerate() {
            let value = HEAD_BYTES as u64 + 8 + 8 * words * (at as u64 + 2) - 8;
            memory.write_text(name, &text.chars().map(u32::from).collect::<Vec<_>>(), 1);
            memory.write(further(TABLE, value - 8), name.0);
            memory.write(further(TABLE, value), 100 + at as u64);
        }
        memory
    }

    fn found(memory: &Fake, key: &str) -> Result<Option<ProcessAddr>, Unreadable> {
        look_up(memory, &python_3_11(&fake_3_11()).layout.text, DICTIONARY, key)
    }

    #[test]
    fn values_are_found_by_their_names() {
        for memory in [fake(false), fake(true)] {
            assert_eq!(found(&memory, "_asyncio"), Ok(Some(ProcessAddr(100))));
            assert_eq!(found(&memory, "näher"), Ok(Some(ProcessAddr(101))));
            assert_eq!(found(&memory, "json"), Ok(None));
        }
    }

    /// Numbers of entries and sizes that cannot be are read up to some bound.
    #[test]
    fn dictionaries_that_lie_do_no_harm() {
        let mut memory = fake(false);
        memory.write(further(TABLE, COUNT), u64::MAX);
        assert!(found(&memory, "json").is_err());
        memory.write_bytes(further(TABLE, 9_u32), &[255]);
        assert!(found(&memory, "json").is_err());
    }
}
