//! asyncio's tasks, read from outside: who awaits the one that a thread runs.
//!
//! ```text
//! thread state ─running task→ task ─awaited by→ task ─awaited by→ … → the one that nobody awaits
//!                              └ coroutine ─awaits→ coroutine ─awaits→ … → what is no coroutine
//! ```
//!
//! CPython 3.14 keeps both. Before, from 3.12 on, `asyncio.tasks._current_tasks` has the running task of each event loop,
//! and who awaits it is found by [`Callbacks`].

use hashbrown::HashSet;

use super::callbacks::Callbacks;
use super::code::tag;
use super::dictionary::look_up;
use super::layout::{Awaits, Layout, Links, StackTop};
use super::memory::{Memory, Unreadable, further, read_array, read_i32, read_pointer, read_u64};
use super::object::{read_text, read_words, u64_in};
use super::runtime::Python;
use super::stack::{Frame, Raw};
use super::symbols::Symbols;
use crate::address::ProcessAddr;
use crate::guard::guarded;

/// Where the extension module `_asyncio` says how its structures are laid out (`Py_AsyncioModuleDebugOffsets`,
/// `Modules/_asynciomodule.c`), whether it is a file of its own or part of the interpreter.
const SECTION: &str = ".AsyncioDebug";

/// What it says, in words of 8 bytes: offsets in a task, in an interpreter, in a thread state. Each of the three begins
/// with its size.
const WORDS: usize = 13;
const TASK: usize = 0;
const THREAD: usize = 9;

/// The largest structures to believe: a task has 168 bytes, a thread state 936.
const MAX_TASK_BYTES: u64 = 512;
const MAX_THREAD_BYTES: u64 = 32 << 10;

/// Tasks that await each other, and coroutines of one that do.
const MAX_CHAIN: usize = 64;
const MAX_COROUTINES: usize = 64;

/// Entries of a set of awaiting tasks to look at, of 16 bytes each.
const MAX_SET_ENTRIES: u64 = 1024;

/// The module that has all of it in its file, what it exports, and its `dict` of running tasks by event loop.
const MODULE: &str = "_asyncio";
const MODULE_EXPORTS: &str = "PyInit__asyncio";
const CURRENT_TASKS: &str = "_current_tasks";
/// `PyModuleObject.md_dict`.
const MODULE_DICTIONARY: u32 = 16;

/// States of a coroutine (`enum _framestate`): lower ones are suspended, higher ones have ended.
const RUNNING: i8 = 0;
/// `FRAME_SUSPENDED_YIELD_FROM`, `FRAME_SUSPENDED` of 3.12: what it awaits is on the top of the coroutine's own stack.
const SUSPENDED_BY_AWAIT: i8 = -1;
/// Values that it has there at most.
const MAX_VALUES: u32 = 1 << 16;

/// `Py_TPFLAGS_LONG_SUBCLASS`, `Py_TPFLAGS_UNICODE_SUBCLASS`.
const IS_INT: u64 = 1 << 24;
const IS_TEXT: u64 = 1 << 28;

/// Bits of a digit of an `int`; of its tag, those that do not count digits.
const DIGIT_BITS: u32 = 30;
const SIZE_SHIFT: u32 = 3;

/// How asyncio calls a task that got a number instead of a name.
const NUMBERED: &str = "Task-";

/// The module `_asyncio` in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asyncio {
    /// It says of its own structures where they have what. From 3.14 on.
    Telling(Places),
    /// It does not.
    Silent,
}

/// What it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// Of a thread state: the task that the thread runs, or null.
    running_task: u16,
    /// Of a task: its coroutine, and behind that its name.
    coroutine: u16,
    awaited_by: u16,
    is_task: u16,
    is_awaited_by_set: u16,
}

impl Asyncio {
    /// The module that is in an ELF file. None when there is none.
    pub fn find(file: &[u8]) -> Option<Self> {
        guarded(|| {
            let symbols = Symbols::read(file).ok()?;
            let telling = symbols.section(SECTION).map(|(_, section)| Places::parse(section));
            match telling {
                Some(places) => places.map(Self::Telling),
                None => symbols.exported(MODULE_EXPORTS).map(|_| Self::Silent),
            }
        })?
    }
}

