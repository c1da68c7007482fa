//! From a process's interpreter to what the walker needs to know of it.

use stackhound_core::python::{Counted, Entry, Gil, Interpreter, Python, Refusal, Slot, Walk};

use super::memory::ProcessMemory;
use crate::abi;

/// An interpreter that runs.
pub struct Attached {
    /// Reads its code objects.
    pub python: Python,
    /// For the walker.
    pub walk: abi::Python,
}

impl Attached {
    /// Finds the threads of a process's interpreter, and where they have their states.
    pub fn new(pid: u32, interpreter: &Interpreter, bias: u64) -> Result<Self, Refusal> {
        let memory = ProcessMemory { pid };
        let python = Python::attach(interpreter, bias, &memory)?;
        let threads = python.threads(&memory)?;
        let slot = Slot::find(&memory, &threads)?.ok_or(Refusal::NotYet)?;
        let main = threads.last().ok_or(Refusal::NotYet)?.interpreter; // the oldest
        let gil = python.gil(&memory, main)?;
        let walk = describe(&python.layout.walk, slot, gil);
        Ok(Self { python, walk })
    }
}

fn describe(walk: &Walk, slot: Slot, gil: Option<Gil>) -> abi::Python {
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
        reserved: 0,
    }
}
