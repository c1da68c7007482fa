//! Libraries that may panic on hostile input, kept from ending the recording.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic in this thread is the input's fault right now, and becomes an error. A panic hook asks, to keep
/// quiet.
pub fn is_guarded() -> bool {
    GUARDED.get()
}

/// What `read` returns; None when it panicked. Nothing that it borrows mutably may be used after that.
pub(crate) fn guarded<T>(read: impl FnOnce() -> T) -> Option<T> {
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(outer);
    result.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic becomes None, and later panics are loud again.
    #[test]
    fn panics_are_contained() {
        assert_eq!(guarded(|| if is_guarded() { panic!("hostile") } else { 1 }), None);
        assert_eq!(guarded(|| 2), Some(2));
        assert!(!is_guarded());
    }
}
