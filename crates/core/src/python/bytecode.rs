//! Where the bytecode of a code object is. In free-threaded CPython since 3.14 each thread executes a copy of its own, but
//! for the first one, so that it can be specialized without a lock.

use super::layout::{Counted, Walk};
use super::memory::{Memory, Unreadable, further, read_array, read_i32, read_u64};
use super::object::read_words;
use crate::address::ProcessAddr;

/// Copies to know of one code object: there are never more than threads were running at once.
const MAX_COPIES: u64 = 4096;

/// Bytes of an instruction, or of a part of it that is counted.
const UNIT_BYTES: u64 = 2;

/// A code object's bytecode and the copies of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytecode {
    own: u64,
    copies: Vec<u64>,
    bytes: u64,
}

impl Bytecode {
    /// Of the code object at an address; None where there are no copies.
    pub(super) fn read(memory: &dyn Memory, walk: &Walk, at: ProcessAddr) -> Result<Option<Self>, Unreadable> {
        let (Some(copies), Counted::Pointer { bytecode }) = (walk.copies, walk.counted) else {
            return Ok(None);
        };
        let array = ProcessAddr(read_u64(memory, further(at, copies.array))?);
        let count = u64::from_le_bytes(read_array(memory, array)?).min(MAX_COPIES);
        let starts = read_words(memory, further(array, 8_u32), count as usize)?;
        let units = read_i32(memory, further(at, copies.units))?;
        Ok(Some(Self {
            own: further(at, bytecode).0,
            copies: starts,
            bytes: UNIT_BYTES * u64::try_from(units).unwrap_or(0),
        }))
    }

    /// The same instruction in the code object's own bytecode. None when it is in none that was there.
    pub fn own(&self, instruction: u64) -> Option<u64> {
        let distance = |start: &u64| instruction.wrapping_sub(*start);
        let distances = std::iter::once(&self.own).chain(&self.copies).map(distance);
        let within = distances.into_iter().find(|distance| *distance < self.bytes);
        within.map(|distance| self.own + distance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever a thread executes it, an instruction is the same; one of other code is none.
    #[test]
    fn instructions_of_copies_are_those_of_the_original() {
        let bytecode = Bytecode {
            own: 1000,
            copies: vec![1000, 0, 5000],
            bytes: 40,
        };
        assert_eq!(bytecode.own(1038), Some(1038));
        assert_eq!(bytecode.own(5006), Some(1006));
        assert_eq!(bytecode.own(5040), None);
        assert_eq!(bytecode.own(999), None);
    }
}
