//! Where Python's frames go among the native ones: each call of the evaluation loop has those that it runs.

use std::ops::Range;

use stackhound_core::rows::LocationId;

/// Code before the loop itself, where it puts the frame among the thread's.
const ENTRY_BYTES: u64 = 256;

/// A frame of a user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// An address in the process: of the leaf its own, of others the one they return to.
    Native(u64),
    /// A place in a code object, which is at this address in the process; or what stands for one that awaits the task at
    /// this address.
    Python(LocationId, u64),
}

impl Frame {
    /// Where in the process it is.
    pub fn address(&self) -> u64 {
        match *self {
            Self::Native(address) | Self::Python(_, address) => address,
        }
    }
}

/// A frame of Python's interpreter.
#[derive(Clone, Copy, Debug)]
pub struct PythonFrame {
    /// None: a call of the evaluation loop that runs nothing yet.
    pub frame: Option<Frame>,
    /// The last one of its call of the evaluation loop.
    pub is_entry: bool,
}

/// The code that executes Python code, in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loop {
    /// Where it is.
    pub ranges: Vec<Range<u64>>,
    /// Whether what each call of it has called, to begin with, is part of it.
    pub has_tail_calls: bool,
}

impl Loop {
    /// Whether an address is in it.
    pub fn has(&self, address: u64) -> bool {
        self.ranges.iter().any(|part| part.contains(&address))
    }

    /// Which frames, leaf first, are calls of it.
    fn calls(&self, native: &[u64]) -> Vec<bool> {
        let is_call = |(at, address): (usize, &u64)| self.has(address.wrapping_sub(u64::from(at > 0)));
        native.iter().enumerate().map(is_call).collect()
    }

    /// The frames before which those go that each of these calls runs: the call's own, or that of what it has called.
    fn inner(&self, calls: &[bool]) -> Vec<bool> {
        let has_called = |at: usize| self.has_tail_calls && at > 0 && !calls[at - 1];
        let mut inner = vec![false; calls.len()];
        for (at, _) in calls.iter().enumerate().filter(|(_, is_call)| **is_call) {
            inner[at - usize::from(has_called(at))] = true;
        }
        inner
    }

    /// Whether an address is where it is entered, so that the interpreter does not know of the call yet. Of parts that
    /// were moved away nothing is entered at their beginning, and few samples are there.
    fn begins(&self, address: u64) -> bool {
        let begins = |part: &Range<u64>| part.contains(&address) && address - part.start < ENTRY_BYTES;
        self.ranges.iter().any(begins)
    }
}

/// How well the two fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Each call has its frames.
    Exact,
    /// More calls of one kind than of the other; the frames are in order, but some may be in another call's place.
    Guessed,
}

/// A user stack's two parts, and what is known of them.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'s> {
    /// Leaf first, as the walker writes them.
    pub native: &'s [u64],
    /// Leaf first.
    pub python: &'s [PythonFrame],
    /// The native part reaches its root.
    pub is_rooted: bool,
    /// And Python's part its.
    pub is_whole: bool,
    /// None of the thread's calls can be of another interpreter, whose frames Python's part does not have.
    pub has_all_calls: bool,
    /// Code that switches stacks: Python's part may have its root there.
    pub switches: &'s [Range<u64>],
}