impl Places {
    fn parse(section: &[u8]) -> Option<Self> {
        let words: [u64; WORDS] = std::array::from_fn(|at| u64_in(section, 8 * at as u16).unwrap_or(u64::MAX));
        let offset = |group: usize, at: usize, max_bytes: u64| {
            let (size, offset) = (words[group], words[group + at]);
            (size <= max_bytes && offset < size).then_some(offset as u16)
        };
        let of_task = |at| offset(TASK, at, MAX_TASK_BYTES);
        let (name, coroutine) = (of_task(1)?, of_task(5)?);
        Some(Self {
            running_task: offset(THREAD, 2, MAX_THREAD_BYTES)?,
            coroutine: (name == coroutine + 8).then_some(coroutine)?,
            awaited_by: of_task(2)?,
            is_task: of_task(3)?,
            is_awaited_by_set: of_task(4)?,
        })
    }
}

/// Where the kernel finds the task that a thread runs, and what tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningTask {
    /// Where it is.
    pub kept: Kept,
    /// Of a task: its coroutine, and behind that its name.
    pub coroutine: u16,
}

/// Where the task that a thread runs is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// At this offset of the thread state.
    ByThread(u16),
    /// In a dictionary with one for each event loop: it is the one whose coroutine's frame is the thread's.
    ByLoop {
        /// Where the `dict` is.
        tasks: ProcessAddr,
        /// Where a coroutine has its frame.
        coroutine_frame: u16,
    },
}

/// A task that runs, or that awaits one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// As it calls itself, like `Task-3`.
    pub name: String,
    /// Its coroutines, the outermost first; of the one that runs only that.
    pub frames: Vec<Frame>,
}

/// Reads the tasks of one process.
pub struct Tasks<'m> {
    memory: &'m dyn Memory,
    layout: &'m Layout,
    awaits: Awaits,
    coroutine: u16,
    finder: Finder<'m>,
}

/// What finds the task that awaits one.
enum Finder<'m> {
    Kept {
        places: Places,
        set_table: u16,
        set_mask: u16,
    },
    Called(Callbacks<'m>),
}

impl Python {
    /// What reads tasks; None where it cannot be found out who awaits one.
    pub fn tasks<'m>(&'m self, memory: &'m dyn Memory, asyncio: Asyncio) -> Option<Tasks<'m>> {
        let awaits = self.layout.awaits?;
        let (coroutine, finder) = match (awaits.links, asyncio) {
            (Links::Kept { set_table, set_mask }, Asyncio::Telling(places)) => {
                let finder = Finder::Kept {
                    places,
                    set_table,
                    set_mask,
                };
                (places.coroutine, finder)
            }
            (Links::Called(called), Asyncio::Silent) => {
                let callbacks = Callbacks::new(memory, awaits, called);
                (called.coroutine, Finder::Called(callbacks))
            }
            _ => return None,
        };
        Some(Tasks {
            memory,
            layout: &self.layout,
            awaits,
            coroutine,
            finder,
        })
    }

    /// Where the kernel finds running tasks; None as long as the module is not imported, or if tasks cannot be read.
    pub fn running_task(
        &self,
        memory: &dyn Memory,
        interpreter: ProcessAddr,
        asyncio: Asyncio,
    ) -> Result<Option<RunningTask>, Unreadable> {
        let Some(awaits) = self.layout.awaits else {
            return Ok(None);
        };
        let (kept, coroutine) = match (awaits.links, asyncio) {
            (Links::Kept { .. }, Asyncio::Telling(places)) => {
                (Some(Kept::ByThread(places.running_task)), places.coroutine)
            }
            (Links::Called(called), Asyncio::Silent) => {
                let tasks = self.current_tasks(memory, further(interpreter, called.modules))?;
                let coroutine_frame = awaits.coroutine_frame;
                (
                    tasks.map(|tasks| Kept::ByLoop { tasks, coroutine_frame }),
                    called.coroutine,
                )
            }
            _ => return Ok(None),
        };
        Ok(kept.map(|kept| RunningTask { kept, coroutine }))
    }

