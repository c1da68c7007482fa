//! Keeps samples of one kind to a number that costs little: the more there would be, the longer the period becomes.

use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(100);

/// A period, in whatever the event counts.
pub struct Throttle {
    asked: u64,
    longest: u64,
    period: u64,
    most_per_s: u64,
    taken: u64,
    since: Instant,
}

impl Throttle {
    /// From the period that was asked for up to the longest one, as `most_per_s` samples demand.
    pub fn new(asked: u64, longest: u64, most_per_s: u64) -> Self {
        Self {
            asked,
            longest: longest.max(asked),
            period: asked,
            most_per_s,
            taken: 0,
            since: Instant::now(),
        }
    }

    /// So many samples came since the last look. Returns the period when it is another one now.
    pub fn adapt(&mut self, samples: u64) -> Option<u64> {
        self.taken += samples;
        let passed = self.since.elapsed();
        if passed < INTERVAL {
            return None;
        }
        let period = self.next_period(self.taken * 1_000_000 / passed.as_micros().max(1) as u64);
        self.taken = 0;
        self.since = Instant::now();
        let is_new = period != self.period;
        self.period = period;
        is_new.then_some(period)
    }

    fn next_period(&self, samples_per_s: u64) -> u64 {
        let next = if samples_per_s > self.most_per_s {
            self.period.saturating_mul(samples_per_s / self.most_per_s + 1)
        } else if samples_per_s < self.most_per_s / 4 {
            self.period / 2
        } else {
            self.period
        };
        next.clamp(self.asked, self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::Throttle;

    fn throttle(period: u64) -> Throttle {
        Throttle {
            period,
            ..Throttle::new(1_000_000, 1_000_000_000, 2_000)
        }
    }

    #[test]
    fn many_samples_make_the_period_longer_and_few_give_back_what_was_asked_for() {
        assert_eq!(throttle(1_000_000).next_period(20_000), 11_000_000);
        assert_eq!(throttle(11_000_000).next_period(1_900), 11_000_000);
        assert_eq!(throttle(11_000_000).next_period(100), 5_500_000);
        assert_eq!(throttle(1_000_000).next_period(0), 1_000_000);
        assert_eq!(throttle(900_000_000).next_period(1_000_000), 1_000_000_000);
    }
}
