//! A recording, turn by turn, from its beginning to its tables.

mod waiting;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use stackhound_core::symbolize::MissingDebugFile;

use crate::abi;
use crate::absent::{self, Absent};
use crate::allocators::Allocators;
use crate::block_io::BlockIoPace;
use crate::board::{Board, WaitOutcome};
use crate::bpf_objects::possible_cpus;
use crate::combining::Combining;
use crate::cost;
use crate::cpus;
use crate::drain::{Layout, Rings};
use crate::error::{Error, Result};
use crate::fault_times;
use crate::fault_totals::{self, FaultCounts};
use crate::informer;
use crate::intake::Intake;
use crate::kernel_features::{kernel_can_unwind, kernel_tells_arrivals};
use crate::metadata::{Beginning, Ending};
use crate::new_programs::NewPrograms;
use crate::off_cpu::OffCpuPace;
use crate::options::Options;
use crate::perf_event::Trigger;
use crate::programs::Programs;
use crate::setup;
use crate::sideband::{ProcessEvent, Sideband};
use crate::targets::Targets;
use crate::unwind::Unwinder;
use crate::waker::Waker;
use waiting::Waiting;

/// Tables by name.
pub type Tables = Vec<(&'static str, RecordBatch)>;

/// A finished recording.
pub struct Finished {
    /// `src/stackhound/profile/schema.py` draws them.
    pub tables: Tables,
    /// As JSON text.
    pub metadata: String,
}

/// How a recording is doing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    /// Observations stored.
    pub samples: u64,
    /// Observations lost, all causes that are counted.
    pub lost: u64,
    /// Runs of the programs, idle ones included.
    pub entries: u64,
    /// Spent in the programs.
    pub bpf_ns: u64,
    /// Runs of the programs that walked a stack.
    pub bpf_runs: u64,
    /// CPU time of this process since the start.
    pub collector_cpu_ns: u64,
    /// Physical memory of this process.
    pub resident_bytes: u64,
    /// Since the start.
    pub elapsed_ns: u64,
}

/// A turn reads at most this many processes that ran before, so that the ring is drained in between.
const SCANS_PER_TURN: usize = 64;
/// The combining cache and ended processes are looked after this often.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);
/// CPUs that come and go are looked after this often: one that was away is sampled again within 5 s.
const CPUS_INTERVAL: Duration = Duration::from_secs(2);

/// Some megabytes.
const MANY_SAMPLES: u64 = 1 << 16;

/// What the thread of a recording has.
pub struct Recording {
    options: Options,
    programs: Programs,
    rings: Rings,
    combining: Option<Combining>,
    sideband: Sideband,
    new_programs: NewPrograms,
    targets: Targets,
    waker: Waker,
    beginning: Beginning,
    intake: Intake,
    unwinder: Option<Unwinder>,
    waiting: Waiting,
    off_cpu: Option<OffCpuPace>,
    block_io: Option<BlockIoPace>,
    allocators: Option<Allocators>,
    absent: Option<Absent>,
    absent_samples: u64,
    pending: Vec<ProcessEvent>,
    unscanned: VecDeque<u32>,
    failure: Option<Error>,
    notes: Vec<String>,
    kept_up: Instant,
    followed_cpus: Instant,
    /// Samples at which memory is given back again.
    next_giving_back: u64,
    /// Once sampling has ended.
    stopped: Option<Stopped>,
}

/// What is known at the end of sampling.
struct Stopped {
    counters: abi::Counters,
    status: Status,
    end_boottime_ns: u64,
    idle_ns: u64,
    unwind_bytes: usize,
}