    /// `modules`: where the pointer to them is.
    fn current_tasks(&self, memory: &dyn Memory, modules: ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable> {
        let look_up = |dictionary, key| look_up(memory, &self.layout.text, dictionary, key);
        let Some(modules) = read_pointer(memory, modules)? else {
            return Ok(None);
        };
        let Some(module) = look_up(modules, MODULE)? else {
            return Ok(None);
        };
        match read_pointer(memory, further(module, MODULE_DICTIONARY))? {
            Some(dictionary) => look_up(dictionary, CURRENT_TASKS),
            None => Ok(None),
        }
    }
}

impl Tasks<'_> {
    /// What tells a task from another one that comes to its place; `asyncio_tag` of `bpf/stack/python.h` has the same. Of
    /// the place of its coroutine, and of how its name begins.
    pub fn tag(&self, task: ProcessAddr) -> Result<u16, Unreadable> {
        let [coroutine, name] = self.coroutine_and_name(task)?;
        let beginning: [u8; 16] = read_array(self.memory, further(name, self.awaits.object_bytes))?;
        let words = beginning.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        Ok(tag(std::iter::once(coroutine.0).chain(words)))
    }

    /// A task that runs, then the one that awaits it, and so on. Of several that await the same one, one of them.
    ///
    /// None where it leads to something else than tasks, or on and on, or where one has ended, or another one than the
    /// first is not suspended: the program runs on meanwhile.
    pub fn chain(&self, task: ProcessAddr) -> Result<Option<Vec<Task>>, Unreadable> {
        let (mut chain, mut seen, mut next) = (Vec::new(), HashSet::new(), Some(task));
        while let Some(at) = next {
            if chain.len() == MAX_CHAIN || !seen.insert(at) || !self.is_task(at)? {
                return Ok(None);
            }
            next = self.awaiting(at)?; // before its state: one that has ended is awaited by none
            match self.task(at, chain.is_empty())? {
                Some(task) => chain.push(task),
                None => return Ok(None),
            }
        }
        Ok(Some(chain))
    }

    fn is_task(&self, at: ProcessAddr) -> Result<bool, Unreadable> {
        match &self.finder {
            Finder::Kept { places, .. } => Ok(read_array(self.memory, further(at, places.is_task))? == [1]),
            Finder::Called(callbacks) => callbacks.is_task(at),
        }
    }

    fn coroutine_and_name(&self, task: ProcessAddr) -> Result<[ProcessAddr; 2], Unreadable> {
        let bytes: [u8; 16] = read_array(self.memory, further(task, self.coroutine))?;
        Ok([0, 8].map(|at| ProcessAddr(u64_in(&bytes, at).unwrap_or(0)))) // there are 16
    }

    fn task(&self, at: ProcessAddr, runs: bool) -> Result<Option<Task>, Unreadable> {
        let [coroutine, name] = self.coroutine_and_name(at)?;
        let frames = match runs {
            true => self.running(coroutine)?,
            false => self.suspended(coroutine)?,
        };
        Ok(self.name(name)?.zip(frames).map(|(name, frames)| Task { name, frames }))
    }

    /// A name is made of a number when it is asked for.
    fn name(&self, at: ProcessAddr) -> Result<Option<String>, Unreadable> {
        let kind = ProcessAddr(read_u64(self.memory, further(at, self.awaits.kind))?);
        let flags = read_u64(self.memory, further(kind, self.awaits.kind_flags))?;
        if flags & IS_INT != 0 {
            return Ok(Some(format!("{NUMBERED}{}", self.number(at)?)));
        }
        match flags & IS_TEXT != 0 {
            true => read_text(self.memory, &self.layout.text, at),
            false => Ok(None),
        }
    }

