//! Runs of a program for their own sake (`BPF_PROG_TEST_RUN`), timed by the clock on the wall: the kernel's own answer is
//! a whole number of nanoseconds a run.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Instant;

use super::nothing;

/// What a program is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input<'a> {
    /// A packet.
    pub data: &'a [u8],
    /// A context, for programs that take one from the caller.
    pub context: &'a [u8],
    /// Runs in one call; 1 for programs that the kernel runs once a call.
    pub repeat: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ran {
    /// Of the last run.
    pub return_value: u32,
    /// All runs, and the call.
    pub elapsed_ns: u64,
}

/// Room for what a program makes of a packet.
const OUTPUT_BYTES: usize = 1 << 16;

/// Runs a program.
pub fn run(program: BorrowedFd<'_>, input: Input<'_>) -> io::Result<Ran> {
    let mut output = vec![0u8; if input.data.is_empty() { 0 } else { OUTPUT_BYTES }];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        repeat: if input.repeat > 1 { input.repeat as i32 } else { 0 }, // those that run once refuse any number
        ..Default::default()
    };
    if !input.data.is_empty() {
        options.data_in = input.data.as_ptr().cast();
        options.data_size_in = input.data.len() as u32;
        options.data_out = output.as_mut_ptr().cast();
        options.data_size_out = output.len() as u32;
    }
    if !input.context.is_empty() {
        options.ctx_in = input.context.as_ptr().cast();
        options.ctx_size_in = input.context.len() as u32;
    }
    let begun = Instant::now();
    // SAFETY: all that the options point to lives through the call, and has the lengths that they say.
    let status = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    let elapsed_ns = begun.elapsed().as_nanos() as u64;
    match status {
        0 => Ok(Ran {
            return_value: options.retval,
            elapsed_ns,
        }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

/// A program of some kind that does nothing but return a value: what running it takes is what running takes.
pub fn load_empty(kind: u32, attach_type: u32, return_value: u32) -> io::Result<OwnedFd> {
    let instructions = nothing::instructions(return_value);
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: attach_type,
        prog_flags: if kind == libbpf_sys::BPF_PROG_TYPE_SYSCALL {
            libbpf_sys::BPF_F_SLEEPABLE
        } else {
            0
        },
        ..Default::default()
    };
    // SAFETY: all of it lives through the call, and the texts are constants.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"stackhound_nil".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr(),
            instructions.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
