//! Where an interpreter keeps what is read of it: offsets in its structures, in bytes.

use std::fmt;

use super::debug_offsets;
use super::interpreter::Interpreter;
use super::known;
use super::memory::{Memory, Unreadable};
use super::version::Version;
use crate::address::ProcessAddr;

/// All that is known of an interpreter's structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Of which CPython.
    pub version: Version,
    /// Whether threads can run Python code at the same time (PEP 703).
    pub is_free_threaded: bool,
    /// From a thread to its frames: what the kernel needs.
    pub walk: Walk,
    pub(super) states: States,
    pub(super) gil: Gil,
    pub(super) code: Code,
    pub(super) text: Text,
    pub(super) bytes: Bytes,
    /// From 3.12 on.
    pub(super) awaits: Option<Awaits>,
}

/// From a thread state to its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Of a thread state: `pthread_self()` of the thread that made it. That is the thread that it is of, but for
    /// subinterpreters until 3.12, whose states are taken over by whoever runs them.
    pub thread_id: u16,
    /// Of a thread state: where the pointer to its newest frame is, which may be null.
    pub frame: u16,
    /// 3.11 and 3.12: what that points to is a `_PyCFrame`, and the pointer to the frame is at this offset of it.
    pub cframe: Option<u16>,
    /// Of a frame: where the pointer to its code object is.
    pub code: u16,
    /// Bits of that pointer that are not part of it.
    pub code_tag: u64,
    /// Of a frame: where the pointer to the one before it is, null in the oldest.
    pub previous: u16,
    /// Of a frame: where it says which instruction it is at.
    pub instruction: u16,
    /// How it says that.
    pub counted: Counted,
    /// Which frame is the last of those that one native frame executes.
    pub entry: Entry,
    /// Free-threaded 3.14: threads have copies of the bytecode.
    pub copies: Option<Copies>,
    /// 3.10 and 3.11: a thread that runs code of a subinterpreter has its own state and one of that.
    pub taken_over: Option<TakenOver>,
}

impl Walk {
    /// How much of a frame is looked at.
    pub fn frame_bytes(&self) -> u16 {
        let entry = match self.entry {
            Entry::Each => 0,
            Entry::Flag(flag) => flag,
            Entry::Before { owner, .. } => owner,
        };
        let index = self.copies.map_or(0, |copies| copies.index);
        let last = self.code.max(self.previous).max(self.instruction).max(index).max(entry);
        last + 8
    }
}

/// How a frame says which instruction it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// 3.9: `int`, bytes from the beginning of the bytecode.
    Bytes,
    /// 3.10: `int`, units of two bytes from the beginning of the bytecode.
    Units,
    /// 3.11 and later: a pointer to the bytecode, which begins at this offset of the code object.
    Pointer {
        /// `co_code_adaptive`.
        bytecode: u16,
    },
}

/// Which frame is the last of those that one native frame, one call of the evaluation loop, executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// 3.9 and 3.10: each frame.
    Each,
    /// 3.11: a frame with another byte than 0 here.
    Flag(u16),
    /// 3.12 and later: the one after which comes a frame that is no Python function's, and has this byte, or a higher
    /// one, as its owner.
    Before {
        /// Offset of the owner, a byte.
        owner: u16,
        /// The lowest owner of frames that are no Python function's.
        from: u8,
    },
}

/// Where the copies of a code object's bytecode are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Of a frame: which copy its instruction is in, `int`. 0 is the code object's own.
    pub index: u16,
    /// Of a code object: pointer to the array of copies, that is their number and a pointer to each.
    pub array: u16,
    /// Of a code object: how many instructions it has, of two bytes each.
    pub units: u16,
}

/// How the state is found that a thread has taken over to run code of a subinterpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// Where the state is that holds the lock, bytes from the lock: taking a state over leaves the lock's last holder as
    /// it was.
    pub running: u16,
    /// Of a thread state: pointer to what the newest call of the evaluation loop has on the stack.
    pub loop_mark: u16,
}