    /// An `int` of at most two digits, which no counter of tasks goes beyond.
    fn number(&self, at: ProcessAddr) -> Result<u64, Unreadable> {
        let digits = read_u64(self.memory, further(at, self.awaits.int_tag))? >> SIZE_SHIFT;
        let both = read_u64(self.memory, further(at, self.awaits.int_digits))?;
        let (low, high) = (both & u64::from(u32::MAX), both >> u32::BITS);
        Ok(match digits {
            0 => 0,
            1 => low,
            _ => high << DIGIT_BITS | low,
        })
    }

    /// A coroutine that runs, or may be about to; None for one that has ended.
    fn running(&self, coroutine: ProcessAddr) -> Result<Option<Vec<Frame>>, Unreadable> {
        let has_ended = self.state(coroutine)? > RUNNING;
        Ok(if has_ended {
            None
        } else {
            Some(vec![self.frame(coroutine)?])
        })
    }

    /// A coroutine, the one that it awaits, and so on, as long as they are of the same kind. None when it runs.
    fn suspended(&self, mut coroutine: ProcessAddr) -> Result<Option<Vec<Frame>>, Unreadable> {
        let kind = |object| read_u64(self.memory, further(object, self.awaits.kind));
        let (own, mut frames) = (kind(coroutine)?, Vec::new());
        while frames.len() < MAX_COROUTINES {
            let state = self.state(coroutine)?;
            if state >= RUNNING {
                return Ok(None);
            }
            frames.push(self.frame(coroutine)?);
            coroutine = self.awaited(coroutine)?;
            if state != SUSPENDED_BY_AWAIT || kind(coroutine)? != own {
                break;
            }
        }
        Ok(Some(frames))
    }

    fn state(&self, coroutine: ProcessAddr) -> Result<i8, Unreadable> {
        let [state] = read_array(self.memory, further(coroutine, self.awaits.coroutine_state))?;
        Ok(state as i8)
    }

    fn frame(&self, coroutine: ProcessAddr) -> Result<Frame, Unreadable> {
        let at = further(coroutine, self.awaits.coroutine_frame);
        Raw::read(self.memory, &self.layout.walk, at)?.frame(self.memory)
    }

    /// What is on the top of its stack; what that means depends on its state.
    fn awaited(&self, coroutine: ProcessAddr) -> Result<ProcessAddr, Unreadable> {
        let frame = further(coroutine, self.awaits.coroutine_frame);
        let behind = match self.awaits.stack_top {
            StackTop::Pointer(top) => ProcessAddr(read_u64(self.memory, further(frame, top))?),
            StackTop::Count { count, values } => {
                let count = read_i32(self.memory, further(frame, count))?;
                let count = u32::try_from(count).unwrap_or(0).min(MAX_VALUES); // it runs, and has none
                further(frame, u32::from(values) + 8 * count)
            }
        };
        let value = read_u64(self.memory, ProcessAddr(behind.0.wrapping_sub(8)))?;
        Ok(ProcessAddr(value & !self.layout.walk.code_tag))
    }

