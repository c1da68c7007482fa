//! The BPF programs: what they have counted, and what they may be told while they run.

mod attachments;
mod loading;

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapMut, Object};

use crate::abi;
use crate::bpf_objects::{bpf_error, bytes_of, find_map, map_handle};
use crate::cpus;
use crate::error::Result;
use crate::fault_times::FaultTimes;
use crate::fault_totals::FaultTotals;
use crate::new_programs::NewPrograms;
use crate::perf_event::{Idle, Trigger};
use crate::unwind;
use attachments::Attachment;

pub use attachments::{UprobeSite, open_error};

/// The loaded programs, and one attachment for each event and CPU.
pub struct Programs {
    attachments: Vec<Attachment>,
    /// Of what is no perf event.
    hooks: Vec<Link>,
    _followers: Vec<Link>,
    /// Of each process; None where nobody asks.
    pub fault_totals: Option<FaultTotals>,
    /// None where nobody asks, or the kernel refuses.
    pub fault_times: Option<FaultTimes>,
    object: Object,
    settings: abi::Settings,
    triggers: Vec<Trigger>,
    /// Of each event: what its attachments had counted that are gone, with their CPUs.
    counted: Vec<u64>,
    combine_slots: usize,
}

impl Programs {
    /// Lets a process into the filter: `abi::TARGET_SAMPLED` now, `abi::TARGET_HELD` from its exec on.
    pub fn add_target(&mut self, pid: u32, state: u32) -> Result<()> {
        let result = self
            .map("targets")
            .update(&pid.to_ne_bytes(), &[state as u8], MapFlags::ANY);
        result.map_err(|error| bpf_error("the filter takes no more processes", &error))
    }

    /// Lets a process into the filter while recording, and counts its faults from now on.
    pub fn admit(&mut self, pid: u32) -> Result<()> {
        self.fault_totals.as_ref().map_or(Ok(()), FaultTotals::sum_up)?;
        self.add_target(pid, abi::TARGET_SAMPLED)?;
        self.fault_totals.as_ref().map_or(Ok(()), FaultTotals::begin_new)
    }

    /// The processes in the filter.
    pub fn targets(&mut self) -> Vec<u32> {
        let targets = self.map("targets");
        let pid = |key: Vec<u8>| Some(u32::from_ne_bytes(key.try_into().ok()?));
        targets.keys().filter_map(pid).collect()
    }

    /// What user space may change while the programs run.
    pub fn change_settings(&mut self, change: impl FnOnce(&mut abi::Settings)) -> Result<()> {
        change(&mut self.settings);
        let settings = self.settings;
        let result = self
            .map("settings")
            .update(&0u32.to_ne_bytes(), bytes_of(&settings), MapFlags::ANY);
        result.map_err(|error| bpf_error("the sampling program cannot be changed", &error))
    }

    /// Samples that the events' own counts stand for, beyond those seen: an estimate of what the kernel dropped before
    /// the program ran. Events without a fixed period are left out; of the others' share that the filter lets through.
    pub fn unseen_samples(&mut self, idle: Idle) -> u64 {
        let counters = self.counters_of(abi::HOOK_EVENT..abi::HOOK_EVENT + 1);
        let counts = self.event_counts();
        let error_ns = cpus::IDLE_TICK_NS * self.attachments.len() as u64;
        let idle = Idle {
            ns: idle.ns + error_ns,
            ..idle
        };
        let each = self.triggers.iter().zip(counts).zip(&counters.event_entries);
        let unseen = |((trigger, count), seen): ((&Trigger, u64), &u64)| {
            trigger
                .expected_entries(count, idle)
                .map_or(0, |expected| expected.saturating_sub(*seen))
        };
        let entries = counters.entries.saturating_sub(counters.idle);
        let passed = entries.saturating_sub(counters.filtered);
        let unseen: u64 = each.map(unseen).sum();
        (unseen as f64 * passed as f64 / entries.max(1) as f64) as u64
    }

    /// What each event has counted, on all CPUs.
    pub fn event_counts(&self) -> Vec<u64> {
        let mut counts = self.counted.clone();
        for attachment in &self.attachments {
            counts[attachment.event] += attachment.count();
        }
        counts
    }

    /// What each event has counted, once the sums of page faults are true.
    pub fn sum_up(&self) -> Result<Vec<u64>> {
        self.fault_totals.as_ref().map_or(Ok(()), FaultTotals::sum_up)?;
        Ok(self.event_counts())
    }

    /// The counters, summed over the CPUs and hooks.
    pub fn counters(&mut self) -> abi::Counters {
        self.counters_of(0..abi::HOOKS as u32)
    }

    fn counters_of(&mut self, hooks: Range<u32>) -> abi::Counters {
        let mut sum = [0u64; size_of::<abi::Counters>() / 8];
        for hook in hooks {
            let each = self.map("counters").lookup_percpu(&hook.to_ne_bytes(), MapFlags::ANY);
            for values in each.ok().flatten().unwrap_or_default() {
                for (total, bytes) in sum.iter_mut().zip(values.chunks_exact(8)) {
                    *total += u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
                }
            }
        }
        // SAFETY: Counters is nothing but u64 in a row, and sum is as long as it is.
        unsafe { std::mem::transmute(sum) }
    }

    /// The rings of samples.
    pub fn rings(&mut self) -> MapHandle {
        map_handle(&mut self.object, "rings")
    }

    /// Programs that begin.
    pub fn new_programs(&mut self) -> Result<NewPrograms> {
        let [ring, urgent] = ["new_programs", "urgent_programs"].map(|name| map_handle(&mut self.object, name));
        NewPrograms::new(ring, urgent)
    }

    /// What the walker reads to unwind by tables.
    pub fn unwind_maps(&mut self) -> unwind::Maps {
        unwind::Maps::of(|name| map_handle(&mut self.object, name))
    }

    /// What other programs need to walk as these do, and what more they ask for, by name.
    pub fn shared_maps<'n>(&mut self, more: &[&'n str]) -> Vec<(&'n str, MapHandle)> {
        let names = unwind::MAPS.into_iter().chain(more.iter().copied());
        names.map(|name| (name, map_handle(&mut self.object, name))).collect()
    }

    /// The outer map of the combining cache.
    pub fn combining(&mut self) -> MapHandle {
        map_handle(&mut self.object, "combining")
    }

    /// Slots of the combining cache a CPU; 0 when there is none.
    pub fn combine_slots(&self) -> usize {
        self.combine_slots
    }

    /// Runs of the programs that the kernel skipped because one was running on the CPU already.
    pub fn recursion_misses(&mut self) -> u64 {
        let mut misses = 0;
        for program in self.object.progs_mut() {
            // SAFETY: the kernel fills as much of the zeroed struct as it knows.
            unsafe {
                let mut info: libbpf_sys::bpf_prog_info = std::mem::zeroed();
                let mut bytes = size_of_val(&info) as u32;
                let fd = program.as_fd().as_raw_fd();
                if fd >= 0 && libbpf_sys::bpf_prog_get_info_by_fd(fd, &mut info, &mut bytes) == 0 {
                    misses += info.recursion_misses;
                }
            }
        }
        misses
    }

    fn map(&mut self, name: &str) -> MapMut<'_> {
        find_map(&mut self.object, name)
    }
}

/// Where nothing was counted.
pub fn no_counters() -> abi::Counters {
    // SAFETY: Counters is nothing but u64 in a row.
    unsafe { std::mem::zeroed() }
}