impl Parts<'_> {
    /// Appends all frames, leaf first.
    pub fn merge(&self, evaluation: &Loop, frames: &mut Vec<Frame>) -> Fit {
        let calls = evaluation.calls(self.native);
        let (count, runs) = (calls.iter().filter(|is_call| **is_call).count(), self.runs());
        let is_complete = self.is_rooted && self.is_whole;
        let is_beginning = self.native.first().is_some_and(|leaf| evaluation.begins(*leaf));
        let is_leaf_idle = is_complete && count == runs + 1 && (is_beginning || self.has_all_calls);
        let mut idle = usize::from(is_leaf_idle);
        let mut surplus = if is_complete { runs.saturating_sub(count) } else { 0 };
        let mut left = self.python;
        for (&address, is_call) in self.native.iter().zip(evaluation.inner(&calls)) {
            if is_call && idle > 0 {
                idle -= 1; // has not begun to run its frame, or has ended it
            } else if is_call {
                for _ in 0..=std::mem::take(&mut surplus) {
                    left = push_run(left, frames);
                }
            }
            frames.push(Frame::Native(address));
        }
        while !left.is_empty() {
            left = push_run(left, frames);
        }
        let fits = match (self.is_rooted, self.is_whole) {
            (true, true) => count == runs || is_leaf_idle || self.ends_at_switch(&calls, runs),
            (true, false) => count >= runs,
            (false, true) => count <= runs,
            (false, false) => true,
        };
        let is_torn = self.is_whole && self.is_open(); // a frame that is just being taken out of the list
        if fits && !is_torn { Fit::Exact } else { Fit::Guessed }
    }

    /// Whether the calls that the frames come from are all that there are up to where the stack was switched to.
    fn ends_at_switch(&self, calls: &[bool], runs: usize) -> bool {
        let mut passed = 0;
        let is_last = |(address, is_call): (&u64, &bool)| {
            passed += usize::from(*is_call);
            let is_switch = |part: &Range<u64>| part.contains(&address.wrapping_sub(1));
            passed == runs && self.switches.iter().any(is_switch)
        };
        self.native.iter().zip(calls).any(is_last)
    }

    /// Calls of the evaluation loop that the frames come from.
    fn runs(&self) -> usize {
        self.python.iter().filter(|frame| frame.is_entry).count() + usize::from(self.is_open())
    }

    /// Whether the outermost frame is not where its call of the evaluation loop began.
    fn is_open(&self) -> bool {
        self.python.last().is_some_and(|frame| !frame.is_entry)
    }
}