impl Recording {
    pub fn begin(mut options: Options, waker: Waker) -> Result<Self> {
        setup::raise_open_files_limit();
        let targets = Targets::new(&options.pids)?;
        setup::resolve_tracepoints(&mut options)?;
        let mut notes = Vec::new();
        if options.unwind && !kernel_can_unwind() {
            options.unwind = false;
            notes.push("user stacks by frame pointers only: unwind tables need Linux 5.17".into());
        }
        options.off_cpu_at_departure |= options.off_cpu_event().is_some() && !kernel_tells_arrivals();
        let online = cpus::online();
        let settle = |event| Trigger::settle(event, &options, online[0]);
        let mut triggers: Vec<Trigger> = options.events.iter().map(settle).collect();
        notes.extend(fault_totals::lack(&triggers));
        let hooks = options.hooks().len();
        let layout = Layout::new(setup::ring_bytes(&options), possible_cpus()?, &online, hooks);
        let mut programs = Programs::load(&options, triggers.clone(), &layout)?;
        if programs.fault_times.is_some() {
            triggers.iter_mut().for_each(Trigger::note_timing);
        } else if fault_times::are_wanted(&options, &triggers) {
            notes.push("page faults are not timed: this kernel lets no program look at its functions (fentry)".into());
        }
        let rings = Rings::new(programs.rings(), layout, &online)?;
        let sideband =
            Sideband::open(&online).map_err(|error| Error::system("processes cannot be followed", &error))?;
        let new_programs = programs.new_programs()?;
        let slots = programs.combine_slots();
        let combining = (slots > 0)
            .then(|| Combining::new(programs.combining(), slots))
            .transpose()?;
        let mut intake = Intake::new(&options, triggers)?;
        let unscanned = setup::scan_first(&options, &mut intake);
        let unwinder = (options.unwind)
            .then(|| informer::begin_unwinding(&options, programs.unwind_maps(), &mut intake, waker.clone()))
            .transpose()?;
        let off_cpu = OffCpuPace::begin(&options, online.len(), &mut programs)?;
        let absent = match &off_cpu {
            Some(_) => Absent::load(&options, &intake.triggers, &mut programs)?,
            None => None,
        };
        if off_cpu.is_some() && absent.is_none() {
            notes.push("threads that were off the CPU all along are missing: --cgroup, --call-graph fp".into());
        }
        let block_io = BlockIoPace::begin(&options, online.len(), &mut programs)?;
        let beginning = Beginning::now();
        attach(&mut programs, &options, &online)?;
        let allocators = Allocators::begin(&options, &mut programs)?;
        let waiting = Waiting::new(&options);
        Ok(Self {
            options,
            programs,
            rings,
            combining,
            sideband,
            new_programs,
            targets,
            waker,
            beginning,
            intake,
            unwinder,
            waiting,
            off_cpu,
            block_io,
            allocators,
            absent,
            absent_samples: 0,
            pending: Vec::new(),
            unscanned: unscanned.into(),
            failure: None,
            notes,
            kept_up: Instant::now(),
            followed_cpus: Instant::now(),
            next_giving_back: MANY_SAMPLES,
            stopped: None,
        })
    }

    /// Measures what an interrupt takes, here and now.
    pub fn calibrate(&mut self) {
        self.beginning.calibrate();
    }

    /// Whether there is nothing left to do but answer.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// One turn: wait, then everything that is due.
    pub fn turn(&mut self, board: &Board) {
        self.wait();
        self.drain();
        self.intake.processes.look_at_new(&mut self.intake.profile);
        self.scan_some();
        if let Err(error) = self.inform_walker() {
            self.failure.get_or_insert(error);
        }
        if let Err(error) = self.watch_allocators() {
            self.failure.get_or_insert(error);
        }
        if self.kept_up.elapsed() >= UPKEEP_INTERVAL {
            self.kept_up = Instant::now();
            if let Err(error) = self.keep_up() {
                self.failure.get_or_insert(error);
            }
        }
        self.report(board);
    }

    fn watch_allocators(&mut self) -> Result<()> {
        if let Some(allocators) = &mut self.allocators
            && let Some(window) = allocators.turn(&mut self.programs)?
        {
            self.intake.close_window(window);
        }
        Ok(())
    }

    fn inform_walker(&mut self) -> Result<()> {
        let Some(unwinder) = &mut self.unwinder else {
            return Ok(());
        };
        informer::inform(unwinder, &mut self.intake, &self.options)?;
        for program in self.intake.pythons.take_programs() {
            if let Some(inode) = self.intake.files.inode(program) {
                self.new_programs.hurry(inode); // of what it runs nothing is known otherwise
            }
        }
        Ok(())
    }

