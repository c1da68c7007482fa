//! Where a thread has the pointer to its thread state: in the C library's thread-specific data, whose key is CPython's
//! `autoTSSkey`. It is there also while the thread does not hold the lock.
//!
//! Neither the key nor the C library's structures are asked for: threads whose states are known are searched for the
//! pointer.
//!
//! ```text
//! glibc  pthread_self() + 0x310 (x86-64): 32 times {sequence number, odd while in use; value}
//!        for keys from 32 on, after those: pointers to more such blocks
//! musl   pthread_self() + 128 or so: pointer to an array of values, behind the descriptor in all threads but the first
//! ```

use hashbrown::HashMap;

use super::memory::{Memory, Unreadable, further, within_page};
use super::runtime::Thread;
use crate::address::ProcessAddr;

/// Bytes of a thread's descriptor to search: glibc's `struct pthread` has 2,304.
const DESCRIPTOR_BYTES: usize = 2304;

/// Bytes of a block of values: musl has 128 keys, glibc's blocks are half as large.
const BLOCK_BYTES: usize = 1024;

/// Threads to compare: what is by chance in one is not in the others.
const MAX_THREADS: usize = 16;

/// The lower half of the address space is the process's.
const MAX_USER_ADDRESS: u64 = 1 << 56;

const WORD_BYTES: usize = 8;

/// Where a thread has the pointer to its thread state, in bytes from `pthread_self()`. On x86-64 that is fsbase; on arm64
/// tpidr_el0 points behind what `pthread_self()` is, by as much as the C library chose. The pointer is null in threads
/// that never ran Python code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// There.
    Direct {
        /// Where the pointer is.
        offset: u16,
    },
    /// One step further.
    Indirect {
        /// Where the pointer to a block is.
        block: u16,
        /// Where in that block the pointer is.
        offset: u16,
    },
}

impl Slot {
    /// What these threads have in common; None when no thread has its state's pointer anywhere.
    ///
    /// A thread that runs code of a subinterpreter has its state there from 3.12 on; until 3.11, the one that it had
    /// before.
    pub fn find(memory: &dyn Memory, threads: &[Thread]) -> Result<Option<Self>, Unreadable> {
        let begun = threads.iter().filter(|thread| thread.pthread.0 != 0);
        let begun = begun.rev().take(MAX_THREADS); // the oldest: musl has other places in the first one
        let (mut found, mut last) = (HashMap::<Self, usize>::new(), Ok(()));
        for thread in begun {
            match candidates(memory, thread) {
                Ok(candidates) => candidates
                    .into_iter()
                    .for_each(|slot| *found.entry(slot).or_default() += 1),
                Err(unreadable) => last = Err(unreadable), // it may have ended
            }
        }
        let best = found
            .into_iter()
            .max_by_key(|(slot, threads)| (*threads, std::cmp::Reverse(*slot)));
        match best {
            Some((slot, _)) => Ok(Some(slot)),
            None => last.map(|()| None),
        }
    }
}

/// Where one thread has it; a direct slot is sure enough that no others are looked for.
fn candidates(memory: &dyn Memory, thread: &Thread) -> Result<Vec<Slot>, Unreadable> {
    let descriptor = read_words(memory, thread.pthread, DESCRIPTOR_BYTES)?;
    let direct: Vec<_> = places(&descriptor, thread.state)
        .filter(|place| is_glibc_value(&descriptor, *place))
        .map(|place| Slot::Direct { offset: offset(place) })
        .collect();
    if !direct.is_empty() {
        return Ok(direct);
    }
    let is_pointer =
        |word: u64| word != 0 && word != thread.pthread.0 && word.is_multiple_of(8) && word < MAX_USER_ADDRESS;
    let pointers = descriptor.iter().enumerate().filter(|(_, word)| is_pointer(**word));
    let in_blocks = pointers.flat_map(|(place, word)| {
        let block = read_words(memory, ProcessAddr(*word), BLOCK_BYTES).unwrap_or_default(); // no pointer after all
        let places: Vec<_> = places(&block, thread.state).collect();
        places.into_iter().map(move |inner| Slot::Indirect {
            block: offset(place),
            offset: offset(inner),
        })
    });
    Ok(in_blocks.collect())
}

fn places(words: &[u64], state: ProcessAddr) -> impl Iterator<Item = usize> {
    let places = words.iter().enumerate().filter(move |(_, word)| **word == state.0);
    places.map(|(place, _)| place)
}

fn offset(place: usize) -> u16 {
    (place * WORD_BYTES) as u16 // a descriptor has 2,304 bytes, a block 1,024
}

/// Whether before it there is the sequence number of a key in use.
fn is_glibc_value(words: &[u64], place: usize) -> bool {
    let sequence = place.checked_sub(1).map(|before| words[before]);
    sequence.is_some_and(|sequence| sequence % 2 == 1 && sequence <= u32::MAX.into())
}

