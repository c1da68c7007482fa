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

/// The samples; one that was cut off ends them.
pub fn parse(mut words: &[u64]) -> impl Iterator<Item = RawSample<'_>> {
    std::iter::from_fn(move || {
        let sample = RawSample::parse(words)?;
        words = &words[sample.record_bytes() as usize / 8..];
        Some(sample)
    })
}
