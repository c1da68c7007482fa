//! What the kernel's bits say of a thread.

use stackhound_core::rows::{ThreadState, ThreadStateRow};

use crate::abi;

// include/linux/sched.h: task_struct.__state
const INTERRUPTIBLE: u64 = 0x1;
const UNINTERRUPTIBLE: u64 = 0x2;
const STOPPED: u64 = 0x4;
const TRACED: u64 = 0x8;
const PARKED: u64 = 0x40;
const NOT_LOAD: u64 = 0x400; // a kernel thread that has nothing to do
const FROZEN: u64 = 0x8000;
/// Of the exit state, which is in the upper half.
const EXITING: u64 = 0xffff_ffff << 32;

/// The row of a thread, with its stack.
pub fn describe(thread: &abi::DumpedThread, has_stack: bool) -> ThreadStateRow {
    ThreadStateRow {
        state: if thread.has_run == 0 {
            state_of(thread.task_state)
        } else {
            ThreadState::Running
        },
        io_wait: thread.io_wait != 0,
        cpu_ns: thread.cpu_ns,
        has_stack,
    }
}

fn state_of(bits: u64) -> ThreadState {
    let has = |wanted: u64| bits & wanted != 0;
    match bits {
        0 => ThreadState::Runnable,
        _ if has(EXITING) => ThreadState::Ended,
        _ if has(STOPPED) => ThreadState::Stopped,
        _ if has(TRACED) => ThreadState::Traced,
        _ if has(FROZEN) => ThreadState::Frozen,
        _ if has(PARKED) || (has(UNINTERRUPTIBLE) && has(NOT_LOAD)) => ThreadState::Idle,
        _ if has(UNINTERRUPTIBLE) => ThreadState::Uninterruptible,
        _ if has(INTERRUPTIBLE) => ThreadState::Sleeping,
        _ => ThreadState::Runnable, // being woken, or new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(task_state: u64, has_run: u8) -> ThreadState {
        let thread = abi::DumpedThread {
            cpu_ns: 1,
            task_state,
            has_run,
            io_wait: 0,
            reserved: [0; 6],
        };
        describe(&thread, true).state
    }

    /// The letters of /proc/PID/stat, in words.
    #[test]
    fn states_are_told_as_proc_tells_them() {
        let freezable_sleep = 0x2001;
        let killable = 0x102;
        assert_eq!(state(0, 0), ThreadState::Runnable);
        assert_eq!(state(freezable_sleep, 0), ThreadState::Sleeping);
        assert_eq!(state(killable, 0), ThreadState::Uninterruptible);
        assert_eq!(state(UNINTERRUPTIBLE | NOT_LOAD, 0), ThreadState::Idle);
        assert_eq!(state(0x100 | STOPPED, 0), ThreadState::Stopped);
        assert_eq!(state(0x80 | 0x20 << 32, 0), ThreadState::Ended);
        assert_eq!(state(INTERRUPTIBLE, 1), ThreadState::Running);
    }
}
