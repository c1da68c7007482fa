//! Whether a file that nobody vouches for has an interpreter in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stackhound_core::python::Interpreter;

fuzz_target!(|file: &[u8]| {
    let Some(interpreter) = Interpreter::find(file) else {
        return;
    };
    assert!(interpreter.evaluation.is_sorted_by(|one, next| one.end < next.start));
});
