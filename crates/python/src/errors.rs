//! The one map from Rust errors to Python's `NativeError`, whose kinds `stackhound.errors.NATIVE_KINDS` knows.

use pyo3::exceptions::PyException;
use pyo3::{PyErr, create_exception};
use stackhound_capture as capture;
use stackhound_core::{Error, guard};

create_exception!(
    stackhound._native,
    NativeError,
    PyException,
    "A failed request: (kind, message, remedy)."
);

/// A `NativeError` of this kind. `remedy` may be empty.
pub fn native(kind: &'static str, message: impl ToString, remedy: &str) -> PyErr {
    NativeError::new_err((kind, message.to_string(), remedy.to_owned()))
}

/// The `NativeError` for a failure of the core.
pub fn from_core(error: Error) -> PyErr {
    let kind = match error {
        Error::Damaged(_) => "damaged",
        Error::Usage(_) | Error::Refused(_) => "usage",
        Error::Output(_) => "output",
    };
    native(kind, error, "")
}

/// Keep the panics quiet that the core turns into errors; all others are printed as before.
pub fn quiet_expected_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !guard::is_guarded() {
            print(panic);
        }
    }));
}

/// The `NativeError` for a failed recording.
pub fn from_capture(error: capture::Error) -> PyErr {
    let kind = match error.kind {
        capture::ErrorKind::Usage => "usage",
        capture::ErrorKind::Recording => "recording",
        capture::ErrorKind::Permission => "permission",
        capture::ErrorKind::Kernel => "kernel",
        capture::ErrorKind::Event => "event",
        capture::ErrorKind::NoProcess => "no-process",
    };
    native(kind, error.message, &error.remedy)
}
