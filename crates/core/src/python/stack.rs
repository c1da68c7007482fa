//! A thread's Python frames, read from outside: what the kernel does when it takes a sample, for those who want the
//! stack of a thread now.

use super::layout::{Copies, Counted, Entry, Walk};
use super::memory::{Memory, Unreadable, further, read_pointer, read_u64};
use super::object::u64_in;
use super::runtime::Python;
use crate::address::ProcessAddr;

/// Frames to read of a stack, the evaluation loop's own among them. Python itself stops at 1,000 unless told otherwise.
const MAX_FRAMES: usize = 10_000;

/// A frame that executes Python code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its code object.
    pub code: ProcessAddr,
    /// The instruction that it is at, for [`Code::position`](super::Code::position).
    pub instruction: i64,
    /// Whether it was called by native code: it is the last one that one native frame executes.
    pub is_entry: bool,
}

/// A thread's frames, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// As far as they were read.
    pub frames: Vec<Frame>,
    /// Whether there are more: too many, or the thread ran on meanwhile and they could not be read.
    pub is_truncated: bool,
}

impl Python {
    /// The frames of a thread, given by its thread state.
    ///
    /// The thread runs on meanwhile: what it calls and returns from may be there or not, or cut the stack short.
    pub fn frames(&self, memory: &dyn Memory, state: ProcessAddr) -> Result<Frames, Unreadable> {
        let walk = &self.layout.walk;
        let mut next = newest(memory, walk, state)?;
        let mut stack = Frames::default();
        for _ in 0..MAX_FRAMES {
            let Some(at) = next else { break };
            let Ok(step) = step(memory, walk, at, &mut stack.frames) else {
                stack.is_truncated = true;
                return Ok(stack);
            };
            next = step.filter(|previous| *previous != at);
        }
        stack.is_truncated = next.is_some();
        if let (Some(oldest), false) = (stack.frames.last_mut(), stack.is_truncated) {
            oldest.is_entry = true;
        }
        Ok(stack)
    }
}

fn newest(memory: &dyn Memory, walk: &Walk, state: ProcessAddr) -> Result<Option<ProcessAddr>, Unreadable> {
    let pointer = read_pointer(memory, further(state, walk.frame))?;
    match (walk.cframe, pointer) {
        (Some(offset), Some(cframe)) => read_pointer(memory, further(cframe, offset)),
        _ => Ok(pointer),
    }
}

/// Take the frame at an address, and say where the one before it is.
fn step(
    memory: &dyn Memory,
    walk: &Walk,
    at: ProcessAddr,
    frames: &mut Vec<Frame>,
) -> Result<Option<ProcessAddr>, Unreadable> {
    let raw = Raw::read(memory, walk, at)?;
    if raw.is_python() {
        frames.push(raw.frame(memory)?);
    } else if let Some(last) = frames.last_mut() {
        last.is_entry = true;
    }
    Ok(raw.previous())
}

/// A frame as it is in memory.
pub(super) struct Raw<'w> {
    walk: &'w Walk,
    bytes: Vec<u8>,
}

impl<'w> Raw<'w> {
    pub(super) fn read(memory: &dyn Memory, walk: &'w Walk, at: ProcessAddr) -> Result<Self, Unreadable> {
        let mut bytes = vec![0; walk.frame_bytes().into()];
        memory.read(at, &mut bytes)?;
        Ok(Self { walk, bytes })
    }

    fn word(&self, offset: u16) -> u64 {
        u64_in(&self.bytes, offset).unwrap_or(0) // frame_bytes() goes beyond every offset
    }

    fn int(&self, offset: u16) -> i32 {
        self.word(offset) as i32
    }

    fn byte(&self, offset: u16) -> u8 {
        self.word(offset) as u8
    }

    fn previous(&self) -> Option<ProcessAddr> {
        Some(ProcessAddr(self.word(self.walk.previous))).filter(|address| address.0 != 0)
    }

    /// Whether it is a Python function's, and not the evaluation loop's own.
    fn is_python(&self) -> bool {
        match self.walk.entry {
            Entry::Before { owner, from } => self.byte(owner) < from,
            Entry::Each | Entry::Flag(_) => true,
        }
    }

    pub(super) fn frame(&self, memory: &dyn Memory) -> Result<Frame, Unreadable> {
        let code = ProcessAddr(self.word(self.walk.code) & !self.walk.code_tag);
        Ok(Frame {
            code,
            instruction: self.instruction(memory, code)?,
            is_entry: match self.walk.entry {
                Entry::Each => true,
                Entry::Flag(flag) => self.byte(flag) != 0,
                Entry::Before { .. } => false,
            },
        })
    }

