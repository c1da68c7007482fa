//! `_Py_DebugOffsets`: what CPython 3.13 and later say of their own layout, at the beginning of `_PyRuntime`.
//!
//! Words of 8 bytes: a cookie, the version, whether it is free-threaded, then groups that begin with the size of a
//! structure (`Include/internal/pycore_runtime.h` in 3.13, `pycore_debug_offsets.h` in 3.14). A minor version keeps
//! its groups.

use zerocopy::FromBytes;

use super::known;
use super::layout::{
    Awaits, Bytes, Code, Copies, Counted, Entry, Gil, GilPlace, Layout, Links, Refusal, StackTop, States, Text, Walk,
};
use super::memory::{Memory, read_array};
use super::version::Version;
use crate::address::ProcessAddr;

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Words to read: 3.14 has 87 up to the last one that is used.
const WORDS: usize = 96;

/// The largest structure to believe. `_PyRuntime` has 480 KB in 3.14, with room for more.
const MAX_RUNTIME_BYTES: u64 = 16 << 20;

/// The same, of the structures that samples read: thread states have some 500 bytes.
const MAX_SMALL_BYTES: u64 = 16 << 10;

/// Frames, code objects and strings are read in one go.
const MAX_OBJECT_BYTES: u64 = 512;

/// What every object begins with has 16 bytes, 32 without a lock.
const MAX_HEAD_BYTES: u16 = 128;

/// Owners of frames that are no Python function's (`enum _frameowner`): 3 is a frame on the C stack in 3.13, the
/// interpreter's in 3.14, where 4 may follow.
const FIRST_OTHER_OWNER: u8 = 3;

/// `Py_TAG_BITS`: `_PyStackRef` of 3.14 keeps two bits for itself.
const STACK_REF_TAG: u64 = 3;

/// Which word a group begins with.
struct Groups {
    runtime: usize,
    interpreter: usize,
    /// From the interpreter's size to the pointer to its lock; the lock's own follow it.
    gil: usize,
    thread: usize,
    frame: usize,
    code: usize,
    object: usize,
    bytes: usize,
    text: usize,
}

/// Groups that are only read of 3.14.
const TYPE: usize = 52;
const SET: usize = 62;
const INT: usize = 71;
const COROUTINE: usize = 83;

const GROUPS_3_13: Groups = Groups {
    runtime: 3,
    interpreter: 6,
    gil: 8,
    thread: 19,
    frame: 28,
    code: 34,
    object: 44,
    bytes: 64,
    text: 67,
};

/// 3.14 put in the interpreter's main thread and two generations, of frames the stack pointer and which copy of the
/// bytecode, of code objects their copies, and sets.
const GROUPS_3_14: Groups = Groups {
    runtime: 3,
    interpreter: 6,
    gil: 9,
    thread: 22,
    frame: 31,
    code: 39,
    object: 50,
    bytes: 74,
    text: 77,
};

/// The version that the offsets at the beginning of `_PyRuntime` are of, in a process or in its file.
pub(super) fn version_in(runtime: &[u8]) -> Option<Version> {
    let (words, _) = <[u64; 2]>::read_from_prefix(runtime).ok()?;
    let hex = u32::try_from(words[1]).ok()?;
    (words[0] == COOKIE).then(|| Version::from_hex(hex))
}

/// The layout that the `_PyRuntime` of a process tells.
pub(super) fn layout(version: Version, memory: &dyn Memory, runtime: ProcessAddr) -> Result<Layout, Refusal> {
    let bytes: [u8; 8 * WORDS] = read_array(memory, runtime)?;
    if version_in(&bytes) != Some(version) {
        return Err(damaged(version));
    }
    let words = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect();
    Offsets { words, version }.layout()
}

fn damaged(version: Version) -> Refusal {
    Refusal::Unsupported(format!(
        "CPython {version} has _Py_DebugOffsets that contradict themselves"
    ))
}

/// What is said, of which nothing is believed unseen.
struct Offsets {
    words: Vec<u64>,
    version: Version,
}

impl Offsets {
    fn layout(&self) -> Result<Layout, Refusal> {
        let groups = match self.version.minor() {
            Some(13) => GROUPS_3_13,
            _ => GROUPS_3_14,
        };
        Ok(Layout {
            version: self.version,
            is_free_threaded: self.is_free_threaded(),
            walk: self.walk(&groups)?,
            states: self.states(&groups)?,
            gil: self.gil(&groups)?,
            code: self.code(&groups)?,
            text: self.text(&groups)?,
            bytes: self.bytes(&groups)?,
            awaits: match (self.has_stack_refs(), self.is_free_threaded()) {
                (true, _) => Some(self.awaits()?),
                (false, false) => Some(self.awaits_3_13()?),
                (false, true) => None,
            },
        })
    }

    fn is_free_threaded(&self) -> bool {
        self.words[2] != 0
    }

    fn has_stack_refs(&self) -> bool {
        self.version.minor() != Some(13)
    }

    /// The word so many after the beginning of a group: an offset in a structure that has, as the group begins with
    /// saying, so many bytes.
    fn offset(&self, group: usize, word: usize, max_bytes: u64) -> Result<u32, Refusal> {
        let (size, offset) = (self.words[group], self.words[group + word]);
        if size > max_bytes || offset >= size {
            return Err(damaged(self.version));
        }
        u32::try_from(offset).map_err(|_| damaged(self.version))
    }

    /// The same, of a small structure.
    fn small(&self, group: usize, word: usize) -> Result<u16, Refusal> {
        let offset = self.offset(group, word, MAX_SMALL_BYTES)?;
        u16::try_from(offset).map_err(|_| damaged(self.version))
    }

