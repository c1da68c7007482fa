//! From a process's interpreter to what the walker needs to know of it.

use std::ops::Range;

use stackhound_core::address::ObjectAddr;
use stackhound_core::python::{Asyncio, Counted, Entry, Gil, Layout, Python, Refusal, Slot};

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
}

impl Attached {
    /// Finds the interpreter that a process runs, its threads, and where they have their states.
    pub fn new(pid: u32, candidates: &[Candidate], asyncio: Option<Asyncio>) -> Result<Self, Refusal> {
        let mut refusal = Refusal::NotYet;
        for candidate in candidates {
            match Self::to(pid, candidate, asyncio) {
                Ok(attached) => return Ok(attached),
                Err(other) if candidates.len() == 1 => refusal = other,
                Err(_) => {}
            }
        }
        Err(refusal)
    }

    fn to(pid: u32, candidate: &Candidate, asyncio: Option<Asyncio>) -> Result<Self, Refusal> {
        let (interpreter, bias) = (&candidate.found.interpreter, candidate.bias);
        let memory = ProcessMemory { pid };
        let python = Python::attach(interpreter, bias, &memory)?;
        let threads = python.threads(&memory)?;
        let slot = Slot::find(&memory, &threads)?.ok_or(Refusal::NotYet)?;
        let main = threads.last().ok_or(Refusal::NotYet)?.interpreter; // the oldest
        let gil = python.gil(&memory, main)?;
        let walk = describe(&python.layout, slot, gil, asyncio);
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
        })
    }
}

fn describe(layout: &Layout, slot: Slot, gil: Option<Gil>, asyncio: Option<Asyncio>) -> abi::Python {
    let (walk, names) = (&layout.walk, layout.names());
    let tasks = asyncio.zip(layout.object_bytes());
    let (thread_state, thread_state_indirect) = match slot {
        Slot::Direct { offset } => (offset.into(), 0),
        Slot::Indirect { block, offset } => (block.into(), offset.into()),
    };
    let (entry, owner, shim_owner) = match walk.entry {
        Entry::Each => (abi::ENTRY_EACH, 0, 0),
        Entry::Flag(flag) => (abi::ENTRY_FLAG, flag, 0),
        Entry::Before { owner, from } => (abi::ENTRY_SHIM, owner, from),
    };
    let (bytes, instruction_mask) = match walk.counted {
        Counted::Bytes | Counted::Units => (4, u64::from(u32::MAX)),
        Counted::Pointer { .. } => (8, u64::MAX),
    };
    let ends = [walk.code + 8, walk.previous + 8, walk.instruction + bytes, owner + 1];
    abi::Python {
        gil_locked: gil.map_or(0, |gil| gil.locked.0),
        gil_holder: gil.map_or(0, |gil| gil.holder.0),
        code_mask: !walk.code_tag,
        instruction_mask,
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
        object_bytes: tasks.map_or(0, |(_, bytes)| bytes as u8), // so few that they were believed
        running_task: tasks.map_or(0, |(asyncio, _)| asyncio.running_task),
        task_coroutine: tasks.map_or(0, |(asyncio, _)| asyncio.coroutine),
    }
}
