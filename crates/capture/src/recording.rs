//! A recording, turn by turn, from its beginning to its tables.

mod begin;
mod end;
mod possible;
mod waiting;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;

use crate::abi;
use crate::absent::Absent;
use crate::allocators::Allocators;
use crate::block_io::BlockIoPace;
use crate::board::{Board, WaitOutcome};
use crate::combining::Combining;
use crate::cost;
use crate::cpus;
use crate::drain::Rings;
use crate::error::{Error, Result};
use crate::informer;
use crate::intake::Intake;
use crate::metadata::Beginning;
use crate::new_programs::NewPrograms;
use crate::off_cpu::OffCpuPace;
use crate::options::Options;
use crate::programs::Programs;
use crate::sideband::{ProcessEvent, Sideband};
use crate::targets::Targets;
use crate::unwind::Unwinder;
use crate::waker::Waker;
use end::Stopped;
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

impl Recording {
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
        self.intake.pythons.begin_turn();
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
        intake.pythons.begin_turn();
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
}

fn lost(counters: &abi::Counters) -> u64 {
    counters.lost_ring_full + counters.lost_ring_combined + counters.lost_nested + counters.lost_no_process
}
