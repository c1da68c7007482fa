//! Two walks of one case, frame by frame.

use crate::{End, Stack};

/// Where two walks begin to differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The frame, counted from the innermost one.
    pub frame: usize,
    /// The walker's address; None where it has ended.
    pub walker: Option<u64>,
    /// The oracle's.
    pub oracle: Option<u64>,
}

/// How much two walks have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Frames with the same address as the oracle's, which call frame information led to.
    pub equal: usize,
    /// The same where a step by frame pointers came before: the oracle knows no better.
    pub equal_by_frame_pointers: usize,
    /// Frames of the walker's behind the last one of the oracle's, which knows no further.
    pub beyond: usize,
    /// Frames from the first difference on.
    pub different: usize,
    /// Where they differ.
    pub difference: Option<Difference>,
}

impl Comparison {
    /// `certain`: as `Oracle::walk` gives it.
    pub fn new(walker: &Stack, oracle: &Stack, certain: usize) -> Self {
        let (ours, theirs) = (&walker.addresses, &oracle.addresses);
        let same = ours.iter().zip(theirs).take_while(|(our, their)| our == their).count();
        let others = ours.len().max(theirs.len()) - same;
        let is_beyond = same == theirs.len() && matches!(oracle.end, End::NoRule | End::Unsupported);
        let (beyond, different) = if is_beyond { (others, 0) } else { (0, others) };
        let difference = Difference {
            frame: same,
            walker: ours.get(same).copied(),
            oracle: theirs.get(same).copied(),
        };
        Self {
            equal: same.min(certain),
            equal_by_frame_pointers: same.saturating_sub(certain),
            beyond,
            different,
            difference: (different > 0).then_some(difference),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(addresses: &[u64]) -> Stack {
        Stack {
            addresses: addresses.to_vec(),
            end: End::Root,
            lack: None,
        }
    }

    #[test]
    fn all_behind_the_first_difference_is_different() {
        let found = Comparison::new(&stack(&[1, 2, 9, 4]), &stack(&[1, 2, 3, 4, 5]), 5);
        assert_eq!((found.equal, found.different), (2, 3));
        let difference = found.difference.unwrap();
        assert_eq!(
            (difference.frame, difference.walker, difference.oracle),
            (2, Some(9), Some(3))
        );
    }

    #[test]
    fn frames_that_only_one_has_are_different() {
        assert_eq!(Comparison::new(&stack(&[1, 2, 3]), &stack(&[1]), 1).different, 2);
        assert_eq!(Comparison::new(&stack(&[1]), &stack(&[1, 2, 3]), 3).different, 2);
    }

    #[test]
    fn frames_that_the_oracle_cannot_know_are_counted_apart() {
        let unknown = Stack {
            end: End::NoRule,
            ..stack(&[1, 2])
        };
        let found = Comparison::new(&stack(&[1, 2, 3]), &unknown, 2);
        assert_eq!((found.equal, found.beyond, found.different), (2, 1, 0));
        assert_eq!(Comparison::new(&stack(&[1, 3, 4]), &unknown, 2).different, 2);
    }

    #[test]
    fn frames_behind_a_guess_are_counted_apart() {
        let found = Comparison::new(&stack(&[1, 2, 3]), &stack(&[1, 2, 3]), 2);
        assert_eq!((found.equal, found.equal_by_frame_pointers, found.different), (2, 1, 0));
        assert_eq!(found.difference, None);
    }
}
