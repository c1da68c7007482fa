//! What a profile says about itself; `src/stackhound/profile/metadata.py` documents each key.

use std::fs;

use serde_json::{Value, json};

use crate::abi;
use crate::cost;
use crate::cpus;
use crate::fault_totals::FaultCounts;
use crate::options::{Options, Sampling};
use crate::perf_event::{self, Idle};

/// What is noted at the start of a recording.
pub struct Beginning {
    boottime_ns: u64,
    boot_to_unix_ns: i64,
    max_sample_rate: Option<i64>,
    process_cpu_ns: u64,
    idle_ns: u64,
    interrupt_ns: Option<u64>,
    own_faults: FaultCounts,
}

/// What is known at its end.
pub struct Ending<'a> {
    /// Samples of threads that were off the CPU at the end: no program has counted them.
    pub absent: u64,
    /// Samples of requests to block devices that became none: not ended, or part of other requests.
    pub held: u64,
    /// Summed over the CPUs.
    pub counters: &'a abi::Counters,
    /// What fired each event.
    pub triggers: Vec<String>,
    /// When sampling stopped.
    pub end_boottime_ns: u64,
    /// What the CPUs idled from the start until then, all together.
    pub idle_ns: u64,
    /// CPU time of this process from the start until then.
    pub collector_cpu_ns: u64,
    /// Its physical memory then.
    pub resident_bytes: u64,
    /// Memory of the kernel that unwind tables took.
    pub unwind_bytes: usize,
    /// What finding interpreters of Python took.
    pub python: crate::python::Cost,
    /// Sentences for the user.
    pub notes: Vec<String>,
}

impl Beginning {
    /// Now.
    pub fn now() -> Self {
        Self {
            boottime_ns: cost::boottime_ns(),
            boot_to_unix_ns: cost::boot_to_unix_ns(),
            max_sample_rate: perf_event::sysctl("perf_event_max_sample_rate"),
            process_cpu_ns: cost::process_cpu_ns(),
            idle_ns: cpus::idle_ns(),
            interrupt_ns: None,
            own_faults: cost::own_faults(),
        }
    }

    /// Measures what an interrupt takes, once sampling runs.
    pub fn calibrate(&mut self) {
        self.interrupt_ns = cost::interrupt_ns();
    }

    /// Since sampling began.
    pub fn elapsed_ns(&self) -> u64 {
        cost::boottime_ns() - self.boottime_ns
    }

    /// What the CPUs have idled since then. One that wakes up for an interrupt has cold caches: it takes up to twice
    /// what it takes where it was measured.
    pub fn idle(&self) -> Idle {
        Idle {
            ns: cpus::idle_ns().saturating_sub(self.idle_ns),
            interrupt_ns: 2 * self.interrupt_ns.unwrap_or(0),
        }
    }

    /// CPU time of this process since then.
    pub fn collector_cpu_ns(&self) -> u64 {
        cost::process_cpu_ns() - self.process_cpu_ns
    }

    /// This process's own page faults since then.
    pub fn own_faults(&self) -> FaultCounts {
        cost::own_faults() - self.own_faults
    }

    /// The metadata of the finished recording.
    pub fn finish(&self, options: &Options, ending: &Ending<'_>) -> Value {
        json!({
            "created_unix_ns": cost::clock_ns(libc::CLOCK_REALTIME),
            "tool": { "name": "stackhound", "version": env!("CARGO_PKG_VERSION") },
            "command_line": std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>(),
            "host": host(),
            "options": settings(options),
            "clock": {
                "boot_to_unix_ns_start": self.boot_to_unix_ns,
                "boot_to_unix_ns_end": cost::boot_to_unix_ns(),
                "start_boottime_ns": self.boottime_ns,
                "end_boottime_ns": ending.end_boottime_ns,
            },
            "frequency": self.frequency(options, ending),
            "cost": self.cost(ending),
            "counters": counters(ending),
            "triggers": ending.triggers,
            "notes": ending.notes,
        })
    }

    fn frequency(&self, options: &Options, ending: &Ending<'_>) -> Value {
        let asked_hz = options.events.iter().find_map(|event| match event.sampling {
            Sampling::Frequency(hz) => Some(hz),
            Sampling::Period(_) => None,
        });
        let after = perf_event::sysctl("perf_event_max_sample_rate");
        json!({
            "asked_hz": asked_hz,
            "achieved_hz": asked_hz.and_then(|_| self.achieved_hz(ending)),
            "max_sample_rate_before": self.max_sample_rate,
            "max_sample_rate_after": after,
            "throttled": after < self.max_sample_rate,
        })
    }

