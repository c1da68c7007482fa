//! How many page faults each process has had, exactly, sampled or not: `bpf/fault_counts.h` adds up what the kernel
//! counts of threads.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::ops::{AddAssign, Sub};

use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, Object};

use stackhound_core::rows::EventTotalRow;

use crate::abi;
use crate::bpf_objects::{bpf_error, find_map, program};
use crate::error::{Error, Result};
use crate::kernel_features::kernel_keeps_of_threads;
use crate::options::Options;
use crate::perf_event::{Faults, Trigger};
use crate::procfs;

/// A process for good: its id, and when it started.
pub type ProcessStart = (u32, u64);

/// The sums of processes, and what brings them up to date.
pub struct FaultTotals {
    begin: Link,
    sum: Link,
    processes: MapHandle,
    /// Taken out of the map at the last look, to be known by then whether they were sampled.
    ended: Vec<(ProcessStart, FaultCounts)>,
    totals: Totals,
}

/// Page faults, by what they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Those for which nothing had to be read.
    pub minor: u64,
    /// Those that waited for a disk.
    pub major: u64,
}

/// Of a whole recording.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Of all processes together.
    pub all: FaultCounts,
    /// Of those that were sampled.
    pub by_process: HashMap<ProcessStart, FaultCounts>,
}

/// Whether a recording has use for them. A name or a cgroup chooses threads, and their sums are not kept apart.
pub fn are_wanted(options: &Options, triggers: &[Trigger]) -> bool {
    let is_partial = options.comm.is_some() || options.cgroup.is_some();
    !is_partial && triggers.iter().any(|trigger| trigger.faults().is_some()) && kernel_keeps_of_threads()
}

/// A sentence for the user where page faults are sampled and cannot be counted.
pub fn lack(triggers: &[Trigger]) -> Option<String> {
    let has_faults = triggers.iter().any(|trigger| trigger.faults().is_some());
    (has_faults && !kernel_keeps_of_threads())
        .then(|| "page faults are sampled, not counted: exact numbers need Linux 5.13".into())
}

impl FaultTotals {
    /// From now on, for every process in the filter.
    pub fn begin(object: &mut Object) -> Result<Self> {
        let totals = Self {
            begin: attach(object, "begin_faults")?,
            sum: attach(object, "sum_faults")?,
            processes: MapHandle::try_from(&find_map(object, "process_faults")).expect("an open map can be duplicated"),
            ended: Vec::new(),
            totals: Totals::default(),
        };
        totals.begin_new()?;
        Ok(totals)
    }

    /// Counts every fault until now. To be called before a process is let into the filter, too.
    pub fn sum_up(&self) -> Result<()> {
        run(&self.sum)
    }

    /// Counts also the processes that were let into the filter since: from now on.
    pub fn begin_new(&self) -> Result<()> {
        run(&self.begin)
    }

    /// Gives back the room of processes that have ended. `is_sampled` is asked of those that had at the last call: by now
    /// their last samples are stored.
    pub fn keep_up(&mut self, is_sampled: impl Fn(ProcessStart) -> bool) -> Result<()> {
        self.settle(is_sampled);
        for key in self.keys() {
            let (pid, start_boottime_ns) = parse_key(&key);
            if !procfs::exists(pid) {
                self.ended.push(((pid, start_boottime_ns), self.read(&key)?));
                let deleted = self.processes.delete(&key);
                deleted.map_err(|error| bpf_error("page faults cannot be forgotten", &error))?;
            }
        }
        Ok(())
    }

    /// Everything until the last [`FaultTotals::sum_up`].
    pub fn finish(mut self, is_sampled: impl Fn(ProcessStart) -> bool) -> Result<Totals> {
        for key in self.keys() {
            self.ended.push((parse_key(&key), self.read(&key)?));
        }
        self.settle(is_sampled);
        Ok(self.totals)
    }

