//! What to record.

use std::path::PathBuf;
use std::time::Duration;

use crate::abi;

/// How often an event makes a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// So many samples a second and CPU.
    Frequency(u64),
    /// A sample for each so many occurrences.
    Period(u64),
}

/// What fires an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The plain `cpu` event: what this machine has.
    CpuTime,
    /// `perf_event_attr.type`.
    Perf(u32),
    /// A thread that comes back to a CPU; its period is in nanoseconds off the CPU.
    OffCpu,
    /// A request to a block device; its period is a number of requests.
    BlockIo,
    /// An allocation of memory; its period is in bytes.
    Heap,
}

/// Who walks kernel stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum KernelWalk {
    /// The kernel.
    Kernel = abi::KERNEL_WALK_ITS_OWN,
    /// Our programs, by the kernel's tables, where it has some; the kernel, where they do not lead to the end.
    Tables = abi::KERNEL_WALK_TABLES,
    /// Both, and where they differ is counted.
    Compared = abi::KERNEL_WALK_COMPARED,
}

/// An event, as perf_event_open(2) numbers it.
#[derive(Clone, Debug)]
pub struct EventSpec {
    /// As the user named it.
    pub name: String,
    /// Of a sample's value: `nanoseconds`, `count`, `bytes`.
    pub unit: String,
    /// What fires.
    pub kind: EventKind,
    /// `perf_event_attr.config` and its extensions.
    pub config: [u64; 3],
    /// How often.
    pub sampling: Sampling,
    /// `category:name`; such an event runs another program.
    pub tracepoint: Option<String>,
    /// perf's `:u`.
    pub exclude_kernel: bool,
    /// perf's `:k`.
    pub exclude_user: bool,
}

impl EventSpec {
    /// Whether perf tells of it; the others have programs of their own.
    pub fn is_perf_event(&self) -> bool {
        matches!(self.kind, EventKind::CpuTime | EventKind::Perf(_))
    }
}

/// What to record; `src/stackhound/recording/options.py` explains each to the user.
#[derive(Clone, Debug)]
pub struct Options {
    /// At least one, at most `abi::MAX_EVENTS`.
    pub events: Vec<EventSpec>,
    /// Take cpu-clock even where there are cycles.
    pub software_only: bool,
    /// Processes; empty for the whole system.
    pub pids: Vec<u32>,
    /// Those of `pids` that are sampled from their next exec on.
    pub held_pids: Vec<u32>,
    /// Whether their children are followed.
    pub inherit: bool,
    /// Only threads of this name.
    pub comm: Option<String>,
    /// Only threads below this cgroup (version 2) directory.
    pub cgroup: Option<PathBuf>,
    /// Walk no kernel stacks; kernel threads are left out.
    pub user_only: bool,
    /// Walk no user stacks; samples in user code are left out.
    pub kernel_only: bool,
    /// Unwind user stacks by tables; otherwise by frame pointers alone.
    pub unwind: bool,
    /// How kernel stacks are walked that begin with registers.
    pub kernel_walk: KernelWalk,
    /// Show Python's own frames; needs `unwind`.
    pub python: bool,
    /// Show who awaits the asyncio tasks that threads run; needs `python`.
    pub asyncio: bool,
    /// Sample this process too.
    pub include_self: bool,
    /// Combine equal samples in the kernel.
    pub aggregate: bool,
    /// Of `off-cpu`: shorter absences are left out.
    pub off_cpu_min: Duration,
    /// Of `off-cpu`: longer absences are left out.
    pub off_cpu_max: Duration,
    /// Of `off-cpu`: each absence is a sample, however many there are.
    pub off_cpu_exact: bool,
    /// Of `off-cpu`: who ended each absence that is a sample.
    pub wakers: bool,
    /// Of `off-cpu`: threads are seen when they leave a CPU, as where the kernel does not tell when they come back.
    pub off_cpu_at_departure: bool,
    /// Of `heap`: the library in which programs choose their samples (`preload/heap.c`).
    pub heap_library: Option<PathBuf>,
    /// Of `heap`: watch allocators of programs as they are.
    pub heap_uprobes: bool,
    /// Of that: files that the command will have mapped, to be watched from its first instruction on.
    pub heap_files: Vec<PathBuf>,
    /// Of that: how much slower, in percent, traps may make one thread.
    pub heap_max_slowdown_percent: f64,
    /// Of the ring, rounded up to a power of two; None: by rate and CPUs.
    pub ring_bytes: Option<usize>,
    /// Keep each sample's virtual addresses.
    pub raw_addresses: bool,
    /// Between two drains; None: by rate.
    pub drain_interval: Option<Duration>,
    /// Where separate debug files are looked for, besides the usual places.
    pub debug_dirs: Vec<PathBuf>,
    /// Where debug files from debuginfod servers are kept; None: they are not looked for.
    pub debuginfod_cache: Option<PathBuf>,
    /// 0 error … 4 trace; to stderr.
    pub log_level: u8,
}