    /// Samples first, then what processes did: whatever a sample depends on was written before it. What happened
    /// after this began waits for the next turn, whose samples may be older.
    fn drain(&mut self) {
        let began_ns = cost::boottime_ns();
        self.rings.look();
        self.sideband.consume(&mut self.pending);
        self.new_programs.consume(&mut self.pending);
        self.pending.sort_by_key(|event| event.time_ns);
        self.intake.pythons.learn(self.rings.found(), &mut self.intake.profile);
        let due = self.pending.partition_point(|event| event.time_ns < began_ns);
        let mut events = self.pending.drain(..due).peekable();
        let intake = &mut self.intake;
        let (mut off_cpu_samples, mut block_io_samples) = (0, 0);
        self.rings.take(|sample| {
            off_cpu_samples += u64::from(sample.off_cpu.is_some());
            block_io_samples += u64::from(sample.block_step.is_some() && sample.header.tgid != 0);
            while let Some(event) = events.next_if(|event| event.time_ns <= sample.header.boottime_ns) {
                intake.apply(event);
            }
            intake.store(&sample);
        });
        events.for_each(|event| intake.apply(event));
        intake.settle_requests(began_ns);
        intake.settle_allocations(began_ns);
        if let Err(error) = self.adapt(off_cpu_samples, block_io_samples) {
            self.failure.get_or_insert(error);
        }
    }

    /// To how many samples came.
    fn adapt(&mut self, off_cpu_samples: u64, block_io_samples: u64) -> Result<()> {
        if let Some(off_cpu) = &mut self.off_cpu {
            off_cpu.adapt(off_cpu_samples, &mut self.programs)?;
        }
        if let Some(block_io) = &mut self.block_io {
            block_io.adapt(block_io_samples, &mut self.programs)?;
        }
        Ok(())
    }

    fn scan_some(&mut self) {
        let now_ns = cost::boottime_ns();
        for pid in self.unscanned.drain(..SCANS_PER_TURN.min(self.unscanned.len())) {
            self.intake.processes.scan(pid, &mut self.intake.files, now_ns);
        }
    }

    fn keep_up(&mut self) -> Result<()> {
        self.give_back_memory();
        if let Some(faults) = &mut self.programs.fault_totals {
            faults.keep_up(|process| self.intake.processes.has_row(process))?;
        }
        self.intake.forget_ended(cost::boottime_ns());
        if let Some(unwinder) = &mut self.unwinder {
            informer::keep_up(unwinder, &mut self.intake)?;
        }
        if self.followed_cpus.elapsed() >= CPUS_INTERVAL {
            self.followed_cpus = Instant::now();
            self.follow_cpus()?;
        }
        self.flush()
    }

    fn follow_cpus(&mut self) -> Result<()> {
        let online = cpus::online();
        let gone = self.programs.detach_lost_cpus(&online);
        self.sideband.drop_cpus(&gone);
        self.rings.add_missing(&online)?;
        let follow = self.sideband.follow(&online);
        follow.map_err(|error| Error::system("processes cannot be followed on a new CPU", &error))?;
        self.programs.attach_missing(&online).map(drop)
    }

    /// As often as columns move that grow by half or to twice their size.
    fn give_back_memory(&mut self) {
        let stored = self.intake.stored;
        if stored >= self.next_giving_back {
            cost::give_back_memory();
            self.next_giving_back = stored + stored / 2;
        }
    }

    fn flush(&mut self) -> Result<()> {
        let intake = &mut self.intake;
        self.combining.as_mut().map_or(Ok(()), |combining| {
            combining.flush(|sample| {
                intake.pythons.learn(std::iter::once(sample), &mut intake.profile);
                intake.store(&sample);
            })
        })
    }

    /// Tells those who wait that there is nothing to wait for.
    pub fn report(&self, board: &Board) {
        if let Some(outcome) = self.outcome() {
            board.write(outcome);
        }
    }

    fn outcome(&self) -> Option<WaitOutcome> {
        match self.failure {
            Some(_) => Some(WaitOutcome::Failed),
            None => self.targets.have_ended().then_some(WaitOutcome::TargetsExited),
        }
    }

