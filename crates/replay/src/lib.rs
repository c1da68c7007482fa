//! The kernel's walk of user stacks (`bpf/stack/unwind.h`), run in user space beside an independent unwinder.
//!
//! ```text
//! thread      stops a thread: registers, memory, code         → case
//! case        what a walk depends on; memory is kept as it is read
//! walker      the walker, over the tables that the kernel would have
//! oracle      gimli's evaluation of the same files, with all registers
//! comparison  the two, frame by frame
//! ```

mod case;
mod comparison;
mod elf;
mod oracle;
mod registers;
mod thread;
mod walker;

pub use case::{Case, Memory};
pub use comparison::{Comparison, Difference};
pub use oracle::Oracle;
pub use registers::{FP, REGISTERS, Registers, SP};
pub use stackhound_capture::abi;
pub use stackhound_capture::unwind::replay::{Code, Replay};
pub use thread::{Stopped, Traced, threads};
pub use walker::Walker;

/// How a walk ended: `enum user_end` of `bpf/abi.h`, as far as walks by tables end so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Where the thread began.
    Root,
    /// More frames than there is room for.
    Truncated,
    /// There is no such process.
    NoMappings,
    /// An address that is in no code.
    OutsideCode,
    /// A table that is not there yet.
    NoTable,
    /// Nothing is known of this code.
    NoRule,
    /// A rule that cannot be said.
    Unsupported,
    /// The stack could not be read.
    Unreadable,
    /// The caller's frame would not lie above its callee's.
    NoProgress,
}

/// The frames of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Innermost first, as `record_frame` of `bpf/stack/unwind.h` writes them: an instruction, then return addresses,
    /// and one byte more than the instruction that a signal interrupted.
    pub addresses: Vec<u64>,
    /// Why there are no more.
    pub end: End,
    /// Why a step was made by frame pointers, if one was.
    pub lack: Option<End>,
}