/// Appends the frames of one call; returns those of the others.
fn push_run<'w>(python: &'w [PythonFrame], frames: &mut Vec<Frame>) -> &'w [PythonFrame] {
    let end = python.iter().position(|frame| frame.is_entry);
    let (run, left) = python.split_at(end.map_or(python.len(), |end| end + 1));
    frames.extend(run.iter().filter_map(|frame| frame.frame));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks the last frame of a call.
    const E: u64 = 1;

    /// Addresses from 100 to 199 are the evaluation loop's. Python's frames are multiples of 16, 0 is none.
    fn merged(native: &[u64], codes: &[u64], is_rooted: bool) -> (Vec<u64>, Fit) {
        merged_in(false, native, codes, is_rooted)
    }

    fn merged_in(has_tail_calls: bool, native: &[u64], codes: &[u64], is_rooted: bool) -> (Vec<u64>, Fit) {
        merged_of(has_tail_calls, false, native, codes, is_rooted)
    }

    fn merged_of(
        has_tail_calls: bool,
        has_all_calls: bool,
        native: &[u64],
        codes: &[u64],
        is_rooted: bool,
    ) -> (Vec<u64>, Fit) {
        let frame = |code: u64| (code & !E != 0).then(|| Frame::Python(LocationId::default(), code & !E));
        let python: Vec<PythonFrame> = codes
            .iter()
            .map(|code| PythonFrame {
                frame: frame(*code),
                is_entry: code & E != 0,
            })
            .collect();
        let parts = Parts {
            native,
            python: &python,
            is_rooted,
            is_whole: true,
            has_all_calls,
            switches: &[800..850, 860..870],
        };
        let mut frames = Vec::new();
        let evaluation = Loop {
            ranges: vec![100..200, 1000..1400],
            has_tail_calls,
        };
        let fit = parts.merge(&evaluation, &mut frames);
        (frames.iter().map(Frame::address).collect(), fit)
    }

    #[test]
    fn each_call_of_the_loop_has_its_frames_below_it() {
        let (frames, fit) = merged(&[5, 110, 6, 120, 7], &[16, 32 | E, 48 | E], true);
        assert_eq!(frames, [5, 16, 32, 110, 6, 48, 120, 7]);
        assert_eq!(fit, Fit::Exact);
    }

    #[test]
    fn with_tail_calls_the_instructions_function_is_part_of_the_call() {
        let merged = |native, codes| merged_in(true, native, codes, true);
        let (frames, fit) = merged(&[5, 900, 110, 6, 901, 120, 7], &[16, 32 | E, 48 | E]);
        assert_eq!(
            (frames, fit),
            (vec![5, 16, 32, 900, 110, 6, 48, 901, 120, 7], Fit::Exact)
        );
        let (frames, fit) = merged(&[900, 110, 7], &[16 | E]);
        assert_eq!((frames, fit), (vec![16, 900, 110, 7], Fit::Exact));
        let (frames, fit) = merged(&[101, 901, 120, 7], &[48 | E]);
        assert_eq!(
            (frames, fit),
            (vec![101, 48, 901, 120, 7], Fit::Exact),
            "the inner call has just begun"
        );
    }

    #[test]
    fn a_call_that_has_just_begun_has_none() {
        let (frames, fit) = merged(&[1001, 6, 120, 7], &[48 | E], true);
        assert_eq!((frames, fit), (vec![1001, 6, 48, 120, 7], Fit::Exact));
        let (frames, _) = merged(&[5, 101, 6, 120, 7], &[E, 48 | E], true);
        assert_eq!(frames, [5, 101, 6, 48, 120, 7], "the interpreter says so itself");
    }

    /// It returns what it has found, and its frame is not the thread's any more.
    #[test]
    fn a_call_that_is_about_to_end_has_none() {
        let merged = |native| merged_of(false, true, native, &[16 | E, 48 | E], true);
        let (frames, fit) = merged(&[1300, 7, 120, 8, 130, 9]);
        assert_eq!((frames, fit), (vec![1300, 7, 16, 120, 8, 48, 130, 9], Fit::Exact));
        let (frames, fit) = merged(&[5, 1300, 7, 120, 8, 130, 9]);
        assert_eq!((frames, fit), (vec![5, 1300, 7, 16, 120, 8, 48, 130, 9], Fit::Exact));
        let (_, fit) = merged(&[5, 110, 1300, 7, 120, 8, 130, 9]);
        assert_eq!(fit, Fit::Guessed, "two calls cannot both end");
    }

    #[test]
    fn frames_that_end_within_a_call_are_not_all_there() {
        assert_eq!(merged(&[5, 110, 7], &[16, 32], true).1, Fit::Guessed);
        assert_eq!(merged(&[5, 110, 7], &[16, 32 | E], true).1, Fit::Exact);
    }

    /// As when one interpreter runs another: the frames are those of the inner one.
    #[test]
    fn frames_of_an_inner_interpreter_stay_in_it() {
        let (frames, fit) = merged(&[5, 6, 110, 7, 120, 8], &[16 | E], true);
        assert_eq!((frames, fit), (vec![5, 6, 16, 110, 7, 120, 8], Fit::Guessed));
        let (_, fit) = merged(&[1300, 7, 120, 8], &[16 | E], true);
        assert_eq!(fit, Fit::Guessed, "in the loop, but not where it is entered");
    }

    /// The calls beyond are another stack's, whose frames are not the thread's now.
    #[test]
    fn frames_end_where_the_stack_was_switched_to() {
        let (frames, fit) = merged(&[5, 110, 6, 120, 810, 130, 8], &[16 | E, 32 | E], true);
        assert_eq!((frames, fit), (vec![5, 16, 110, 6, 32, 120, 810, 130, 8], Fit::Exact));
        let (_, fit) = merged(&[5, 810, 110, 6, 120, 130, 8], &[16 | E, 32 | E], true);
        assert_eq!(fit, Fit::Guessed, "a switch within the stack does not end it");
    }

    #[test]
    fn a_return_address_right_behind_the_loop_belongs_to_it() {
        assert_eq!(merged(&[5, 200, 7], &[16 | E], true).0, [5, 16, 200, 7]);
        assert_eq!(merged(&[200, 120, 7], &[16 | E], true).0, [200, 16, 120, 7]);
    }

    #[test]
    fn where_the_native_part_breaks_off_pythons_goes_on() {
        let (frames, fit) = merged(&[5, 110], &[16 | E, 32 | E, 48 | E], false);
        assert_eq!((frames, fit), (vec![5, 16, 110, 32, 48], Fit::Exact));
    }

    #[test]
    fn frames_without_a_call_of_their_own_stay_in_order() {
        let (frames, fit) = merged(&[5, 110, 7], &[16 | E, 32 | E], true);
        assert_eq!((frames, fit), (vec![5, 16, 32, 110, 7], Fit::Guessed));
        let (frames, _) = merged(&[5, 6], &[16, 32], true);
        assert_eq!(frames, [5, 6, 16, 32]);
    }
}