    /// At the end of sampling, once that has come.
    pub fn status(&mut self) -> Status {
        if let Some(stopped) = &self.stopped {
            return stopped.status;
        }
        let counters = self.programs.counters();
        Status {
            samples: self.intake.stored,
            lost: lost(&counters),
            entries: counters.entries,
            bpf_ns: crate::metadata::run_ns(&counters),
            bpf_runs: crate::metadata::sampled(&counters),
            collector_cpu_ns: self.beginning.collector_cpu_ns(),
            resident_bytes: cost::resident_bytes(),
            elapsed_ns: self.beginning.elapsed_ns(),
        }
    }

    pub fn add_target(&mut self, pid: u32) -> Result<()> {
        self.targets.add(pid)?;
        self.intake
            .processes
            .scan(pid, &mut self.intake.files, cost::boottime_ns());
        self.programs.admit(pid)?;
        self.options.pids.push(pid);
        Ok(())
    }

    pub fn take(&mut self, lines: bool) -> Result<Tables> {
        self.drain();
        self.intake.symbolize(lines)?;
        Ok(self.intake.profile.take_new())
    }

    pub fn stop_and_look(&mut self, lines: bool) -> Result<Vec<MissingDebugFile>> {
        if self.stopped.is_none() {
            self.stopped = Some(self.stop()?);
        }
        self.intake.missing_debug_files(lines)
    }

    fn stop(&mut self) -> Result<Stopped> {
        let status = self.status();
        let idle = self.beginning.idle();
        let unseen = self.programs.unseen_samples(idle);
        self.drain();
        self.intake.processes.look_at_new(&mut self.intake.profile);
        let event_counts = self.programs.sum_up()?;
        if let Some(mut allocators) = self.allocators.take() {
            allocators.close(&mut self.programs)?;
            self.notes.push(allocators.note());
        }
        self.programs.detach();
        let end_boottime_ns = cost::boottime_ns();
        let unwind_bytes = self.unwinder.as_ref().map_or(0, Unwinder::memory_bytes);
        self.notes.extend(self.unwinder.iter().flat_map(Unwinder::lacks));
        self.drain();
        self.look_at_absent()?;
        self.unwinder = None; // its threads would only be in the way
        self.drain();
        self.flush()?;
        self.drain(); // what waited in `pending`, so that the last exits are noted
        self.finish_requests();
        self.intake.finish_allocations();
        self.note_totals(&event_counts)?;
        let counters = self.programs.counters();
        self.note_losses(&counters, unseen);
        Ok(Stopped {
            counters,
            status,
            end_boottime_ns,
            idle_ns: idle.ns,
            unwind_bytes,
        })
    }

    fn finish_requests(&mut self) {
        if self.block_io.is_none() {
            return;
        }
        self.intake.settle_requests(u64::MAX);
        match self.intake.block_io.finish(&mut self.intake.profile) {
            0 => {}
            1 => self.notes.push("1 request to a block device had not ended".into()),
            open => self
                .notes
                .push(format!("{open} requests to block devices had not ended")),
        }
    }

    /// Nothing tells any more when threads come back: those that are away now are looked up.
    fn look_at_absent(&mut self) -> Result<()> {
        let Some(mut absent) = self.absent.take() else {
            return Ok(());
        };
        let Some(words) = absent.look()? else {
            let note = "threads that were off the CPU all along are missing: somebody's memory does not answer";
            self.notes.push(note.into());
            return Ok(());
        };
        let samples: Vec<_> = absent::parse(&words).collect();
        self.intake
            .pythons
            .learn(samples.iter().copied(), &mut self.intake.profile);
        for sample in &samples {
            self.intake.store_last(sample);
        }
        self.absent_samples = samples.len() as u64;
        Ok(())
    }