    /// The same, of one that is read in one go.
    fn object(&self, group: usize, word: usize) -> Result<u16, Refusal> {
        let offset = self.offset(group, word, MAX_OBJECT_BYTES)?;
        u16::try_from(offset).map_err(|_| damaged(self.version))
    }

    fn walk(&self, groups: &Groups) -> Result<Walk, Refusal> {
        let (frame, code) = (groups.frame, groups.code);
        let has_copies = self.is_free_threaded() && self.has_stack_refs();
        let copies = || -> Result<_, Refusal> {
            Ok(Copies {
                index: self.object(frame, 7)?,
                array: self.object(code, 10)?,
                units: self.object(groups.bytes, 1)?, // where all objects have it that are of different sizes
            })
        };
        Ok(Walk {
            thread_id: self.small(groups.thread, 5)?,
            frame: self.small(groups.thread, 4)?,
            cframe: None,
            code: self.object(frame, 2)?,
            code_tag: if self.has_stack_refs() { STACK_REF_TAG } else { 0 },
            previous: self.object(frame, 1)?,
            instruction: self.object(frame, 3)?,
            counted: Counted::Pointer {
                bytecode: self.object(code, 9)?,
            },
            entry: Entry::Before {
                owner: self.object(frame, 5)?,
                from: FIRST_OTHER_OWNER,
            },
            copies: has_copies.then(copies).transpose()?,
            taken_over: None,
        })
    }

    fn states(&self, groups: &Groups) -> Result<States, Refusal> {
        Ok(States {
            interpreters: self.offset(groups.runtime, 2, MAX_RUNTIME_BYTES)?,
            next_interpreter: self.offset(groups.interpreter, 2, MAX_RUNTIME_BYTES)?,
            threads: self.offset(groups.interpreter, 3, MAX_RUNTIME_BYTES)?,
            next_thread: self.small(groups.thread, 2)?,
            native_id: Some(self.small(groups.thread, 6)?),
            interpreter: Some(self.small(groups.thread, 3)?),
        })
    }

    /// The interpreter says where its own lock's parts are, counted from the interpreter.
    fn gil(&self, groups: &Groups) -> Result<Gil, Refusal> {
        let place = self.offset(groups.interpreter, groups.gil, MAX_RUNTIME_BYTES)?;
        let own = self.offset(groups.interpreter, groups.gil + 1, MAX_RUNTIME_BYTES)?;
        let part = |word| {
            let offset = self.offset(groups.interpreter, groups.gil + word, MAX_RUNTIME_BYTES)?;
            let within = offset.checked_sub(own).and_then(|within| u16::try_from(within).ok());
            within.ok_or_else(|| damaged(self.version))
        };
        let enabled =
            || u16::try_from(self.words[groups.interpreter + groups.gil + 2]).map_err(|_| damaged(self.version));
        Ok(Gil {
            place: GilPlace::Interpreter(place),
            locked: part(3)?,
            holder: part(4)?,
            enabled: self.is_free_threaded().then(enabled).transpose()?,
        })
    }

    fn code(&self, groups: &Groups) -> Result<Code, Refusal> {
        Ok(Code {
            kind: self.object(groups.object, 1)?,
            name: self.object(groups.code, 2)?,
            qualified_name: Some(self.object(groups.code, 3)?),
            file: self.object(groups.code, 1)?,
            lines: self.object(groups.code, 4)?,
            first_line: self.object(groups.code, 5)?,
        })
    }

    /// What is not ASCII has the length and the pointer of its UTF-8 before it.
    fn text(&self, groups: &Groups) -> Result<Text, Refusal> {
        let ascii = self.object(groups.text, 3)?;
        Ok(Text {
            length: self.object(groups.text, 2)?,
            state: self.object(groups.text, 1)?,
            kind_bit: if self.is_free_threaded() && self.has_stack_refs() {
                8
            } else {
                2
            },
            ascii,
            other: ascii + 16,
        })
    }

    /// What every object begins with is the size of one that has nothing else.
    fn awaits(&self) -> Result<Awaits, Refusal> {
        let object_bytes = u16::try_from(self.words[GROUPS_3_14.object]).unwrap_or(u16::MAX);
        Ok(Awaits {
            object_bytes: (object_bytes < MAX_HEAD_BYTES)
                .then_some(object_bytes)
                .ok_or_else(|| damaged(self.version))?,
            kind: self.object(GROUPS_3_14.object, 1)?,
            kind_flags: self.object(TYPE, 3)?,
            coroutine_frame: self.object(COROUTINE, 2)?,
            coroutine_state: self.object(COROUTINE, 3)?,
            stack_top: StackTop::Pointer(self.object(GROUPS_3_14.frame, 6)?),
            int_tag: self.object(INT, 1)?,
            int_digits: self.object(INT, 2)?,
            links: Links::Kept {
                set_table: self.object(SET, 2)?,
                set_mask: self.object(SET, 3)?,
            },
        })
    }

    fn awaits_3_13(&self) -> Result<Awaits, Refusal> {
        let modules = self.offset(GROUPS_3_13.interpreter, 5, MAX_RUNTIME_BYTES)?;
        Ok(known::awaits(known::called_3_13(modules)))
    }

    fn bytes(&self, groups: &Groups) -> Result<Bytes, Refusal> {
        Ok(Bytes {
            length: self.object(groups.bytes, 1)?,
            contents: self.object(groups.bytes, 2)?,
        })
    }
}
