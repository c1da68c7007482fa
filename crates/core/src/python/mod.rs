//! CPython, read from outside: 3.9 to 3.14, with and without the global interpreter lock, unmodified, stripped or not.
//!
//! ```text
//! Interpreter  what an ELF file says: is there an interpreter in it, which version, where its evaluation loop is
//! Layout       where that version keeps what is read: told by itself since 3.13, known before; `Walk` is for the kernel
//! Python       a process's interpreter: its threads, their frames, its lock
//! Slot         where each thread has the pointer to its thread state, so that a walk can begin
//! Tasks        asyncio's: who awaits the one that a thread runs
//! Code         a function's names and file, and the line and columns of each instruction
//! Bytecode     where a code object's instructions are, when threads have copies of them
//! ```
//!
//! Pure: a process is what implements [`Memory`]. It runs on while it is read, and nothing that it says is believed:
//! each read has a bound, lists and chains end, and what is wrong is an error or an odd name.

mod bytecode;
mod callbacks;
mod code;
mod debug_offsets;
mod dictionary;
mod evaluation;
#[cfg(test)]
mod fake;
mod greenlet;
mod interpreter;
mod known;
mod layout;
mod lines;
mod memory;
mod module;
mod object;
mod runtime;
mod slot;
mod stack;
mod symbols;
mod tasks;
mod version;

pub use bytecode::Bytecode;
pub use code::{Code, Codes, Fingerprint, NotCode};
pub use evaluation::EVALUATION;
pub use greenlet::switches_stacks;
pub use interpreter::Interpreter;
pub use layout::{Copies, Counted, Entry, Layout, Names, OwnGil, Refusal, TakenOver, Walk};
pub use lines::Position;
pub use memory::{Memory, Unreadable};
pub use runtime::{Gil, Python, Thread};
pub use slot::Slot;
pub use stack::{Frame, Frames};
pub use tasks::{Asyncio, Kept, Places, RunningTask, Task, Tasks};
pub use version::Version;
