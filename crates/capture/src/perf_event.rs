//! perf_event_open(2): one event a CPU, and its own count.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_sys::perf_event_attr;

use crate::block_tracepoints::BlockTracepoints;
use crate::options::{EventKind, EventSpec, Options, Sampling};

const PERF_TYPE_HARDWARE: u32 = 0;
/// Of the kernel's own counters, clocks among them.
pub const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_COUNT_SW_TASK_CLOCK: u64 = 1;
const PERF_COUNT_SW_PAGE_FAULTS: u64 = 2;
const PERF_COUNT_SW_PAGE_FAULTS_MIN: u64 = 5;
const PERF_COUNT_SW_PAGE_FAULTS_MAJ: u64 = 6;
const PERF_FLAG_FD_CLOEXEC: u64 = 8;
const EVERY_PROCESS: i32 = -1;
const NO_PERF_EVENT: u32 = u32::MAX;
/// The tracepoint behind the switch to another thread.
const ARRIVAL: &str = "sched_exit_tp";
/// The one before it.
const DEPARTURE: &str = "sched_switch";

/// An event as it will be opened on each CPU, its trigger settled.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// What fires: `cycles`, `cpu-clock`, or the event's own name.
    pub name: String,
    /// What a sample's value counts.
    pub unit: String,
    /// As asked for.
    pub event: EventSpec,
    kind: u32,
    config: [u64; 3],
}

/// Page faults: memory was there to be mapped, or had to be read from a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Without waiting for a disk.
    Minor,
    /// After reading.
    Major,
}

impl Trigger {
    /// Settles what fires: for `cpu` the cycle counter where this machine has one, otherwise the CPU clock.
    pub fn settle(event: &EventSpec, options: &Options, cpu: u32) -> Self {
        let named = |name: &str, kind| Self {
            name: name.into(),
            unit: event.unit.clone(),
            event: event.clone(),
            kind,
            config: event.config,
        };
        match event.kind {
            EventKind::CpuTime => {}
            EventKind::Perf(kind) => return named(&event.name, kind),
            EventKind::OffCpu if options.off_cpu_at_departure => return named(DEPARTURE, NO_PERF_EVENT),
            EventKind::OffCpu => return named(ARRIVAL, NO_PERF_EVENT),
            EventKind::BlockIo => return named(BlockTracepoints::find().first(), NO_PERF_EVENT),
            EventKind::Heap if options.heap_uprobes => return named("uprobes", NO_PERF_EVENT),
            EventKind::Heap => return named("preload", NO_PERF_EVENT),
        }
        let cycles = Self::cpu(event, "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
        if !options.software_only && cycles.open(cpu).is_ok() {
            return cycles;
        }
        Self::cpu(event, "cpu-clock", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK)
    }

    fn cpu(event: &EventSpec, name: &str, kind: u32, config: u64) -> Self {
        let by_cycles = name == "cycles" && matches!(event.sampling, Sampling::Period(_));
        let unit = if by_cycles { "count".into() } else { event.unit.clone() };
        Self {
            name: name.into(),
            unit,
            event: event.clone(),
            kind,
            config: [config, 0, 0],
        }
    }

    /// Whether it is opened on each CPU.
    pub fn is_perf_event(&self) -> bool {
        self.kind != NO_PERF_EVENT
    }

    /// Whether it counts the time of a CPU, which never stands still.
    pub fn is_cpu_clock(&self) -> bool {
        self.kind == PERF_TYPE_SOFTWARE && self.config[0] == PERF_COUNT_SW_CPU_CLOCK
    }

    /// Whether samples of it stand for nominal time, 1/F each.
    pub fn is_nominal_time(&self) -> bool {
        self.event.kind == EventKind::CpuTime && matches!(self.event.sampling, Sampling::Frequency(_))
    }

    /// Whether the kernel adapts its period, and tells at a sample only the period of the next one.
    pub fn has_own_count(&self) -> bool {
        let is_clock = [PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK].contains(&self.config[0]);
        self.kind == PERF_TYPE_SOFTWARE && !is_clock && matches!(self.event.sampling, Sampling::Frequency(_))
    }

    /// Whether it tells the address of the memory that was touched.
    pub fn has_address(&self) -> bool {
        const FAULTS: [u64; 3] = [
            PERF_COUNT_SW_PAGE_FAULTS,
            PERF_COUNT_SW_PAGE_FAULTS_MIN,
            PERF_COUNT_SW_PAGE_FAULTS_MAJ,
        ];
        self.kind == PERF_TYPE_SOFTWARE && FAULTS.contains(&self.config[0])
    }

    /// Which page faults it counts, if all of them: the kernel has an exact number of those for every thread.
    pub fn faults(&self) -> Option<Faults> {
        let is_partial = self.event.exclude_kernel || self.event.exclude_user;
        match self.config[0] {
            _ if self.kind != PERF_TYPE_SOFTWARE || is_partial => None,
            PERF_COUNT_SW_PAGE_FAULTS_MIN => Some(Faults::Minor),
            PERF_COUNT_SW_PAGE_FAULTS_MAJ => Some(Faults::Major),
            _ => None,
        }
    }

    /// Faults are timed: says by what.
    pub fn note_timing(&mut self) {
        if self.faults().is_some() {
            self.name += ", timed by fentry of handle_mm_fault";
        }
    }

    /// Opens it on one CPU for every process, disabled.
    pub fn open(&self, cpu: u32) -> io::Result<OwnedFd> {
        open(&self.attributes(), EVERY_PROCESS, cpu as i32)
    }

    fn attributes(&self) -> perf_event_attr {
        let mut attributes = attributes(self.kind, self.config[0]);
        attributes.__bindgen_anon_3.config1 = self.config[1];
        attributes.__bindgen_anon_4.config2 = self.config[2];
        attributes.set_exclude_kernel(self.event.exclude_kernel.into());
        attributes.set_exclude_user(self.event.exclude_user.into());
        self.set_rate(&mut attributes);
        attributes
    }

    /// A fixed period beats the kernel's frequency control wherever the period is known: for clocks it is time itself.
    fn set_rate(&self, attributes: &mut perf_event_attr) {
        match self.event.sampling {
            Sampling::Period(period) => attributes.__bindgen_anon_1.sample_period = period,
            Sampling::Frequency(hz) if self.is_cpu_clock() => {
                attributes.__bindgen_anon_1.sample_period = 1_000_000_000 / hz.max(1);
            }
            Sampling::Frequency(_) if self.event.tracepoint.is_some() => {
                attributes.__bindgen_anon_1.sample_period = 1;
            }
            Sampling::Frequency(hz) => {
                attributes.set_freq(1);
                attributes.__bindgen_anon_1.sample_freq = hz;
            }
        }
    }

    /// Program entries that the event's own count stands for, idle ones left out, where the period is fixed and no part
    /// of the time is excluded.
    pub fn expected_entries(&self, count: u64, idle: Idle) -> Option<u64> {
        if !self.is_perf_event() {
            return None;
        }
        if !self.is_cpu_clock() {
            return self.entries_of(count);
        }
        let interrupts = self.entries_of(idle.ns)?;
        let idle_ns = idle.ns + interrupts * idle.interrupt_ns;
        let is_partial = self.event.exclude_kernel || self.event.exclude_user;
        (!is_partial)
            .then(|| self.entries_of(count.saturating_sub(idle_ns)))
            .flatten()
    }

    fn entries_of(&self, count: u64) -> Option<u64> {
        let mut attributes = perf_event_attr::default();
        self.set_rate(&mut attributes);
        // SAFETY: both members of the union are u64.
        let period = unsafe { attributes.__bindgen_anon_1.sample_period };
        (attributes.freq() == 0 && period > 0).then(|| count / period)
    }
}

/// What CPUs idled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Idle {
    /// All of them together, without the interrupts meanwhile.
    pub ns: u64,
    /// What an interrupt takes at most.
    pub interrupt_ns: u64,
}