    fn instruction(&self, memory: &dyn Memory, code: ProcessAddr) -> Result<i64, Unreadable> {
        let Counted::Pointer { bytecode } = self.walk.counted else {
            return Ok(self.int(self.walk.instruction).into());
        };
        let start = match self.walk.copies {
            Some(copies) if self.int(copies.index) > 0 => self.copy(memory, copies, code)?,
            _ => further(code, bytecode),
        };
        let distance = self.word(self.walk.instruction).wrapping_sub(start.0);
        Ok(distance.wrapping_add(bytecode.into()) as i64)
    }

    /// Where the copy of the bytecode begins that the frame's thread executes.
    fn copy(&self, memory: &dyn Memory, copies: Copies, code: ProcessAddr) -> Result<ProcessAddr, Unreadable> {
        let array = read_u64(memory, further(code, copies.array))?;
        let index = self.int(copies.index) as u32;
        let entry = ProcessAddr(array.wrapping_add(8 + 8 * u64::from(index)));
        read_u64(memory, entry).map(ProcessAddr)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{CODE, Fake, NEWEST_FRAME, OLDEST_FRAME, fake_3_11, python_3_11};
    use super::super::slot::Slot;
    use super::*;
    use crate::random::Random;

    fn frames(memory: &Fake) -> Frames {
        let python = python_3_11(memory);
        let thread = python.threads(memory).unwrap()[1];
        python.frames(memory, thread.state).unwrap()
    }

    /// The newest frame comes first, and those that native code called say so.
    #[test]
    fn frames_are_read() {
        let frames = frames(&fake_3_11());
        let found: Vec<_> = frames
            .frames
            .iter()
            .map(|frame| (frame.instruction, frame.is_entry))
            .collect();
        assert_eq!(found, [(186, false), (182, true)]);
        assert!(frames.frames.iter().all(|frame| frame.code == CODE));
        assert!(!frames.is_truncated);
    }

    /// Frames that lead back to each other end, and are marked.
    #[test]
    fn cyclic_frames_end() {
        let mut memory = fake_3_11();
        memory.write(further(OLDEST_FRAME, 48_u32), NEWEST_FRAME.0);
        let frames = frames(&memory);
        assert_eq!(frames.frames.len(), MAX_FRAMES);
        assert!(frames.is_truncated);
    }

    /// So do the evaluation loop's own, of which none is taken.
    #[test]
    fn cycles_without_a_python_frame_end() {
        let mut memory = fake_3_11();
        let mut python = python_3_11(&memory);
        let thread = python.threads(&memory).unwrap()[1];
        python.layout.walk.entry = Entry::Before { owner: 68, from: 0 };
        memory.write(further(OLDEST_FRAME, 48_u32), NEWEST_FRAME.0);
        let frames = python.frames(&memory, thread.state).unwrap();
        assert!(frames.frames.is_empty() && frames.is_truncated);
    }

    /// Frames that cannot be read cut the stack short, which it says.
    #[test]
    fn unreadable_frames_truncate() {
        let mut memory = fake_3_11();
        memory.write(further(NEWEST_FRAME, 48_u32), 0xdead_0000);
        let frames = frames(&memory);
        assert_eq!(frames.frames.len(), 1);
        assert!(frames.is_truncated && !frames.frames[0].is_entry);
    }

    /// A process whose pointers were overwritten, with anything or each other, is read up to some end.
    #[test]
    fn processes_that_lie_do_no_harm() {
        let whole = fake_3_11();
        let python = python_3_11(&whole);
        let mut random = Random::new(17);
        for _ in 0..5000 {
            let memory = whole.lying(&mut random, 25);
            let threads = python.threads(&memory).unwrap_or_default();
            let _ = Slot::find(&memory, &threads);
            for thread in threads {
                let _ = python
                    .gil(&memory, thread.interpreter)
                    .map(|gil| gil.map(|gil| gil.held_by(&memory)));
                let frames = python.frames(&memory, thread.state).unwrap_or_default().frames;
                assert!(frames.len() <= MAX_FRAMES);
                for frame in frames.iter().take(4) {
                    let code = python.codes(&memory).read(frame.code);
                    let _ = code.map(|code| (code.position(frame.instruction), code.shown_name()));
                }
            }
        }
    }

    /// A thread that runs no Python code has no frames.
    #[test]
    fn threads_without_frames_have_none() {
        let memory = fake_3_11();
        let python = python_3_11(&memory);
        let thread = python.threads(&memory).unwrap()[0];
        assert_eq!(python.frames(&memory, thread.state), Ok(Frames::default()));
    }
}
