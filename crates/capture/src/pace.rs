//! How fast the turns of a recording may follow each other.

use std::time::{Duration, Instant};

/// Turns of one kind: so many in short order, and one each interval on average.
pub struct Pace {
    interval: Duration,
    burst: f64,
    /// Earned and not taken yet; below 0 where one was taken before it was earned.
    turns: f64,
    counted: Instant,
}

impl Pace {
    /// All of a burst may be taken.
    pub fn new(interval: Duration, burst: u32) -> Self {
        Self {
            interval,
            burst: burst.into(),
            turns: burst.into(),
            counted: Instant::now(),
        }
    }

    /// How long the next turn has to wait.
    pub fn pause(&mut self) -> Duration {
        let earned = self.counted.elapsed().div_duration_f64(self.interval);
        self.counted = Instant::now();
        self.turns = (self.turns + earned).min(self.burst);
        self.interval.mul_f64((1.0 - self.turns).max(0.0))
    }

    /// Counts a turn; there is never more than one owed.
    pub fn take(&mut self) {
        self.turns = (self.turns - 1.0).max(-1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_turns_are_free_and_then_each_must_be_earned() {
        let interval = Duration::from_secs(3600);
        let mut pace = Pace::new(interval, 8);
        for _ in 0..8 {
            assert_eq!(pace.pause(), Duration::ZERO);
            pace.take();
        }
        let pause = pace.pause();
        assert!(pause > interval.mul_f64(0.9) && pause <= interval);
    }
}