    fn settle(&mut self, is_sampled: impl Fn(ProcessStart) -> bool) {
        for (process, counts) in self.ended.drain(..) {
            self.totals.all += counts;
            if is_sampled(process) {
                *self.totals.by_process.entry(process).or_default() += counts;
            }
        }
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.processes.keys().collect()
    }

    fn read(&self, key: &[u8]) -> Result<FaultCounts> {
        let counts = self.processes.lookup(key, MapFlags::ANY);
        let counts = counts.map_err(|error| bpf_error("page faults cannot be read", &error))?;
        Ok(counts.map_or(FaultCounts::default(), |bytes| parse_counts(&bytes)))
    }
}

impl Totals {
    /// Those that an event counts, with all that it counted first.
    pub fn rows(&self, event: u16, faults: Faults, whole: u64) -> Vec<EventTotalRow> {
        let row = |(pid, start_boottime_ns), count| EventTotalRow {
            event,
            pid,
            start_boottime_ns,
            count,
        };
        let mut rows = vec![row((0, 0), whole)];
        let each = self
            .by_process
            .iter()
            .map(|(process, counts)| row(*process, counts.of(faults)));
        rows.extend(each.filter(|row| row.count > 0));
        rows.sort_unstable_by_key(|row| (row.pid, row.start_boottime_ns));
        rows
    }
}

impl FaultCounts {
    /// Those that an event counts.
    pub fn of(&self, faults: Faults) -> u64 {
        match faults {
            Faults::Minor => self.minor,
            Faults::Major => self.major,
        }
    }
}

impl AddAssign for FaultCounts {
    fn add_assign(&mut self, other: Self) {
        self.minor += other.minor;
        self.major += other.major;
    }
}

impl Sub for FaultCounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            minor: self.minor.saturating_sub(other.minor),
            major: self.major.saturating_sub(other.major),
        }
    }
}

fn parse_key(bytes: &[u8]) -> ProcessStart {
    let words = words_of(bytes);
    (words[1] as u32, words[0]) // the upper half of the second word is reserved; both architectures are little-endian
}

fn parse_counts(bytes: &[u8]) -> FaultCounts {
    let words = words_of(bytes);
    FaultCounts {
        minor: words[0],
        major: words[1],
    }
}

/// `struct process_key` and `struct fault_counts` are two words each.
fn words_of(bytes: &[u8]) -> [u64; 2] {
    const { assert!(size_of::<abi::ProcessKey>() == 16 && size_of::<abi::FaultCounts>() == 16) };
    [0, 8].map(|at| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes")))
}

fn attach(object: &mut Object, name: &str) -> Result<Link> {
    let link = program(object, name).attach();
    link.map_err(|error| bpf_error("threads cannot be listed", &error))
}

/// Lets a program see every thread.
fn run(iterator: &Link) -> Result<()> {
    let mut iterator = Iter::new(iterator).map_err(|error| bpf_error("threads cannot be listed", &error))?;
    loop {
        match iterator.read(&mut [0; 8]) {
            Ok(_) => return Ok(()),                                   // nothing: the programs write nothing
            Err(error) if error.kind() == ErrorKind::WouldBlock => {} // after each million of threads
            Err(error) => return Err(Error::system("threads cannot be listed", &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_its_counts_are_read_as_the_kernel_half_writes_them() {
        let key = abi::ProcessKey {
            start_boottime_ns: 1 << 40,
            tgid: 4711,
            reserved: 0,
        };
        // SAFETY: 16 bytes without padding.
        let bytes: [u8; 16] = unsafe { std::mem::transmute(key) };
        assert_eq!(parse_key(&bytes), (4711, 1 << 40));
        let counts = [7u64.to_ne_bytes(), 3u64.to_ne_bytes()].concat();
        let counts = parse_counts(&counts);
        assert_eq!((counts.of(Faults::Minor), counts.of(Faults::Major)), (7, 3));
    }
}
