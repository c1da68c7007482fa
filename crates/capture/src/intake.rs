//! Where samples and what processes did become rows of a profile.

use stackhound_core::address::KernelAddr;
use stackhound_core::profile::Profile;
use stackhound_core::rows::{
    EventRow, LocationId, ObjectId, OffCpuRow, OffCpuState, ProcessRow, SampleRow, StackId, ThreadId, WakerRow,
};
use stackhound_core::symbolize::{DebugDirs, MissingDebugFile};

use crate::abi;
use crate::block_io::{BlockIo, HeldSample};
use crate::departures::{Absence, Departure, Departures};
use crate::error::{Error, Result};
use crate::files::FileStore;
use crate::heap::Heap;
use crate::kernel::KernelSpace;
use crate::memory::Memory;
use crate::options::{EventKind, Options, Sampling};
use crate::perf_event::Trigger;
use crate::processes::Processes;
use crate::python::{Fit, Frame, Pythons};
use crate::raw_sample::RawSample;
use crate::sideband::{Change, ProcessEvent};
use crate::sigbus::Guard;
use crate::sources::SymbolSources;
use crate::wakers::Wakers;

/// The name of what wakes threads and is none.
const INTERRUPTS: &str = "[interrupt]";

/// The profile in the making, and what must be known for it.
pub struct Intake {
    /// The rows so far.
    pub profile: Profile,
    /// Who had what mapped when.
    pub processes: Processes,
    /// What was mapped, held open.
    pub files: FileStore,
    kernel: KernelSpace,
    memory: Memory,
    /// Python's part of the stacks.
    pub pythons: Pythons,
    frames: Vec<Frame>,
    /// The stack that is looked up, root first.
    path: Vec<LocationId>,
    wakers: Wakers,
    interrupts: Option<ThreadId>,
    /// What fires each event.
    pub triggers: Vec<Trigger>,
    departures: Departures<HeldSample>,
    raw_addresses: bool,
    aggregate: bool,
    /// Requests to block devices.
    pub block_io: BlockIo,
    heap: Heap,
    /// Observations in the rows.
    pub stored: u64,
    /// Whether a file was cut short while its symbols were read.
    pub changed_files: bool,
}

impl Intake {
    /// Nothing yet.
    pub fn new(options: &Options, triggers: Vec<Trigger>) -> Result<Self> {
        let mut profile = Profile::default();
        profile.set_debug_dirs(DebugDirs::new(&options.debug_dirs, options.debuginfod_cache.clone()));
        for trigger in &triggers {
            let (mode, rate) = match trigger.event.sampling {
                Sampling::Frequency(hz) => ("frequency", hz),
                Sampling::Period(period) => ("period", period),
            };
            profile.event(EventRow {
                name: trigger.event.name.clone(),
                unit: trigger.unit.clone(),
                trigger: trigger.name.clone(),
                mode: mode.into(),
                rate,
            });
        }
        Ok(Self {
            profile,
            processes: Processes::new(!options.walks_all()),
            files: FileStore::default(),
            kernel: KernelSpace::read(),
            memory: Memory::default(),
            pythons: Pythons::new(options.asyncio)?,
            frames: Vec::new(),
            path: Vec::new(),
            wakers: Wakers::default(),
            interrupts: None,
            triggers,
            departures: Departures::default(),
            raw_addresses: options.raw_addresses,
            aggregate: options.aggregate,
            block_io: BlockIo::default(),
            heap: Heap::new(options),
            stored: 0,
            changed_files: false,
        })
    }

    /// Whether samples tell addresses of memory, which mean nothing when their process has ended.
    pub fn looks_at_memory(&self) -> bool {
        !self.aggregate && self.triggers.iter().any(Trigger::has_address)
    }

    /// Takes note of what a process did.
    pub fn apply(&mut self, event: ProcessEvent) {
        if let Change::Exit { tid } = event.change {
            self.departures.end(tid, event.time_ns);
        }
        self.processes.apply(event, &mut self.files, &mut self.profile);
    }

    /// Gives back what is kept of threads and processes that have ended.
    pub fn forget_ended(&mut self, now_ns: u64) {
        self.departures.forget_ended(now_ns);
        self.processes.forget_ended(now_ns);
    }