    /// Samples a second of a CPU that was busy; None when the CPUs did next to nothing.
    fn achieved_hz(&self, ending: &Ending<'_>) -> Option<f64> {
        const LEAST_BUSY_NS: u64 = 100_000_000; // of which idle ticks blur a tenth
        let all_ns = (ending.end_boottime_ns - self.boottime_ns) * cpus::online().len() as u64;
        let busy_ns = all_ns.saturating_sub(ending.idle_ns);
        (busy_ns >= LEAST_BUSY_NS).then(|| ending.counters.event_entries[0] as f64 / (busy_ns as f64 / 1e9))
    }

    fn cost(&self, ending: &Ending<'_>) -> Value {
        let runs = sampled(ending.counters);
        json!({
            "bpf_runs": runs,
            "bpf_ns": run_ns(ending.counters),
            "bpf_ns_per_run": ns_per_run(ending.counters),
            "bpf_passes": passes(ending.counters),
            "interrupt_ns_per_sample": self.interrupt_ns,
            "collector_cpu_ns": ending.collector_cpu_ns,
            "resident_bytes": ending.resident_bytes,
            "unwind_bytes": ending.unwind_bytes,
            "python_processes": ending.python.processes,
            "python_attach_ns": ending.python.attach_ns,
            "elapsed_ns": ending.end_boottime_ns - self.boottime_ns,
        })
    }
}

/// Runs of the programs that walked a stack.
pub fn sampled(counters: &abi::Counters) -> u64 {
    counters.samples
}

/// What a run that took a sample takes: the mean of those that were timed.
fn ns_per_run(counters: &abi::Counters) -> f64 {
    counters.timed_ns as f64 / counters.timed_samples.max(1) as f64
}

/// What the programs took: all samples, and the switches to threads that made none.
pub fn run_ns(counters: &abi::Counters) -> u64 {
    let ns_per_pass = counters.timed_passes_ns as f64 / counters.timed_passes.max(1) as f64;
    (ns_per_run(counters) * counters.samples as f64 + ns_per_pass * passes(counters) as f64) as u64
}

/// Switches to threads that made no sample.
fn passes(counters: &abi::Counters) -> u64 {
    counters.arrivals - counters.arrivals.min(counters.arrival_samples)
}

fn counters(ending: &Ending<'_>) -> Value {
    let counters = ending.counters;
    json!({
        "entries": counters.entries,
        "idle": counters.idle,
        "filtered": counters.filtered,
        "saved": counters.saved,
        "absent": ending.absent,
        "emitted": counters.emitted,
        "wakings": counters.wakings,
        "held": ending.held,
        "steps": counters.steps,
        "combined": counters.combined,
        "lost_ring_full": counters.lost_ring_full,
        "lost_ring_combined": counters.lost_ring_combined,
        "lost_nested": counters.lost_nested,
        "lost_no_process": counters.lost_no_process,
        "user_truncated": counters.user_truncated,
        "kernel_truncated": counters.kernel_truncated,
        "user_unreadable": counters.user_unreadable,
        "user_ends": counters.user_ends,
        "kernel_walks": counters.kernel_walks,
        "kernel_walks_failed": counters.kernel_walks_failed,
        "kernel_walks_differ": counters.kernel_walks_differ,
    })
}

fn host() -> Value {
    let line = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_string();
    json!({
        "name": line("/proc/sys/kernel/hostname"),
        "kernel": line("/proc/sys/kernel/osrelease"),
        "architecture": std::env::consts::ARCH,
        "cpus": libbpf_rs::num_possible_cpus().unwrap_or(0),
        "cpus_online": cpus::online().len(),
    })
}

fn settings(options: &Options) -> Value {
    json!({
        "events": options.events.iter().map(|event| &event.name).collect::<Vec<_>>(),
        "pids": options.pids,
        "inherit": options.inherit,
        "comm": options.comm,
        "cgroup": options.cgroup,
        "user_only": options.user_only,
        "kernel_only": options.kernel_only,
        "unwind": options.unwind,
        "python": options.python,
        "asyncio": options.asyncio,
        "aggregate": options.aggregate,
        "include_self": options.include_self,
    })
}