/// The runtime, its interpreters, their threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct States {
    /// Of the runtime: the newest interpreter.
    pub(super) interpreters: u32,
    /// Of an interpreter: the one before it.
    pub(super) next_interpreter: u32,
    /// Of an interpreter: its newest thread.
    pub(super) threads: u32,
    /// Of a thread state: the one before it.
    pub(super) next_thread: u16,
    /// Of a thread state: `gettid()`.
    pub(super) native_id: Option<u16>,
    /// Of a thread state: its interpreter. From 3.12 on, where those may have locks of their own.
    pub(super) interpreter: Option<u16>,
}

/// How a thread's lock is found, where interpreters have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnGil {
    /// Of a thread state: its interpreter.
    pub interpreter: u16,
    /// Of an interpreter: its lock.
    pub gil: u16,
}

/// Where the global interpreter lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gil {
    pub(super) place: GilPlace,
    /// Of the lock: `int`, 1 while it is held.
    pub(super) locked: u16,
    /// Of the lock: the thread state that held it last.
    pub(super) holder: u16,
    /// Of the lock, in free-threaded builds: `int`, 0 while there is none.
    pub(super) enabled: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GilPlace {
    /// Until 3.11: in the runtime.
    Runtime(u32),
    /// From 3.12 on: an interpreter has a pointer to it.
    Interpreter(u32),
}

/// A code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code {
    pub(super) kind: u16,
    pub(super) name: u16,
    /// From 3.11 on.
    pub(super) qualified_name: Option<u16>,
    pub(super) file: u16,
    pub(super) lines: u16,
    /// `int`.
    pub(super) first_line: u16,
}

/// A `str`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    pub(super) length: u16,
    pub(super) state: u16,
    /// Where the bits for the size of a character begin in the state.
    pub(super) kind_bit: u8,
    /// Where the characters begin that are all ASCII.
    pub(super) ascii: u16,
    /// Where others begin, or where the pointer to them is.
    pub(super) other: u16,
}

/// A `bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) length: u16,
    pub(super) contents: u16,
}

/// What coroutines await, and what else tasks lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awaits {
    /// What every object begins with.
    pub(super) object_bytes: u16,
    /// Of an object: its type.
    pub(super) kind: u16,
    /// Of a type.
    pub(super) kind_flags: u16,
    /// Of a coroutine: its frame, which is part of it, and its state, a byte.
    pub(super) coroutine_frame: u16,
    pub(super) coroutine_state: u16,
    pub(super) stack_top: StackTop,
    /// Of an `int`: how many digits it has, above 3 bits, and where they are, 4 bytes each.
    pub(super) int_tag: u16,
    pub(super) int_digits: u16,
    pub(super) links: Links,
}

/// Where a frame's last value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackTop {
    /// 3.14: before where a pointer at this offset of the frame leads.
    Pointer(u16),
    /// The last of so many from an offset of the frame on; how many is an `int` in it.
    Count { count: u16, values: u16 },
}

/// How a task leads to the one that awaits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Links {
    /// 3.14: it keeps that. Several are a set: pointer to its entries, and how many there are room for, less one.
    Kept { set_table: u16, set_mask: u16 },
    /// 3.12 and 3.13: by what it is to call when it is done.
    Called(Called),
}

/// What else has to be known for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Called {
    /// Of an interpreter: its modules, a `dict`.
    pub(super) modules: u32,
    /// Of a task: the future that it awaits, and its coroutine, behind which comes its name.
    pub(super) awaited: u16,
    pub(super) coroutine: u16,
    pub(super) attributes: Attributes,
}

/// Where an instance of a class has what was assigned to it, in the order of the assignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attributes {
    /// 3.12: where a word before the instance leads, if that is odd and so stands for an address greater by 1.
    Pointed,
    /// 3.13: in the instance, if its type says so.
    Inline,
}

