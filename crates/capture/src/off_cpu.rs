//! Keeps the samples of time off the CPU to a number that costs little: the more there would be, the longer must an
//! absence be to make one by itself.

use std::time::{Duration, Instant};

use crate::abi;
use crate::error::Result;
use crate::options::{Options, Sampling};
use crate::programs::Programs;

/// A sample takes some 5 µs: half a percent of a CPU.
const MOST_SAMPLES_PER_S_AND_CPU: u64 = 1_000;
const INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_PERIOD_NS: u64 = 1_000_000_000;

/// How long an absence must be now.
pub struct OffCpuPace {
    asked_ns: u64,
    period_ns: u64,
    most_per_s: u64,
    taken: u64,
    since: Instant,
}

impl OffCpuPace {
    /// Begins with what was asked for. None when time off the CPU is not recorded.
    pub fn begin(options: &Options, cpus: usize, programs: &mut Programs) -> Result<Option<Self>> {
        let Some(event) = options.off_cpu_event() else {
            return Ok(None);
        };
        let asked_ns = match options.events[event].sampling {
            _ if options.off_cpu_exact => 1,
            Sampling::Period(ns) => ns,
            Sampling::Frequency(hz) => 1_000_000_000 / hz.max(1),
        };
        let most_per_s = if options.off_cpu_exact {
            u64::MAX
        } else {
            MOST_SAMPLES_PER_S_AND_CPU * cpus as u64
        };
        let pace = Self {
            asked_ns,
            period_ns: asked_ns,
            most_per_s,
            taken: 0,
            since: Instant::now(),
        };
        programs.change_settings(&pace.settings())?;
        Ok(Some(pace))
    }

    /// So many samples came since the last look.
    pub fn adapt(&mut self, samples: u64, programs: &mut Programs) -> Result<()> {
        self.taken += samples;
        let passed = self.since.elapsed();
        if passed < INTERVAL {
            return Ok(());
        }
        let period_ns = self.next_period(self.taken * 1_000_000 / passed.as_micros().max(1) as u64);
        self.taken = 0;
        self.since = Instant::now();
        if period_ns == self.period_ns {
            return Ok(());
        }
        self.period_ns = period_ns;
        programs.change_settings(&self.settings())
    }

    fn next_period(&self, samples_per_s: u64) -> u64 {
        let next = if samples_per_s > self.most_per_s {
            self.period_ns.saturating_mul(samples_per_s / self.most_per_s + 1)
        } else if samples_per_s < self.most_per_s / 4 {
            self.period_ns / 2
        } else {
            self.period_ns
        };
        next.clamp(self.asked_ns, LONGEST_PERIOD_NS.max(self.asked_ns))
    }

    fn settings(&self) -> abi::Settings {
        abi::Settings {
            off_cpu_period_ns: self.period_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(period_ns: u64) -> OffCpuPace {
        OffCpuPace {
            asked_ns: 1_000_000,
            period_ns,
            most_per_s: 2_000,
            taken: 0,
            since: Instant::now(),
        }
    }

    #[test]
    fn many_absences_make_the_period_longer_and_few_give_back_what_was_asked_for() {
        assert_eq!(pace(1_000_000).next_period(20_000), 11_000_000);
        assert_eq!(pace(11_000_000).next_period(1_900), 11_000_000);
        assert_eq!(pace(11_000_000).next_period(100), 5_500_000);
        assert_eq!(pace(1_000_000).next_period(0), 1_000_000);
        assert_eq!(pace(900_000_000).next_period(1_000_000), LONGEST_PERIOD_NS);
    }
}
