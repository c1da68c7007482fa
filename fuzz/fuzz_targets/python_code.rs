//! A process whose interpreter lies: its memory is the input, its structures anywhere in it. Threads, frames and code
//! objects are read, or are errors.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stackhound_core::address::{ObjectAddr, ProcessAddr};
use stackhound_core::python::{Interpreter, Memory, Python, Slot, Unreadable, Version};

/// Where the input is in the process: pointers of two bytes lead to it.
const BASE: u64 = 0x1000;

/// Objects that are looked at for one input.
const MAX_OBJECTS: usize = 64;

struct Input<'i>(&'i [u8]);

impl Memory for Input<'_> {
    fn read(&self, address: ProcessAddr, into: &mut [u8]) -> Result<(), Unreadable> {
        let start = address
            .0
            .checked_sub(BASE)
            .and_then(|start| usize::try_from(start).ok());
        let bytes = start.and_then(|start| self.0.get(start..)?.get(..into.len()));
        into.copy_from_slice(bytes.ok_or(Unreadable(address))?);
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, memory)) = input.split_first() else {
        return;
    };
    let version = match 9 + choice % 6 {
        minor @ ..=12 => Version::of_minor(minor),
        13 => Version::from_hex(0x030d_00f0),
        _ => Version::from_hex(0x030e_00f0),
    };
    let interpreter = Interpreter {
        version,
        runtime: ObjectAddr(BASE),
        code_type: None,
        is_debug_build: false,
        has_tail_calls: choice & 0x80 != 0,
        evaluation: Vec::new(),
    };
    let memory = Input(memory);
    let Ok(python) = Python::attach(&interpreter, 0, &memory) else {
        return;
    };
    let threads = python.threads(&memory).unwrap_or_default();
    let _ = Slot::find(&memory, &threads);
    for thread in threads.iter().take(MAX_OBJECTS) {
        let _ = python
            .gil(&memory, thread.interpreter)
            .map(|gil| gil.map(|gil| gil.held_by(&memory)));
        let frames = python.frames(&memory, thread.state).unwrap_or_default().frames;
        for frame in frames.iter().take(MAX_OBJECTS) {
            if let Ok(code) = python.codes(&memory).read(frame.code) {
                let _ = (code.position(frame.instruction), code.shown_name());
            }
        }
    }
});