    pub fn finish(&mut self, lines: bool) -> Result<Finished> {
        let stopped = match self.stopped.take() {
            Some(stopped) => stopped,
            None => self.stop()?,
        };
        self.intake.symbolize(lines)?;
        let triggers = self.intake.triggers.iter().map(|trigger| trigger.name.clone());
        let ending = Ending {
            counters: &stopped.counters,
            absent: self.absent_samples,
            held: self.intake.block_io.held(),
            triggers: triggers.collect(),
            end_boottime_ns: stopped.end_boottime_ns,
            idle_ns: stopped.idle_ns,
            collector_cpu_ns: stopped.status.collector_cpu_ns,
            resident_bytes: stopped.status.resident_bytes,
            unwind_bytes: stopped.unwind_bytes,
            python: self.intake.pythons.cost,
            notes: self.notes(),
        };
        let metadata = self.beginning.finish(&self.options, &ending).to_string();
        Ok(Finished {
            tables: self.intake.profile.tables(),
            metadata,
        })
    }

    /// Exact counts of page faults: of each process what the kernel has of its threads; of the whole machine the event's
    /// own, without the collector's.
    fn note_totals(&mut self, event_counts: &[u64]) -> Result<()> {
        let Some(faults) = self.programs.fault_totals.take() else {
            return Ok(());
        };
        let totals = faults.finish(|process| self.intake.processes.has_row(process))?;
        let own = if self.options.include_self {
            FaultCounts::default()
        } else {
            self.beginning.own_faults()
        };
        let has_targets = !self.options.pids.is_empty();
        for (event, trigger) in self.intake.triggers.iter().enumerate() {
            let Some(kind) = trigger.faults() else { continue };
            let whole = if has_targets {
                totals.all.of(kind)
            } else {
                event_counts[event].saturating_sub(own.of(kind))
            };
            for row in totals.rows(event as u16, kind, whole) {
                self.intake.profile.event_total(row);
            }
        }
        Ok(())
    }

    fn note_losses(&mut self, counters: &abi::Counters, unseen: u64) {
        let misses = self.programs.recursion_misses();
        let profile = &mut self.intake.profile;
        profile.loss(
            "ring full",
            counters.lost_ring_full,
            false,
            "samples that found no room in the ring",
        );
        let meaning = "records of programs that interrupted each other";
        profile.loss("nested", counters.lost_nested, false, meaning);
        let meaning = "combined samples that found no room in the ring";
        profile.loss("combined, ring full", counters.lost_ring_combined, false, meaning);
        let meaning = "samples of processes outside the recorder's PID namespace";
        profile.loss("process not visible", counters.lost_no_process, false, meaning);
        let meaning = "samples whose program the kernel did not run: nested in another program, or throttled";
        profile.loss("not run", unseen.max(misses), true, meaning);
        let meaning = "children that found no room in the filter";
        profile.loss("filter full", counters.targets_full, false, meaning);
        let meaning = "threads whose page faults are in no total, for want of room";
        profile.loss("fault totals", counters.uncounted_faults, false, meaning);
        let meaning = "programs whose command lines found no room: /proc was asked of those that were sampled";
        profile.loss("command lines", counters.untold_command_lines, false, meaning);
        let meaning = "records of new processes and mappings that found no room";
        profile.loss("process records", self.sideband.lost(), false, meaning);
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if let Some(error) = &self.failure {
            notes.push(format!("the recording was not whole: {error}"));
        }
        match self.intake.processes.gone() {
            0 => {}
            1 => notes.push("1 process ended before it could be looked at".into()),
            gone => notes.push(format!("{gone} processes ended before they could be looked at")),
        }
        notes.extend(self.intake.pythons.notes());
        if self.intake.changed_files {
            notes.push("a file was truncated while its symbols were read: some of its names are missing".into());
        }
        notes
    }
}

/// Sampling begins.
fn attach(programs: &mut Programs, options: &Options, online: &[u32]) -> Result<()> {
    programs.attach_missing(online)?;
    if options.off_cpu_event().is_some() {
        programs.attach_off_cpu(options)?;
    }
    if options.block_io_event().is_some() {
        programs.attach_block_io()?;
    }
    if let Some(library) = &options.heap_library {
        programs.attach_heap_library(library)?;
    }
    Ok(())
}

fn lost(counters: &abi::Counters) -> u64 {
    counters.lost_ring_full + counters.lost_ring_combined + counters.lost_nested + counters.lost_no_process
}
