//! How long page faults take (`bpf/fault_times.bpf.c`), where the kernel lets programs look at its functions (fentry).

use libbpf_rs::{Link, MapHandle, Object};

use crate::abi;
use crate::bpf_objects;
use crate::bpf_objects::{bpf_error, map_handle, open_map, program};
use crate::error::Result;
use crate::kernel_features;
use crate::options::Options;
use crate::perf_event::{Faults, Trigger};

static FAULT_TIMES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fault_times.bpf.o"));

/// What notes where faults begin, and of which files they are.
pub struct FaultTimes {
    object: Object,
    _links: Vec<Link>,
}

/// Whether a recording has use for it: a minor fault is over before it is worth the time that this takes.
pub fn are_wanted(options: &Options, triggers: &[Trigger]) -> bool {
    let is_major = |trigger: &Trigger| trigger.faults() == Some(Faults::Major);
    !options.aggregate && triggers.iter().any(is_major) && kernel_features::kernel_keeps_of_threads()
}

impl FaultTimes {
    /// From now on. An error where the kernel refuses.
    pub fn begin(config: &abi::Config) -> Result<Self> {
        let refused = |error| bpf_error("page faults cannot be timed", &error);
        let mut object = bpf_objects::open(FAULT_TIMES, config)?;
        for name in ["counters", "settings", "cgroups"] {
            open_map(&mut object, name).set_autocreate(false).map_err(refused)?;
        }
        let mut object = object.load().map_err(refused)?;
        let functions = ["begin_fault", "note_file"];
        let links = functions.map(|name| program(&mut object, name).attach().map_err(refused));
        Ok(Self {
            _links: links.into_iter().collect::<Result<_>>()?,
            object,
        })
    }

    /// The maps that it shares with the programs that take samples.
    pub fn maps(&mut self) -> [(&'static str, MapHandle); 2] {
        ["targets", "fault_times"].map(|name| (name, map_handle(&mut self.object, name)))
    }
}
