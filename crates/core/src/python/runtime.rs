//! The interpreter of a process: its threads and its lock.

use hashbrown::HashSet;

use super::code::Codes;
use super::interpreter::Interpreter;
use super::layout::{GilPlace, Layout, Refusal};
use super::memory::{Memory, Unreadable, further, read_i32, read_pointer, read_u64};
use crate::address::ProcessAddr;

/// Threads, and interpreters, to follow in a list.
const MAX_LISTED: usize = 10_000;

/// The interpreter of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Python {
    /// Where it keeps what is read of it.
    pub layout: Layout,
    runtime: ProcessAddr,
    code_type: Option<ProcessAddr>,
}

/// A thread that runs Python code, or did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its `PyThreadState`. A thread that runs code of several interpreters has several.
    pub state: ProcessAddr,
    /// Its `PyInterpreterState`.
    pub interpreter: ProcessAddr,
    /// `pthread_self()`; 0 for a thread that has not begun.
    pub pthread: ProcessAddr,
    /// `gettid()`, as in the process's own PID namespace. From 3.11 on, and not for a thread that has not begun.
    pub native_id: Option<u32>,
}

/// A global interpreter lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gil {
    /// Where it begins.
    pub at: ProcessAddr,
    /// `int` in it, 1 while the lock is held.
    pub locked: u16,
    /// In it, the thread state that holds it, or held it last; it may be null.
    pub holder: u16,
}

impl Gil {
    /// The thread state that holds it.
    pub fn held_by(&self, memory: &dyn Memory) -> Result<Option<ProcessAddr>, Unreadable> {
        match read_i32(memory, further(self.at, self.locked))? {
            1 => read_pointer(memory, further(self.at, self.holder)),
            _ => Ok(None),
        }
    }
}

impl Python {
    /// The interpreter of a process that has the file `interpreter` was found in mapped: addresses in the process are
    /// those of the object and `bias`.
    ///
    /// [`Refusal::NotYet`] for one that is about to start, and for one that has ended.
    pub fn attach(interpreter: &Interpreter, bias: u64, memory: &dyn Memory) -> Result<Self, Refusal> {
        let placed = |object: crate::address::ObjectAddr| ProcessAddr(object.0.wrapping_add(bias));
        let runtime = placed(interpreter.runtime);
        let python = Self {
            layout: Layout::of(interpreter, memory, runtime)?,
            runtime,
            code_type: interpreter.code_type.map(placed),
        };
        if python.threads(memory)?.is_empty() {
            return Err(Refusal::NotYet);
        }
        Ok(python)
    }

    /// All threads, the newest first, interpreter by interpreter.
    ///
    /// The process runs on: an error may mean that a thread ended just then.
    pub fn threads(&self, memory: &dyn Memory) -> Result<Vec<Thread>, Unreadable> {
        let states = &self.layout.states;
        let mut threads = Vec::new();
        for interpreter in self.interpreters(memory)? {
            let first = further(interpreter, states.threads);
            let room = MAX_LISTED.saturating_sub(threads.len());
            for state in list(memory, first, states.next_thread.into(), room)? {
                threads.push(self.thread(memory, interpreter, state)?);
            }
        }
        Ok(threads)
    }

    /// All interpreters, the newest first.
    fn interpreters(&self, memory: &dyn Memory) -> Result<Vec<ProcessAddr>, Unreadable> {
        let states = &self.layout.states;
        let first = further(self.runtime, states.interpreters);
        list(memory, first, states.next_interpreter, MAX_LISTED)
    }

    fn thread(&self, memory: &dyn Memory, interpreter: ProcessAddr, state: ProcessAddr) -> Result<Thread, Unreadable> {
        let native_id = self.layout.states.native_id;
        let native_id = native_id
            .map(|offset| read_u64(memory, further(state, offset)))
            .transpose()?;
        Ok(Thread {
            state,
            interpreter,
            pthread: ProcessAddr(read_u64(memory, further(state, self.layout.walk.thread_id))?),
            native_id: native_id.and_then(|id| u32::try_from(id).ok()).filter(|id| *id != 0),
        })
    }

    /// The lock that an interpreter's threads share; other interpreters may share it, too. None where there is none,
    /// as in free-threaded builds.
    pub fn gil(&self, memory: &dyn Memory, interpreter: ProcessAddr) -> Result<Option<Gil>, Unreadable> {
        let layout = &self.layout.gil;
        let gil = match layout.place {
            GilPlace::Runtime(offset) => Some(further(self.runtime, offset)),
            GilPlace::Interpreter(offset) => read_pointer(memory, further(interpreter, offset))?,
        };
        let (Some(gil), Some(enabled)) = (gil, layout.enabled) else {
            return Ok(gil.map(|gil| self.gil_at(gil)));
        };
        let is_enabled = read_i32(memory, further(gil, enabled))? != 0;
        Ok(is_enabled.then(|| self.gil_at(gil)))
    }