    fn awaiting(&self, task: ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable> {
        let (places, set_table, set_mask) = match &self.finder {
            Finder::Called(callbacks) => return callbacks.awaiting(task),
            Finder::Kept {
                places,
                set_table,
                set_mask,
            } => (places, *set_table, *set_mask),
        };
        let by = read_pointer(self.memory, further(task, places.awaited_by))?;
        let [is_set] = read_array(self.memory, further(task, places.is_awaited_by_set))?;
        match by {
            Some(set) if is_set != 0 => self.first_of(set, set_table, set_mask),
            _ => Ok(by),
        }
    }

    /// The first that is in a set: entries are a pointer and a hash, which is −1 where one was taken out.
    fn first_of(&self, set: ProcessAddr, table: u16, mask: u16) -> Result<Option<ProcessAddr>, Unreadable> {
        let mask = read_u64(self.memory, further(set, mask))?;
        let table = ProcessAddr(read_u64(self.memory, further(set, table))?);
        let entries = mask.saturating_add(1).min(MAX_SET_ENTRIES);
        let table = read_words(self.memory, table, 2 * entries as usize)?;
        let found = table
            .chunks_exact(2)
            .find(|entry| entry[0] != 0 && entry[1] != u64::MAX);
        Ok(found.map(|entry| ProcessAddr(entry[0])))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{CODE, Fake, fake_3_11, python_3_11};
    use super::*;
    use crate::random::Random;

    /// As Debian's 3.14 has it.
    const SAID: [u64; WORDS] = [168, 136, 96, 108, 109, 128, 152, 225_864, 10_880, 936, 864, 872, 880];

    fn section(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// What the module says of itself is understood.
    #[test]
    fn offsets_are_read() {
        let places = Places::parse(&section(&SAID)).unwrap();
        assert_eq!(
            (places.running_task, places.coroutine, places.awaited_by),
            (872, 128, 96)
        );
    }

    const AWAITS: Awaits = Awaits {
        object_bytes: 16,
        kind: 8,
        kind_flags: 168,
        coroutine_frame: 200,
        coroutine_state: 72,
        stack_top: StackTop::Pointer(88),
        int_tag: 16,
        int_digits: 24,
        links: Links::Kept {
            set_table: 40,
            set_mask: 32,
        },
    };
    const TASKS: [ProcessAddr; 2] = [ProcessAddr(0x70_0000), ProcessAddr(0x71_0000)];
    const COROUTINES: [ProcessAddr; 3] = [ProcessAddr(0x72_0000), ProcessAddr(0x73_0000), ProcessAddr(0x74_0000)];
    const INT: ProcessAddr = ProcessAddr(0x75_0000);
    const TEXT: ProcessAddr = ProcessAddr(0x76_0000);
    const COROUTINE: ProcessAddr = ProcessAddr(0x77_0000);
    const NAMES: [ProcessAddr; 2] = [ProcessAddr(0x78_0000), ProcessAddr(0x79_0000)];
    const SET: ProcessAddr = ProcessAddr(0x7a_0000);
    const STACK: ProcessAddr = ProcessAddr(0x7b_0000);

    /// Task-7 runs, and is awaited by `boss`, of which one coroutine awaits another one.
    fn fake() -> Fake {
        let mut memory = fake_3_11();
        let tasks = [(TASKS[0], NAMES[0], TASKS[1].0), (TASKS[1], NAMES[1], 0)];
        for ((task, name, by), coroutine) in tasks.into_iter().zip(COROUTINES) {
            memory.write(further(task, 96_u32), by);
            memory.write(further(task, 108_u32), 1);
            memory.write(further(task, 128_u32), coroutine.0);
            memory.write(further(task, 136_u32), name.0);
        }
        for (coroutine, instruction) in COROUTINES.into_iter().zip([182, 184, 186]) {
            memory.write(further(coroutine, 8_u32), COROUTINE.0);
            memory.write(further(coroutine, 232_u32), CODE.0);
            memory.write(further(coroutine, 256_u32), CODE.0 + instruction);
        }
        memory.write_bytes(further(COROUTINES[1], 72_u32), &[0xff]); // awaits the next one
        memory.write_bytes(further(COROUTINES[2], 72_u32), &[0xff]); // awaits what is no coroutine
        memory.write(further(COROUTINES[2], 288_u32), STACK.0 + 16);
        memory.write(further(STACK, 8_u32), INT.0);
        memory.write(further(COROUTINES[1], 288_u32), STACK.0 + 8);
        memory.write(STACK, COROUTINES[2].0);
        memory.write(further(INT, 168_u32), IS_INT);
        memory.write(further(TEXT, 168_u32), IS_TEXT);
        memory.write(further(NAMES[0], 16_u32), 1 << SIZE_SHIFT);
        memory.write(further(NAMES[0], 24_u32), 7);
        memory.write_text(NAMES[1], &"boss".chars().map(u32::from).collect::<Vec<_>>(), 1);
        for (name, kind) in NAMES.into_iter().zip([INT, TEXT]) {
            memory.write(further(name, 8_u32), kind.0);
        }
        memory
    }

    fn with_tasks<T>(memory: &Fake, read: impl FnOnce(Tasks<'_>) -> T) -> T {
        let mut python = python_3_11(&fake_3_11());
        python.layout.awaits = Some(AWAITS);
        let places = Places::parse(&section(&SAID)).unwrap();
        read(python.tasks(memory, Asyncio::Telling(places)).unwrap())
    }

    fn chain(memory: &Fake) -> Option<Vec<(String, Vec<i64>)>> {
        let chain = with_tasks(memory, |tasks| tasks.chain(TASKS[0])).unwrap()?;
        let task = |task: Task| (task.name, task.frames.iter().map(|frame| frame.instruction).collect());
        Some(chain.into_iter().map(task).collect())
    }

    /// Names, and where the coroutines are: of the task that runs only the outermost.
    #[test]
    fn chains_are_read() {
        let expected = [("Task-7".into(), vec![182]), ("boss".into(), vec![184, 186])];
        assert_eq!(chain(&fake()).unwrap(), expected);
    }

    /// Of several that await a task, one that still does.
    #[test]
    fn one_of_several_is_taken() {
        let mut memory = fake();
        memory.write(further(TASKS[0], 96_u32), SET.0);
        memory.write(further(TASKS[0], 108_u32), 1 | 1 << 8);
        memory.write(further(SET, 32_u32), 7);
        memory.write(further(SET, 40_u32), SET.0 + 0x100);
        memory.write(further(SET, 0x110_u32), 0xdead_0000);
        memory.write(further(SET, 0x118_u32), u64::MAX);
        memory.write(further(SET, 0x130_u32), TASKS[1].0);
        memory.write(further(SET, 0x138_u32), 99);
        assert_eq!(chain(&memory).unwrap().len(), 2);
    }

    /// Tasks that await each other have no chain, and what is no task ends none.
    #[test]
    fn what_leads_nowhere_is_no_chain() {
        let mut memory = fake();
        memory.write(further(TASKS[1], 96_u32), TASKS[0].0);
        assert_eq!(chain(&memory), None);
        memory.write(further(TASKS[1], 96_u32), CODE.0);
        assert_eq!(chain(&memory), None);
    }

    /// A task that has ended, and one that does not await any more, say so.
    #[test]
    fn tasks_that_went_on_have_no_chain() {
        for (coroutine, state) in [(COROUTINES[0], 1), (COROUTINES[1], 0), (COROUTINES[2], 4)] {
            let mut memory = fake();
            memory.write_bytes(further(coroutine, 72_u32), &[state]);
            assert_eq!(chain(&memory), None, "{coroutine:?}");
        }
    }

    /// Another task at the same place has another tag.
    #[test]
    fn tags_tell_tasks_apart() {
        let tag = |memory: &Fake| with_tasks(memory, |tasks| tasks.tag(TASKS[0])).unwrap();
        let mut memory = fake();
        let before = tag(&memory);
        memory.write(further(NAMES[0], 24_u32), 8);
        let renamed = tag(&memory);
        memory.write(further(TASKS[0], 128_u32), COROUTINES[1].0);
        assert!(before != renamed && renamed != tag(&memory));
    }

    /// A process whose pointers were overwritten, with anything or each other, is read up to some end.
    #[test]
    fn tasks_that_lie_do_no_harm() {
        let whole = fake();
        let mut random = Random::new(23);
        for _ in 0..5000 {
            let memory = whole.lying(&mut random, 40);
            let chain = with_tasks(&memory, |tasks| (tasks.tag(TASKS[0]), tasks.chain(TASKS[0]))).1;
            let lengths = chain.ok().flatten().unwrap_or_default();
            assert!(lengths.iter().all(|task| task.frames.len() <= MAX_COROUTINES));
        }
    }

    /// Sections that are short, or that contradict themselves, are none.
    #[test]
    fn wild_offsets_are_refused() {
        assert_eq!(Places::parse(&section(&SAID[..11])), None);
        for at in [0, 1, 2, 3, 4, 5, 9, 11] {
            let mut said = SAID;
            said[at] = u64::MAX;
            assert_eq!(Places::parse(&section(&said)), None, "{at}");
        }
    }
}
