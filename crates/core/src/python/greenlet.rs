//! greenlet, as gevent uses it: an extension that switches a thread between native stacks, and Python's frames with them.

use super::symbols::Symbols;
use crate::guard::guarded;

/// What the extension module exports.
const MODULE_EXPORTS: &str = "PyInit__greenlet";

/// Whether an ELF file is it. Its functions are the first of each stack that it made: beyond them are the frames of
/// whoever was there before, as far as they are still there.
pub fn switches_stacks(file: &[u8]) -> bool {
    let found = guarded(|| Symbols::read(file).ok()?.exported(MODULE_EXPORTS));
    found.flatten().is_some()
}