    fn gil_at(&self, gil: ProcessAddr) -> Gil {
        Gil {
            at: gil,
            locked: self.layout.gil.locked,
            holder: self.layout.gil.holder,
        }
    }

    /// What reads code objects.
    pub fn codes<'m>(&'m self, memory: &'m dyn Memory) -> Codes<'m> {
        Codes::new(memory, &self.layout, self.code_type)
    }
}

/// What a list has whose first is pointed to from `first`, and each next from `next` bytes into the one before. Ends
/// where it comes back to where it was, and after `room`.
fn list(memory: &dyn Memory, first: ProcessAddr, next: u32, room: usize) -> Result<Vec<ProcessAddr>, Unreadable> {
    let (mut found, mut seen, mut pointer) = (Vec::new(), HashSet::new(), first);
    while found.len() < room {
        match read_pointer(memory, pointer)? {
            Some(address) if seen.insert(address) => {
                found.push(address);
                pointer = further(address, next);
            }
            _ => break,
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, RUNTIME, fake_3_11};
    use super::super::version::Version;
    use super::*;
    use crate::address::ObjectAddr;

    fn interpreter(version: Version) -> Interpreter {
        Interpreter {
            version,
            runtime: ObjectAddr(RUNTIME.0 - 0x1000),
            code_type: None,
            is_debug_build: false,
            evaluation: Vec::new(),
            has_tail_calls: false,
        }
    }

    fn attach(memory: &Fake) -> Result<Python, Refusal> {
        Python::attach(&interpreter(Version::of_minor(11)), 0x1000, memory)
    }

    /// Threads of all interpreters are found, with what they are called outside.
    #[test]
    fn threads_are_found() {
        let memory = fake_3_11();
        let python = attach(&memory).unwrap();
        let threads = python.threads(&memory).unwrap();
        let ids: Vec<_> = threads
            .iter()
            .map(|thread| (thread.pthread.0, thread.native_id))
            .collect();
        assert_eq!(ids, [(0x7000, Some(102)), (0x6000, Some(101))]);
    }

    /// Without threads it is too early; an address without memory is another matter.
    #[test]
    fn an_interpreter_that_has_not_begun_is_asked_again() {
        let mut memory = fake_3_11();
        memory.write(further(RUNTIME, 40_u32), 0);
        assert_eq!(attach(&memory), Err(Refusal::NotYet));
        assert!(matches!(attach(&Fake::new()), Err(Refusal::Unreadable(_))));
    }

    /// Versions and builds that are not known are refused in one line that names them.
    #[test]
    fn unknown_interpreters_are_refused() {
        let refused = |version| match Python::attach(&interpreter(version), 0, &Fake::new()) {
            Err(Refusal::Unsupported(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(refused(Version::from_hex(0x030f_01f0)).starts_with("CPython 3.15.1 is newer than 3.14"));
        assert!(refused(Version::of_minor(8)).starts_with("CPython 3.8 is older than 3.9"));
        assert!(refused(Version::from_hex(0x030e_00a3)).starts_with("CPython 3.14.0a3 is an alpha"));
        let debug = Interpreter {
            is_debug_build: true,
            ..interpreter(Version::of_minor(12))
        };
        let refused = Python::attach(&debug, 0, &Fake::new());
        assert!(matches!(refused, Err(Refusal::Unsupported(why)) if why.contains("debug build")));
    }

    /// A list that leads back into itself ends.
    #[test]
    fn cyclic_lists_end() {
        let mut memory = fake_3_11();
        let python = attach(&memory).unwrap();
        let threads = python.threads(&memory).unwrap();
        memory.write(further(threads[1].state, 8_u32), threads[0].state.0);
        assert_eq!(python.threads(&memory).unwrap(), threads);
    }

    /// The lock has a holder only while it is held.
    #[test]
    fn the_lock_has_a_holder_while_it_is_held() {
        let mut memory = fake_3_11();
        let python = attach(&memory).unwrap();
        let thread = python.threads(&memory).unwrap()[1];
        let gil = python.gil(&memory, thread.interpreter).unwrap().unwrap();
        assert_eq!(gil.held_by(&memory), Ok(None));
        memory.write(further(gil.at, gil.locked), 1);
        memory.write(further(gil.at, gil.holder), thread.state.0);
        assert_eq!(gil.held_by(&memory), Ok(Some(thread.state)));
    }
}