    /// Adds a sample, or to the row that it shares with others when aggregating. Who woke a thread is kept for the
    /// sample that this makes, the sample of a request until its end, and the stack with which a thread leaves until it is
    /// known how long it was away; so is an allocation until what became of it is known.
    pub fn store(&mut self, sample: &RawSample<'_>) {
        if let Some(number) = sample.waking {
            self.keep_waker(sample, number);
        } else if let Some(step) = &sample.block_step {
            self.keep_step(sample, step);
        } else if let Some(step) = &sample.heap_step {
            self.keep_allocation(sample, step);
        } else if let Some(departure) = sample.departure {
            self.store_half(sample, departure);
        } else {
            self.store_whole(sample);
        }
    }

    fn store_whole(&mut self, sample: &RawSample<'_>) {
        let HeldSample { row, addresses } = self.hold(sample);
        self.push(row, addresses.as_deref(), sample.count);
    }

    fn keep_step(&mut self, sample: &RawSample<'_>, step: &abi::BlockStep) {
        let is_sampled = u32::from(step.traits) & abi::BLOCK_SAMPLED != 0;
        let held = is_sampled.then(|| self.hold(sample));
        self.block_io.note(sample, step, held);
    }

    /// Adds the samples of requests that have ended since, when the rings were looked at then.
    pub fn settle_requests(&mut self, looked_ns: u64) {
        for HeldSample { row, addresses } in self.block_io.settle(looked_ns, &mut self.profile) {
            self.push(row, addresses.as_deref(), 1);
        }
    }

    fn keep_allocation(&mut self, sample: &RawSample<'_>, step: &abi::HeapStep) {
        let held = (u32::from(step.step) == abi::HEAP_ALLOCATED).then(|| self.hold(sample));
        self.heap.note(sample, step, held);
    }

    /// What was allocated in this window is not followed any further.
    pub fn close_window(&mut self, window: u64) {
        self.heap.close_window(window);
    }

    /// Adds the samples of allocations whose end has been told since, when the rings were looked at then.
    pub fn settle_allocations(&mut self, looked_ns: u64) {
        for HeldSample { row, addresses } in self.heap.settle(looked_ns) {
            self.push(row, addresses.as_deref(), 1);
        }
    }

    /// Adds those that are in use, once the last record has been stored, and what all allocations come to.
    pub fn finish_allocations(&mut self) {
        self.settle_allocations(u64::MAX);
        let heap = std::mem::take(&mut self.heap);
        for HeldSample { row, addresses } in heap.finish(&mut self.profile) {
            self.push(row, addresses.as_deref(), 1);
        }
    }

    fn store_half(&mut self, sample: &RawSample<'_>, departure: Departure) {
        let tid = sample.header.tid;
        let whole = match absence_of(sample) {
            Some(absence) => self.departures.come_back(tid, departure, absence),
            None => {
                let stack = self.hold(sample);
                self.departures.leave(tid, departure, stack, sample.header.boottime_ns)
            }
        };
        if let Some((stack, absence)) = whole {
            self.add_absence(stack, absence);
        }
    }

    /// Adds the last sample of a thread: what it has of a stack is used only where there is no better one from before.
    pub fn store_last(&mut self, sample: &RawSample<'_>) {
        let absence = absence_of(sample).zip(sample.departure);
        let known = absence.and_then(|(absence, departure)| {
            let stack = self.departures.stack(sample.header.tid, departure)?;
            Some((stack, absence))
        });
        match known {
            Some((stack, absence)) => self.add_absence(stack, absence),
            None => self.store_whole(sample),
        }
    }

    fn add_absence(&mut self, stack: HeldSample, absence: Absence) {
        let waker = self.wakers.take(absence.away.waking);
        let row = SampleRow {
            waker,
            ..after(stack.row, absence)
        };
        self.push(row, stack.addresses.as_deref(), 1);
    }

    fn push(&mut self, row: SampleRow<'_>, addresses: Option<&[u64]>, observations: u64) {
        let row = SampleRow { addresses, ..row };
        self.stored += observations;
        if self.aggregate && row.heap.is_none() {
            self.profile.combine(row)
        } else {
            self.profile.sample(row)
        }
    }

