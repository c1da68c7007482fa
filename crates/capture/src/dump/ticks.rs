//! Samples of threads that are on a CPU, by the program of a recording: loaded only where there are such threads, since
//! that takes as long as half of a dump.

use libbpf_rs::MapHandle;

use crate::bpf_objects::possible_cpus;
use crate::cpus;
use crate::drain::{Layout, Rings};
use crate::error::Result;
use crate::options::{EventSpec, KernelWalk, Options, Sampling};
use crate::perf_event::Trigger;
use crate::programs::Programs;

/// Threads on a CPU are sampled after so much time on it, at the latest.
const TICK_NS: u64 = 1_000_000;
/// Of each CPU: 32 of the longest samples, of which a round brings two or three.
const RING_BYTES: usize = 128 << 10;

/// Ends when it is dropped.
pub struct Ticks {
    rings: Rings,
    _programs: Programs,
}

impl Ticks {
    /// From now on. `tables`: the maps of those to walk by.
    pub fn begin(options: &Options, tables: Vec<(&'static str, MapHandle)>) -> Result<Self> {
        let options = Options {
            events: vec![tick(&options.events[0])],
            kernel_walk: KernelWalk::Kernel, // to find its tables takes longer than the few walks
            ..options.clone()
        };
        let online = cpus::online();
        let trigger = Trigger::settle(&options.events[0], &options, online[0]);
        let layout = Layout::new(RING_BYTES, possible_cpus()?, &online, 1);
        let mut programs = Programs::load_with(&options, vec![trigger], &layout, tables)?;
        let rings = Rings::new(programs.rings(), layout, &online)?;
        programs.attach_missing(&online)?;
        Ok(Self {
            rings,
            _programs: programs,
        })
    }

    /// What there is by now.
    pub fn look(&mut self) -> &mut Rings {
        self.rings.look();
        &mut self.rings
    }
}

/// The clock that a dump's samples are not of, with a period.
fn tick(dump: &EventSpec) -> EventSpec {
    EventSpec {
        name: "cpu-clock".into(),
        unit: "nanoseconds".into(),
        sampling: Sampling::Period(TICK_NS),
        ..dump.clone()
    }
}
