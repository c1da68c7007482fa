//! The code that executes Python code: `_PyEval_EvalFrameDefault` and what the compiler made of it.

use std::ops::Range;

use super::symbols::{Symbol, Symbols};
use crate::unwind;

/// What its first part is called.
pub const EVALUATION: &str = "_PyEval_EvalFrameDefault";

/// 3.14 can be built with a function for each instruction, which tail-call each other.
const TAIL_CALLS: &[u8] = b"_TAIL_CALL_";

/// Padding between functions that belong together.
const MAX_PADDING_BYTES: u64 = 64;

/// Ranges to tell of: one or two, and those of tail calls are next to each other.
const MAX_RANGES: usize = 16;

/// Where that code is in the object's own space, by address.
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

/// `.cold`, `.cold.0`, `.part.0`, `.org.0` and what else toolchains call them.
fn is_part(name: &[u8]) -> bool {
    let suffix = name.strip_prefix(EVALUATION.as_bytes());
    suffix.is_some_and(|suffix| suffix.first() == Some(&b'.')) || name.starts_with(TAIL_CALLS)
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

    /// Handlers that follow each other are one range; code elsewhere stays apart.
    #[test]
    fn neighbours_are_joined() {
        assert_eq!(joined(vec![900..950, 10..20, 24..40, 30..36]), [10..40, 900..950]);
        assert_eq!(joined(vec![0..10, 10_000..10_010]).len(), 2);
    }

    /// Parts of the loop are known by name, other functions that begin alike are not.
    #[test]
    fn parts_are_told_by_their_names() {
        assert!(is_part(b"_PyEval_EvalFrameDefault.cold"));
        assert!(is_part(b"_TAIL_CALL_LOAD_FAST"));
        assert!(!is_part(b"_PyEval_EvalFrameDefaultly"));
        assert!(!is_part(b"_PyEval_EvalFrameDefault"));
    }
}