    /// Its row, whose addresses are apart.
    fn hold(&mut self, sample: &RawSample<'_>) -> HeldSample {
        let thread = self.processes.thread(sample, &mut self.files, &mut self.profile);
        let memory = self.touched_memory(sample);
        let user = self.begin_with_user_part(sample);
        let header = &sample.header;
        let is_traced = sample.off_cpu.is_some() || sample.block_step.is_some() || sample.departure.is_some();
        let kernel = if is_traced {
            self.kernel.without_tracing(sample.kernel)
        } else {
            sample.kernel
        };
        let stack = self.end_with_kernel_part(kernel);
        let trigger = &self.triggers[usize::from(header.event).min(self.triggers.len() - 1)];
        let value = value_of(trigger, header.period, sample.count);
        let is_hardware_time = trigger.is_nominal_time() && trigger.name == "cycles";
        let of_user = || self.frames.iter().map(Frame::address);
        let addresses = (self.raw_addresses).then(|| kernel.iter().copied().chain(of_user()).collect());
        let row = SampleRow {
            event: header.event.into(),
            boottime_ns: header.boottime_ns,
            duration_ns: sample.off_cpu.map_or(0, |away| away.duration_ns),
            cpu: header.cpu,
            thread,
            stack,
            value,
            count: observations_of(sample, value),
            last_ns: sample.last_ns,
            flags: flags_of(sample, &user),
            addresses: None,
            period: is_hardware_time.then_some(header.period),
            memory,
            fault_ns: sample.fault.map_or(0, |fault| fault.ns),
            off_cpu: sample.off_cpu.map(off_cpu_row),
            waker: sample.off_cpu.and_then(|away| self.wakers.take(away.waking)),
            block_io: None,
            heap: None,
        };
        HeldSample { row, addresses }
    }

    fn keep_waker(&mut self, waker: &RawSample<'_>, number: u64) {
        let kernel = self.kernel.without_tracing(waker.kernel);
        let row = match self.kernel.interrupt(kernel) {
            None if waker.header.tgid != 0 => WakerRow {
                thread: self.processes.thread(waker, &mut self.files, &mut self.profile),
                stack: {
                    self.begin_with_user_part(waker);
                    self.end_with_kernel_part(kernel)
                },
            },
            part => WakerRow {
                thread: self.interrupts(),
                stack: {
                    self.path.clear();
                    self.end_with_kernel_part(part.unwrap_or(kernel))
                },
            },
        };
        self.wakers.add(number, row);
    }

    /// What stands for interrupts, for idle CPUs, and for what is outside of this process's PID namespace.
    fn interrupts(&mut self) -> ThreadId {
        *self.interrupts.get_or_insert_with(|| {
            let process = self.profile.process(ProcessRow {
                comm: INTERRUPTS.into(),
                ..ProcessRow::default()
            });
            self.profile.thread(process, 0, 0, INTERRUPTS.as_bytes())
        })
    }

    /// Begins the path of a stack with its user part, whose frames `frames` then has.
    fn begin_with_user_part(&mut self, sample: &RawSample<'_>) -> UserPart {
        self.path.clear();
        self.frames.clear();
        let fit = self.pythons.merge(sample, &mut self.profile, &mut self.frames);
        let (pid, frames, files) = (sample.header.tgid, &mut self.frames, &mut self.files);
        let is_broken = (self.processes).user_path(pid, frames, files, &mut self.profile, &mut self.path);
        UserPart { is_broken, fit }
    }

    /// The memory whose touch the sample is of, and where in it.
    fn touched_memory(&mut self, sample: &RawSample<'_>) -> Option<(ObjectId, u64)> {
        let (pid, now_ns) = (sample.header.tgid, sample.header.boottime_ns);
        let by_address = (self.memory).place(pid, sample.address?, now_ns, &mut self.files, &mut self.profile);
        by_address.or_else(|| {
            self.memory
                .place_in_file(&sample.fault?, &mut self.files, &mut self.profile)
        })
    }

    /// The stack of what the path has, and below it these kernel frames, which come leaf first.
    fn end_with_kernel_part(&mut self, kernel: &[u64]) -> StackId {
        if let Some((leaf, callers)) = kernel.split_first() {
            let calls = callers.iter().rev().map(|address| address.wrapping_sub(1)); // as in `Processes::user_path`
            for address in calls.chain([*leaf]) {
                self.path
                    .push(self.kernel.location(KernelAddr(address), &mut self.profile));
            }
        }
        self.profile.stack(&self.path)
    }