/// An event's attributes with nothing but its number; disabled.
pub fn attributes(kind: u32, config: u64) -> perf_event_attr {
    let mut attributes = perf_event_attr {
        type_: kind,
        config,
        ..Default::default()
    };
    attributes.size = size_of::<perf_event_attr>() as u32;
    attributes.set_disabled(1);
    attributes
}

/// The cpu-clock of one thread, for calibration.
pub fn own_cpu_clock(period_ns: u64) -> io::Result<OwnedFd> {
    let mut attributes = attributes(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);
    attributes.__bindgen_anon_1.sample_period = period_ns;
    attributes.set_disabled(0);
    open(&attributes, 0, -1)
}

/// The cpu-clock of one CPU, whatever runs there; enabled by what is attached to it.
pub fn cpu_clock(cpu: u32, period_ns: u64) -> io::Result<OwnedFd> {
    let mut attributes = attributes(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);
    attributes.__bindgen_anon_1.sample_period = period_ns;
    open(&attributes, EVERY_PROCESS, cpu as i32)
}

/// perf_event_open(2).
pub fn open(attributes: &perf_event_attr, pid: i32, cpu: i32) -> io::Result<OwnedFd> {
    // SAFETY: the attributes live through the call; the kernel reads `size` bytes of them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(attributes),
            pid,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new file descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Enables an event that was opened disabled.
pub fn enable(fd: &OwnedFd) -> io::Result<()> {
    const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
    // SAFETY: an ioctl without an argument on an open file descriptor.
    match unsafe { libc::ioctl(fd.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A sysctl of perf or the kernel, as a number.
pub fn sysctl(name: &str) -> Option<i64> {
    std::fs::read_to_string(format!("/proc/sys/kernel/{name}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}