/// Where a code object has pointers to its file, its names and its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Of the first.
    pub offset: u16,
    /// How many there are, one behind the other.
    pub words: u16,
    /// In a name: a number that Python has computed of its letters.
    pub hash: u16,
}

/// Why an interpreter cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has not got as far: ask again.
    #[error("Python is not initialized yet")]
    NotYet,
    /// It never will be, and why.
    #[error("{0}")]
    Unsupported(String),
    /// The process is gone, or may not be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

impl Refusal {
    /// Whether it is worth asking again.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NotYet | Self::Unreadable(_))
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_free_threaded { ", free-threaded," } else { "" };
        write!(formatter, "{}{kind}", self.version)
    }
}

impl Layout {
    /// Whether a thread that holds the lock by its own state may have calls whose frames are not in that: from 3.12 on it
    /// has the state of the subinterpreter whose code it runs, and that alone.
    pub fn may_enter_another(&self) -> bool {
        self.version.minor().is_none_or(|minor| minor >= 12)
    }

    /// Whether the layout of an interpreter is known, or told by itself, as far as its file says.
    pub fn check(interpreter: &Interpreter) -> Result<(), Refusal> {
        let version = interpreter.version;
        let refuse = |why: &str| Err(Refusal::Unsupported(format!("CPython {version} {why}")));
        match version.minor() {
            Some(9..) if version.is_preview() => refuse("is an alpha or beta, whose layout is not known"),
            Some(9..=12) if interpreter.is_debug_build => refuse("is a debug build, whose layout is not known"),
            Some(9..=14) => Ok(()),
            Some(15..) => refuse("is newer than 3.14, the last one whose layout is known"),
            _ => refuse("is older than 3.9, the first one whose layout is known"),
        }
    }

    /// Whether it can be found out who awaits a task: from 3.12 on, but not of free-threaded 3.13.
    pub fn tells_awaiting_tasks(&self) -> bool {
        self.awaits.is_some()
    }

    /// How a thread's own lock is found; None where all interpreters have the same.
    pub fn own_gil(&self) -> Option<OwnGil> {
        match (self.states.interpreter, self.gil.place) {
            (Some(interpreter), GilPlace::Interpreter(gil)) => Some(OwnGil {
                interpreter,
                gil: gil.try_into().ok()?,
            }),
            _ => None,
        }
    }

    /// Whether interpreters may have locks of their own.
    pub fn has_own_gils(&self) -> bool {
        matches!(self.gil.place, GilPlace::Interpreter(_))
    }

    /// Where a code object has them; None where they do not follow each other.
    pub fn names(&self) -> Option<Names> {
        let code = &self.code;
        let mut places = vec![code.file, code.name, code.lines];
        places.extend(code.qualified_name);
        places.sort_unstable();
        let is_row = places.windows(2).all(|pair| pair[1] == pair[0] + 8);
        let is_second = places[1] == code.name; // as in all versions so far
        let hash = u16::from(self.object_bytes()?) + 8;
        (is_row && is_second).then_some(Names {
            offset: places[0],
            words: places.len() as u16,
            hash,
        })
    }

    /// What every object begins with: of a text its length comes next. None where a process says what cannot be.
    pub fn object_bytes(&self) -> Option<u8> {
        u8::try_from(self.text.length).ok()
    }

    /// The layout of an interpreter, whose `_PyRuntime` is at `runtime` in a process: as that says, or as is known of
    /// its version.
    pub fn of(interpreter: &Interpreter, memory: &dyn Memory, runtime: ProcessAddr) -> Result<Self, Refusal> {
        Self::check(interpreter)?;
        let version = interpreter.version;
        match version.minor() {
            Some(minor @ 9..=12) => Ok(known::layout(version, minor)),
            _ => debug_offsets::layout(version, memory, runtime),
        }
    }
}
