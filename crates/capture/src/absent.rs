//! Threads that are still off the CPU when a recording ends (`bpf/absent.bpf.c`).

use crate::configuration;
use crate::drain::Layout;
use crate::error::Result;
use crate::iterator::{Scope, ThreadIterator};
use crate::options::Options;
use crate::perf_event::Trigger;
use crate::programs::Programs;
use crate::raw_sample::RawSample;

static ABSENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/absent.bpf.o"));

/// What finds them.
pub struct Absent(ThreadIterator);

impl Absent {
    /// Loads it, since at the end people wait. It shares the filter, and what is known of threads, with the programs.
    /// None where it cannot tell who is recorded, or has no tables to walk by.
    pub fn load(options: &Options, triggers: &[Trigger], programs: &mut Programs) -> Result<Option<Self>> {
        if options.cgroup.is_some() || !options.unwind {
            return Ok(None);
        }
        let config = configuration::configure(options, triggers, &Layout::default(), 0);
        let (kept, unused): (&[&str], &[&str]) = match options.off_cpu_at_departure {
            true => (
                &["presences", "settings", "targets", "last_departures"],
                &["counters", "cgroups", "presence_places"],
            ),
            false => (
                &["presences", "presence_places", "settings", "targets"],
                &["counters", "cgroups", "last_departures"],
            ),
        };
        let shared = programs.shared_maps(kept);
        let iterator = ThreadIterator::load(ABSENT, &config, &shared, unused)?;
        Ok(Some(Self(iterator)))
    }

    /// The words of their samples, for [`parse`]; None where somebody's memory does not answer.
    pub fn look(&mut self) -> Result<Option<Vec<u64>>> {
        self.0.read(Scope::All)
    }
}

/// The part of a thread's absence that was over at a time; None where there is none.
pub fn until(mut sample: RawSample<'_>, end_boottime_ns: u64) -> Option<RawSample<'_>> {
    let beyond_ns = sample.header.boottime_ns.saturating_sub(end_boottime_ns);
    sample.header.boottime_ns -= beyond_ns;
    sample.last_ns = sample.last_ns.min(end_boottime_ns);
    sample.header.period = sample.header.period.saturating_sub(beyond_ns);
    if let Some(away) = &mut sample.off_cpu {
        away.duration_ns = away.duration_ns.saturating_sub(beyond_ns);
        away.queued_ns = away.queued_ns.min(away.duration_ns);
    }
    (sample.header.period > 0).then_some(sample)
}

/// The samples; one that was cut off ends them.
pub fn parse(mut words: &[u64]) -> impl Iterator<Item = RawSample<'_>> {
    std::iter::from_fn(move || {
        let sample = RawSample::parse(words)?;
        words = &words[sample.record_bytes() as usize / 8..];
        Some(sample)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi;

    /// Looked at 100 ns after the end.
    #[test]
    fn what_a_thread_sleeps_after_the_end_is_not_of_the_recording() {
        let asleep = |period: u64, duration: u64| {
            let words = words_of_absence(1_100, period, duration);
            until(RawSample::parse(&words).unwrap(), 1_000).map(|sample| {
                let away = sample.off_cpu.unwrap();
                (
                    sample.header.boottime_ns,
                    sample.header.period,
                    away.duration_ns,
                    away.queued_ns,
                )
            })
        };
        assert_eq!(asleep(700, 600), Some((1_000, 600, 500, 0)));
        assert_eq!(asleep(90, 90), None, "it left when all was over");
        assert_eq!(asleep(150, 40), Some((1_000, 50, 0, 0)), "of shorter ones before it");
    }

    fn words_of_absence(boottime_ns: u64, period: u64, duration_ns: u64) -> Vec<u64> {
        const HEADER_WORDS: usize = size_of::<abi::SampleHeader>() / 8;
        let mut words = vec![0; HEADER_WORDS + size_of::<abi::OffCpu>() / 8];
        words[std::mem::offset_of!(abi::SampleHeader, boottime_ns) / 8] = boottime_ns;
        words[std::mem::offset_of!(abi::SampleHeader, period) / 8] = period;
        words[HEADER_WORDS - 1] = (abi::RECORD_OFF_CPU as u64) << 32;
        words[HEADER_WORDS + std::mem::offset_of!(abi::OffCpu, duration_ns) / 8] = duration_ns;
        words
    }
}