/// One allocation in so many bytes: a program that allocates 64 MB a second makes 1,000 samples.
const SPARSE_HEAP_BYTES: u64 = 64 << 10;

impl Options {
    /// The fastest rate asked for in samples a second and CPU, for sizing; events by period count as 10,000.
    pub fn fastest_hz(&self) -> u64 {
        let rate = |event: &EventSpec| match event.sampling {
            Sampling::Frequency(hz) => hz,
            Sampling::Period(_) if event.kind == EventKind::OffCpu && !self.off_cpu_exact => 1_000,
            Sampling::Period(bytes) if event.kind == EventKind::Heap && bytes >= SPARSE_HEAP_BYTES => 1_000,
            Sampling::Period(_) => 10_000,
        };
        self.events.iter().map(rate).sum()
    }

    /// The kinds of programs that write records (`bpf/abi.h`, `enum hook`), each into rings of its own. Rings are looked
    /// at in this order, so that a record refers to one that is there if that is in the same ring or a later one.
    pub fn hooks(&self) -> Vec<u32> {
        let used = [
            (abi::HOOK_EVENT, self.events.iter().any(EventSpec::is_perf_event)),
            (abi::HOOK_ARRIVAL, self.off_cpu_event().is_some()),
            (abi::HOOK_WAKING, self.wakers),
            (abi::HOOK_SUBMISSION, self.block_io_event().is_some()),
            (abi::HOOK_COMPLETION, self.block_io_event().is_some()),
            (abi::HOOK_ALLOCATION, self.heap_event().is_some()),
        ];
        used.into_iter()
            .filter(|(_, is_used)| *is_used)
            .map(|(hook, _)| hook)
            .collect()
    }

    /// Whether stacks may be those of any process: each may wake one that is recorded.
    pub fn walks_all(&self) -> bool {
        self.pids.is_empty() || self.wakers
    }

    /// Whether threads are seen where they come back to a CPU.
    pub fn sees_arrivals(&self) -> bool {
        !self.off_cpu_at_departure && self.off_cpu_event().is_some()
    }

    /// Whether time off the CPU is seen where threads leave.
    pub fn sees_departures(&self) -> bool {
        self.off_cpu_at_departure && self.off_cpu_event().is_some()
    }

    /// Where among the events `off-cpu` is.
    pub fn off_cpu_event(&self) -> Option<usize> {
        self.events.iter().position(|event| event.kind == EventKind::OffCpu)
    }

    /// Where among the events `block-io` is.
    pub fn block_io_event(&self) -> Option<usize> {
        self.events.iter().position(|event| event.kind == EventKind::BlockIo)
    }

    /// Where among the events `heap` is.
    pub fn heap_event(&self) -> Option<usize> {
        self.events.iter().position(|event| event.kind == EventKind::Heap)
    }

    /// Of how many bytes allocated one is a sample, on average.
    pub fn heap_interval_bytes(&self) -> u64 {
        match self.heap_event().map(|event| self.events[event].sampling) {
            Some(Sampling::Period(bytes)) => bytes,
            _ => 1,
        }
    }
}