    /// Names all locations that have no names yet.
    pub fn symbolize(&mut self, lines: bool) -> Result<()> {
        self.with_sources(|profile, sources| profile.symbolize(sources, lines))
    }

    /// Files whose debug files are not on this machine, those with the most to name first.
    pub fn missing_debug_files(&mut self, lines: bool) -> Result<Vec<MissingDebugFile>> {
        self.with_sources(|profile, sources| profile.missing_debug_files(sources, lines))
    }

    /// Lets somebody read files that others may cut short meanwhile.
    fn with_sources<T>(&mut self, read: impl FnOnce(&mut Profile, &mut SymbolSources) -> T) -> Result<T> {
        let guard = Guard::new().map_err(|error| Error::system("SIGBUS cannot be caught", &error))?;
        self.processes.look_at_made_code(&self.files, &mut self.profile);
        let mut sources = SymbolSources {
            files: &mut self.files,
            processes: &mut self.processes,
            kernel: &mut self.kernel,
            pythons: &self.pythons,
        };
        let result = read(&mut self.profile, &mut sources);
        self.changed_files |= guard.zeroed_pages() > 0;
        Ok(result)
    }
}

/// What became known of the user part of a sample's stack.
struct UserPart {
    is_broken: bool,
    /// Of Python's frames, if there are any.
    fit: Option<Fit>,
}

/// Of the stack with which a thread left.
fn after(mut row: SampleRow<'static>, absence: Absence) -> SampleRow<'static> {
    row.duration_ns = absence.away.duration_ns;
    row.boottime_ns = absence.end_boottime_ns;
    row.last_ns = row.boottime_ns;
    row.value = absence.weight_ns;
    row.count = absences(row.value, absence.away);
    row.off_cpu = Some(off_cpu_row(absence.away));
    row
}

fn absence_of(sample: &RawSample<'_>) -> Option<Absence> {
    sample.off_cpu.map(|away| Absence {
        end_boottime_ns: sample.header.boottime_ns.saturating_sub(away.since_ns),
        weight_ns: sample.header.period,
        away,
    })
}

/// Of the kernel half, and what is found out here.
fn flags_of(sample: &RawSample<'_>, user: &UserPart) -> u32 {
    let mut flags = u32::from(sample.header.flags);
    let mut set = |flag, is_set: bool| flags |= if is_set { flag } else { 0 };
    set(abi::USER_BROKEN, user.is_broken);
    set(abi::PYTHON_GUESSED, user.fit == Some(Fit::Guessed));
    if let Some(python) = sample.python {
        set(abi::PYTHON_CUT, python.end() != abi::PYTHON_COMPLETE);
        set(abi::GIL_KNOWN, python.summary & abi::PYTHON_KNOWS_GIL as u64 != 0);
        set(abi::GIL_HELD, python.holds_gil());
    }
    flags
}

/// What so many observations stand for: 1/F of time each, or what the event has counted for them, all together.
fn value_of(trigger: &Trigger, period: u64, count: u64) -> u64 {
    match trigger.event.sampling {
        _ if trigger.event.kind == EventKind::OffCpu => period,
        Sampling::Frequency(hz) if trigger.is_nominal_time() => count * (1_000_000_000 / hz.max(1)),
        Sampling::Period(every) => count * every,
        Sampling::Frequency(_) => period.max(count),
    }
}

/// How many times what was seen happened.
fn observations_of(sample: &RawSample<'_>, value: u64) -> u64 {
    match sample.off_cpu {
        Some(away) => absences(value, away),
        None if sample.block_step.is_some() => sample.header.period,
        None => sample.count,
    }
}

/// How many absences a sample of so much time stands for: where they were not counted, so many of its length.
fn absences(value_ns: u64, away: abi::OffCpu) -> u64 {
    match away.absences {
        0 => ((value_ns + away.duration_ns / 2) / away.duration_ns.max(1)).max(1),
        counted => counted.into(),
    }
}

fn off_cpu_row(away: abi::OffCpu) -> OffCpuRow {
    OffCpuRow {
        state: match away.flags {
            flags if flags & abi::OFF_CPU_PREEMPTED != 0 => OffCpuState::Preempted,
            flags if flags & abi::OFF_CPU_DISK != 0 => OffCpuState::Disk,
            _ => OffCpuState::Waiting,
        },
        queued_ns: away.queued_ns,
    }
}
