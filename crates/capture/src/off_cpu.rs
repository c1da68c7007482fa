//! Keeps the samples of time off the CPU to a number that costs little: the more there would be, the longer must an
//! absence be to make one by itself.

use crate::error::Result;
use crate::options::{Options, Sampling};
use crate::programs::Programs;
use crate::throttle::Throttle;

/// A sample takes some 5 µs: half a percent of a CPU.
const MOST_SAMPLES_PER_S_AND_CPU: u64 = 1_000;
const LONGEST_PERIOD_NS: u64 = 1_000_000_000;

/// How long an absence must be now.
pub struct OffCpuPace(Throttle);

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
        programs.change_settings(|settings| settings.off_cpu_period_ns = asked_ns)?;
        Ok(Some(Self(Throttle::new(asked_ns, LONGEST_PERIOD_NS, most_per_s))))
    }

    /// So many samples came since the last look.
    pub fn adapt(&mut self, samples: u64, programs: &mut Programs) -> Result<()> {
        let period_ns = self.0.adapt(samples);
        period_ns.map_or(Ok(()), |period_ns| {
            programs.change_settings(|settings| settings.off_cpu_period_ns = period_ns)
        })
    }
}
