//! From a process's interpreter to what the walker needs to know of it.

use std::ops::Range;

use stackhound_core::address::ObjectAddr;
use stackhound_core::python::{Asyncio, Counted, Entry, Gil, Kept, Layout, Python, Refusal, RunningTask, Slot};

use super::Candidate;
use super::memory::ProcessMemory;
use super::merge::Loop;
use crate::abi;

/// An interpreter that runs.
pub struct Attached {
    /// Reads its code objects.
    pub python: Python,
    /// For the walker.
    pub walk: abi::Python,
    /// Where in the process.
    pub evaluation: Loop,
    /// In which file.
    pub candidate: Candidate,
    /// Where its asyncio has tasks, where they are asked for.
    pub asyncio: Option<Asyncio>,
    /// Whether it is to be looked at again: asyncio is about to be imported.
    pub is_early: bool,
}

impl Attached {
    /// Finds the interpreter that a process runs, its threads, and where they have their states.
    pub fn new(pid: u32, candidates: &[Candidate], asyncio: Option<Asyncio>) -> Result<Self, Refusal> {
        let mut refusal = None;
        for candidate in candidates {
            match Self::to(pid, candidate, asyncio) {
                Ok(attached) => return Ok(attached),
                Err(other) if refusal.is_none() || other.may_pass() => refusal = Some(other),
                Err(_) => {}
            }
        }
        Err(refusal.unwrap_or(Refusal::NotYet))
    }

    fn to(pid: u32, candidate: &Candidate, asyncio: Option<Asyncio>) -> Result<Self, Refusal> {
        let (interpreter, bias) = (&candidate.found.interpreter, candidate.bias);
        Layout::check(interpreter)?;
        if candidate.found.evaluation.is_none() {
            let why = "does not say where its evaluation loop is: its file has no symbol of it";
            return Err(Refusal::Unsupported(format!("CPython {} {why}", interpreter.version)));
        }
        let memory = ProcessMemory { pid };
        let python = Python::attach(interpreter, bias, &memory)?;
        let threads = python.threads(&memory)?;
        let slot = Slot::find(&memory, &threads)?.ok_or(Refusal::NotYet)?;
        let main = threads.last().ok_or(Refusal::NotYet)?.interpreter; // the oldest
        let gil = python.gil(&memory, main)?;
        let task = match asyncio {
            Some(asyncio) => python.running_task(&memory, main, asyncio)?,
            None => None,
        };
        let is_early = asyncio.is_some() && task.is_none() && python.layout.tells_awaiting_tasks();
        let walk = describe(&python.layout, slot, gil, task);
        let place = |part: &Range<ObjectAddr>| part.start.0.wrapping_add(bias)..part.end.0.wrapping_add(bias);
        Ok(Self {
            python,
            walk,
            evaluation: Loop {
                ranges: interpreter.evaluation.iter().map(place).collect(),
                has_tail_calls: interpreter.has_tail_calls,
            },
            candidate: candidate.clone(),
            asyncio,
            is_early,
        })
    }
}

fn describe(layout: &Layout, slot: Slot, gil: Option<Gil>, task: Option<RunningTask>) -> abi::Python {
    let (walk, names) = (&layout.walk, layout.names());
    let (running_task, current_tasks, coroutine_frame) = match task.map(|task| task.kept) {
        Some(Kept::ByThread(offset)) => (offset, 0, 0),
        Some(Kept::ByLoop { tasks, coroutine_frame }) => (0, tasks.0, coroutine_frame),
        None => (0, 0, 0),
    };
    let (thread_state, thread_state_indirect) = match slot {
        Slot::Direct { offset } => (offset.into(), abi::PYTHON_STATE_IS_DIRECT as i32),
        Slot::Indirect { block, offset } => (block.into(), offset.into()),
    };
    let (entry, owner, shim_owner) = match walk.entry {
        Entry::Each => (abi::ENTRY_EACH, 0, 0),
        Entry::Flag(flag) => (abi::ENTRY_FLAG, flag, 0),
        Entry::Before { owner, from } => (abi::ENTRY_SHIM, owner, from),
    };
    let instruction_bytes: u8 = match walk.counted {
        Counted::Bytes | Counted::Units => 4,
        Counted::Pointer { .. } => 8,
    };
    let taken_over = walk.taken_over.filter(|_| gil.is_some());
    let own_gil = layout.own_gil();
    let gil = gil.filter(|_| own_gil.is_some() || !layout.has_own_gils()); // else not known whose it is
    let instruction_end = walk.instruction + u16::from(instruction_bytes);
    let ends = [walk.code + 8, walk.previous + 8, instruction_end, owner + 1];
    abi::Python {
        gil: gil.map_or(0, |gil| gil.at.0),
        current_tasks,
        thread_state,
        thread_state_indirect,
        current_frame: walk.frame,
        frame_in_cframe: walk.cframe.unwrap_or(abi::PYTHON_NO_CFRAME as u16),
        frame_bytes: ends.into_iter().max().unwrap_or(0),
        code: walk.code,
        previous: walk.previous,
        instruction: walk.instruction,
        owner,
        entry: entry as u8,
        shim_owner,
        names: names.map_or(0, |names| names.offset),
        names_words: names.map_or(0, |names| names.words as u8), // 4 at most
        object_bytes: layout.object_bytes().unwrap_or(0),
        running_task,
        task_coroutine: task.map_or(0, |task| task.coroutine),
        coroutine_frame,
        code_tag: walk.code_tag as u8, // 3 at most
        instruction_bytes,
        running_state: taken_over.map_or(0, |state| state.running),
        loop_mark: taken_over.map_or(0, |state| state.loop_mark),
        gil_holder: gil.map_or(0, |gil| gil.holder),
        gil_locked: gil.map_or(0, |gil| gil.locked),
        interpreter: own_gil.map_or(0, |own| own.interpreter),
        interpreter_gil: own_gil.map_or(0, |own| own.gil),
    }
}
