//! What a recording waits for between two turns.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::Recording;
use crate::allocators::Allocators;
use crate::options::Options;
use crate::pace::Pace;
use crate::setup::SLOW_HZ;
use crate::sideband::{Change, ProcessEvent};
use crate::unwind::Unwinder;

/// From the first sign of a change to the turn that looks at it: a new program maps its libraries within it.
const GATHERING: Duration = Duration::from_millis(5);
/// Processes often end by the dozen: from the end of one to the next look for news.
const ENDS_INTERVAL: Duration = Duration::from_millis(50);
/// Between two drains when no process changes. The rings hold a second of ordinary stacks, half a second of the longest
/// ones.
const DRAIN_INTERVAL: Duration = Duration::from_millis(400);
/// The same for up to [`SLOW_HZ`], where the rings hold a second of the longest stacks, too. Each turn finds its memory
/// cold: half as many take a sixth less CPU time.
const SLOW_DRAIN_INTERVAL: Duration = Duration::from_millis(800);
/// The same while samples show Python code that was not seen before: it must be read before its process ends.
const NEWS_INTERVAL: Duration = Duration::from_millis(20);
/// The same for more than 1,000 Hz, where no ring is made large enough, and where it must be found out what memory was
/// touched before the process ends.
const FAST_DRAIN_INTERVAL: Duration = Duration::from_millis(100);
/// Between two turns that somebody calls for this much passes on average, but for a few.
const CALLS: (Duration, u32) = (Duration::from_millis(80), 8);
/// The same for turns because of what processes of the whole system did: a new program is looked at when it begins, a
/// storm of them now and then. The walker knows most of them by their files meanwhile.
const NEWS: (Duration, u32) = (SLOW_DRAIN_INTERVAL, 2);

/// In a storm of programs what they do is taken out of its rings at least this often.
const EMPTYING: Duration = Duration::from_millis(400);

/// What asks for a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// The walker missed a table, a program of Python begins, a process that is recorded has ended, or there is a request.
    Call,
    /// A process did something.
    News,
    /// The time is over.
    Time,
}

/// What processes did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum News {
    Nothing,
    /// Some of them ended.
    Ends,
    /// They began, or mapped code.
    Others,
}

/// How often it may be interrupted.
pub(super) struct Waiting {
    calls: Pace,
    news: Pace,
}

impl Waiting {
    /// Programs that somebody chose are looked at as soon as calls are: they are few, and have no tables yet.
    pub(super) fn new(options: &Options) -> Self {
        let (interval, burst) = if options.walks_all() { NEWS } else { CALLS };
        Self {
            calls: Pace::new(CALLS.0, CALLS.1),
            news: Pace::new(interval, burst),
        }
    }
}

impl Recording {
    /// Until something is due, or there are signs of a new program.
    pub(super) fn wait(&mut self) {
        if !self.unscanned.is_empty() {
            return;
        }
        let now = Instant::now();
        let deadline = now + self.interval(now);
        match self.wait_for_sign(deadline) {
            Sign::Call if !self.targets.have_ended() => {
                let pause = self.waiting.calls.pause().max(GATHERING).min(left(deadline));
                self.waker.wait(pause);
                self.waiting.calls.take();
            }
            Sign::News => self.waiting.news.take(),
            Sign::Call | Sign::Time => {}
        }
        self.waker.clear();
    }

    /// How long samples may wait.
    fn interval(&self, now: Instant) -> Duration {
        let interval = match self.options.drain_interval {
            _ if self.intake.pythons.has_news() => NEWS_INTERVAL,
            Some(interval) => interval,
            None if self.options.fastest_hz() > 1_000 || self.intake.looks_at_memory() => FAST_DRAIN_INTERVAL,
            None if self.intake.pythons.is_young() => FAST_DRAIN_INTERVAL,
            None if self.options.fastest_hz() <= SLOW_HZ => SLOW_DRAIN_INTERVAL,
            None => DRAIN_INTERVAL,
        };
        let until_python = (self.intake.pythons.due()).map(|due| due.saturating_duration_since(now));
        let until_window = self.allocators.as_ref().map(Allocators::patience);
        let until = [until_python, until_window].into_iter().flatten();
        until.fold(interval, Duration::min)
    }

    /// News that nobody is in a hurry for gather. Of a process's end nobody has to know at once.
    fn wait_for_sign(&mut self, deadline: Instant) -> Sign {
        let unearned = self.waiting.news.pause();
        let mut has_gathered = !unearned.is_zero();
        let mut news = News::Nothing;
        let end = deadline.min(Instant::now() + unearned);
        while !left(end).is_zero() {
            if self.is_called_within(EMPTYING.min(left(end))) {
                return Sign::Call;
            }
            news = news.max(self.take_news());
        }
        while news != News::Others {
            let is_called = self.targets.wait(&self.callers(), self.sideband.fds(), left(deadline));
            news = self.take_news();
            if is_called {
                return Sign::Call;
            }
            match news {
                News::Nothing => return Sign::Time, // or a ring has ended
                News::Others => break,
                News::Ends => has_gathered = true,
            }
            if self.is_called_within(ENDS_INTERVAL.min(left(deadline))) {
                return Sign::Call;
            }
        }
        if !has_gathered && self.is_called_within(GATHERING) {
            return Sign::Call;
        }
        Sign::News
    }

    fn take_news(&mut self) -> News {
        let known = self.pending.len();
        self.sideband.consume(&mut self.pending);
        let is_end = |event: &ProcessEvent| matches!(event.change, Change::Exit { .. });
        match &self.pending[known..] {
            [] => News::Nothing,
            news if news.iter().all(is_end) => News::Ends,
            _ => News::Others,
        }
    }

    fn is_called_within(&mut self, patience: Duration) -> bool {
        self.targets.wait(&self.callers(), std::iter::empty(), patience)
    }

    /// Descriptors of those who may call.
    fn callers(&self) -> [RawFd; 3] {
        let unwinder = self.unwinder.as_ref().map_or(-1, Unwinder::fd); // poll(2) passes over what is below 0
        [self.waker.fd(), unwinder, self.new_programs.fd()]
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
