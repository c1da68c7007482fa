//! The code that executes Python code: `_PyEval_EvalFrameDefault` and what the compiler made of it.
//!
//! ```text
//! a loop      each call of it is one native frame, in the function or in parts of it that were moved away
//! tail calls  3.14, where the compiler can: a function for each instruction, which jumps to the next one's. Each call of
//!             the loop is two native frames: its own, and the instruction's, which it called to begin with
//! ```

use std::ops::Range;

use super::symbols::{Symbol, Symbols};
use super::version::Version;
use crate::unwind;

/// What its first part is called.
pub const EVALUATION: &str = "_PyEval_EvalFrameDefault";

/// The first version that can be built with tail calls.
const TAIL_CALLS_SINCE: u8 = 14;

/// A loop has 20 KB and more, of which compilers may leave but 1 KB where the function begins; what only prepares the
/// first tail call has some hundred bytes.
const MAX_TAIL_CALLER_BYTES: u64 = 8192;

/// Padding between functions that belong together.
const MAX_PADDING_BYTES: u64 = 64;

/// Ranges to tell of: one or two, some with most compilers.
const MAX_RANGES: usize = 16;

/// Where the function that is called to execute code is in the object's own space, by address, with the parts of it
/// that were moved away.
pub(super) fn evaluation(file: &[u8], symbols: &Symbols) -> Vec<Range<u64>> {
    let Some(main) = symbols.any(EVALUATION).and_then(range) else {
        return Vec::new();
    };
    let named: Vec<_> = symbols.all_that(is_part).into_iter().filter_map(range).collect();
    let others = if named.is_empty() {
        unwind::outlined(file, &main)
    } else {
        named
    };
    joined([main].into_iter().chain(others).collect())
}

/// Whether instructions are functions of their own, whose names are gone in stripped files: then the parts of the one
/// that is called to execute code are small, all together.
pub(super) fn has_tail_calls(version: Version, parts: &[Range<u64>]) -> bool {
    let is_new = version.minor().is_some_and(|minor| minor >= TAIL_CALLS_SINCE);
    let bytes: u64 = parts.iter().map(|part| part.end - part.start).sum();
    is_new && (1..MAX_TAIL_CALLER_BYTES).contains(&bytes)
}

/// `.cold`, `.cold.0`, `.part.0`, `.org.0` and what else toolchains call them.
fn is_part(name: &[u8]) -> bool {
    let suffix = name.strip_prefix(EVALUATION.as_bytes());
    suffix.is_some_and(|suffix| suffix.first() == Some(&b'.'))
}

fn range(symbol: Symbol) -> Option<Range<u64>> {
    let end = symbol.address.checked_add(symbol.bytes)?;
    (symbol.bytes > 0).then_some(symbol.address..end)
}

/// Sorted, those that follow each other as one; the largest where there are too many.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(MAX_PADDING_BYTES) => {
                last.end = last.end.max(range.end);
            }
            _ => joined.push(range),
        }
    }
    joined.sort_unstable_by_key(|range| std::cmp::Reverse(range.end - range.start));
    joined.truncate(MAX_RANGES);
    joined.sort_unstable_by_key(|range| range.start);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts that follow each other are one range; code elsewhere stays apart.
    #[test]
    fn neighbours_are_joined() {
        assert_eq!(joined(vec![900..950, 10..20, 24..40, 30..36]), [10..40, 900..950]);
        assert_eq!(joined(vec![0..10, 10_000..10_010]).len(), 2);
    }

    /// A loop may have most of its code elsewhere; before 3.14 there are no tail calls.
    #[test]
    fn tail_calls_are_known_by_how_little_is_left() {
        let version = Version::of_minor(14);
        assert!(has_tail_calls(version, &[1000..1600, 9000..9200]));
        assert!(!has_tail_calls(version, &[1000..2200, 9000..93_000]));
        assert!(!has_tail_calls(version, &[]));
        assert!(!has_tail_calls(Version::of_minor(13), &[1000..1600, 9000..9200]));
    }

    /// Parts of the loop are known by name, other functions that begin alike are not.
    #[test]
    fn parts_are_told_by_their_names() {
        assert!(is_part(b"_PyEval_EvalFrameDefault.cold"));
        assert!(!is_part(b"_PyEval_EvalFrameDefaultly"));
        assert!(!is_part(b"_PyEval_EvalFrameDefault"));
    }
}