/// Words from an address on, up to the end of what is readable. An error when nothing is.
fn read_words(memory: &dyn Memory, at: ProcessAddr, max_bytes: usize) -> Result<Vec<u64>, Unreadable> {
    let mut bytes = vec![0; max_bytes];
    let mut filled = 0;
    while filled < max_bytes {
        let start = further(at, filled as u64);
        let end = filled + within_page(start, max_bytes - filled);
        match memory.read(start, &mut bytes[filled..end]) {
            Ok(()) => filled = end,
            Err(unreadable) if filled == 0 => return Err(unreadable),
            Err(_) => break,
        }
    }
    let words = bytes[..filled].as_chunks().0.iter();
    Ok(words.map(|word| u64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    /// Short descriptors end where the memory does.
    const SELVES: [u64; 2] = [0x10_0f00, 0x20_0f00];
    const STATES: [u64; 2] = [0x50_0000, 0x60_0000];

    fn threads() -> Vec<Thread> {
        let thread = |(pthread, state): (&u64, &u64)| Thread {
            state: ProcessAddr(*state),
            interpreter: ProcessAddr(0x40_0000),
            pthread: ProcessAddr(*pthread),
            native_id: None,
        };
        SELVES.iter().zip(&STATES).map(thread).collect()
    }

    fn find(memory: &Fake) -> Option<Slot> {
        Slot::find(memory, &threads()).unwrap()
    }

    /// In glibc's first block, key 1: not what is in a descriptor for another reason.
    #[test]
    fn glibc_has_it_in_the_thread() {
        let mut memory = Fake::new();
        for (this, state) in SELVES.iter().zip(STATES) {
            memory.map(*this, DESCRIPTOR_BYTES);
            memory.write(ProcessAddr(this + 0x2c8), state);
            memory.write(ProcessAddr(this + 0x320), 1);
            memory.write(ProcessAddr(this + 0x328), state);
        }
        assert_eq!(find(&memory), Some(Slot::Direct { offset: 0x328 }));
    }

    /// In an array that musl points to, in a short descriptor: not what one thread has on its stack.
    #[test]
    fn musl_has_it_one_step_further() {
        let mut memory = Fake::new();
        for (this, state) in SELVES.iter().zip(STATES) {
            memory.map(*this, 200);
            let array = this + 0x4_0000;
            memory.map(array, BLOCK_BYTES);
            memory.write(ProcessAddr(this + 128), array);
            memory.write(ProcessAddr(array + 8), state);
        }
        memory.map(SELVES[0] + 0x8_0000, BLOCK_BYTES);
        memory.write(ProcessAddr(SELVES[0] + 64), SELVES[0] + 0x8_0000);
        memory.write(ProcessAddr(SELVES[0] + 0x8_0000), STATES[0]);
        assert_eq!(find(&memory), Some(Slot::Indirect { block: 128, offset: 8 }));
    }

    /// musl's first thread has the array elsewhere, the others behind their descriptors, where other pointers lead near it
    /// as well: what the first has, too, is it. The key may be the first one.
    #[test]
    fn what_musls_first_thread_has_counts() {
        let mut memory = Fake::new();
        let selves = [0x30_0000, 0x20_0000, 0x10_0000];
        let threads = selves.map(|this| Thread {
            state: ProcessAddr(this + 0x5_0000),
            interpreter: ProcessAddr(0x40_0000),
            pthread: ProcessAddr(this),
            native_id: None,
        });
        let arrays = [selves[0] + 200, selves[1] + 200, selves[2] + 0x4_0000];
        for ((thread, this), array) in threads.iter().zip(selves).zip(arrays) {
            memory.map(this - 0x100, DESCRIPTOR_BYTES + 0x100);
            memory.map(array, BLOCK_BYTES);
            for (place, pointer) in [(0, this), (8, this - 24), (128, array), (136, this + 136)] {
                memory.write(ProcessAddr(this + place), pointer);
            }
            memory.write(ProcessAddr(array), thread.state.0);
        }
        let (first, others) = (&threads[2..], &threads[..2]);
        assert_eq!(
            Slot::find(&memory, first),
            Ok(Some(Slot::Indirect { block: 128, offset: 0 }))
        );
        assert_eq!(
            Slot::find(&memory, others),
            Ok(Some(Slot::Indirect { block: 8, offset: 224 }))
        );
        assert_eq!(
            Slot::find(&memory, &threads),
            Ok(Some(Slot::Indirect { block: 128, offset: 0 }))
        );
    }

    /// A thread that has ended is no reason to despair, unless it was the only one.
    #[test]
    fn threads_that_have_ended_are_passed_over() {
        let mut memory = Fake::new();
        assert!(Slot::find(&memory, &threads()).is_err());
        memory.map(SELVES[1], DESCRIPTOR_BYTES);
        assert!(Slot::find(&memory, &threads()).is_err());
        assert_eq!(Slot::find(&memory, &threads()[1..]), Ok(None));
        memory.write(ProcessAddr(SELVES[1] + 0x310), 3);
        memory.write(ProcessAddr(SELVES[1] + 0x318), STATES[1]);
        assert_eq!(find(&memory), Some(Slot::Direct { offset: 0x318 }));
    }
}
