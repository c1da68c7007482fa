//! A recording from start to finish: one thread owns the programs, drains them on a timer, and answers requests.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use stackhound_core::symbolize::MissingDebugFile;

use crate::abi;
use crate::combining::Combining;
use crate::cost;
use crate::cpus;
use crate::drain::{Layout, Rings};
use crate::error::{Error, ErrorKind, Result};
use crate::intake::Intake;
use crate::metadata::{Beginning, Ending};
use crate::options::Options;
use crate::pace::{MIN_TURN, Pace};
use crate::perf_event::Trigger;
use crate::processes::Known;
use crate::procfs;
use crate::programs::{Programs, kernel_can_unwind, possible_cpus};
use crate::sideband::{ProcessEvent, Sideband};
use crate::sigbus::Guard;
use crate::targets::Targets;
use crate::tracefs::Tracefs;
use crate::unwind::Unwinder;
use crate::waker::Waker;

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

/// Why `Session::wait` came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The time is over.
    Timeout,
    /// Every process that was to be recorded has ended.
    TargetsExited,
    /// The recording broke off; `finish` tells why.
    Failed,
}

enum Request {
    AddTarget(u32, Sender<Result<()>>),
    Take(bool, Sender<Result<Tables>>),
    Stop(bool, Sender<Result<Vec<MissingDebugFile>>>),
    Finish(bool, Sender<Result<Finished>>),
}

#[derive(Default)]
struct Shared {
    status: Status,
    outcome: Option<WaitOutcome>,
}

type Board = Arc<(Mutex<Shared>, Condvar)>;

/// A running recording. Dropping it ends it.
pub struct Session {
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    board: Board,
    waker: Waker,
}

impl Session {
    /// Loads, attaches, begins sampling.
    pub fn start(options: Options) -> Result<Self> {
        let (requests, inbox) = mpsc::channel();
        let (started, ready) = mpsc::channel();
        let board = Board::default();
        let waker = Waker::new().map_err(|error| Error::system("no eventfd for the recording", &error))?;
        let (their_board, their_waker) = (Arc::clone(&board), waker.clone());
        let thread = std::thread::Builder::new()
            .name("stackhound".into())
            .spawn(move || run(options, &inbox, &started, &their_board, their_waker))
            .map_err(|error| Error::system("no thread for the recording", &error))?;
        let session = Self {
            requests: Some(requests),
            thread: Some(thread),
            board,
            waker,
        };
        ready.recv().unwrap_or_else(|_| Err(broken_off()))?;
        Ok(session)
    }

    /// Waits for the targets' end, for at most this long.
    pub fn wait(&self, timeout: Duration) -> WaitOutcome {
        let (shared, changed) = &*self.board;
        let deadline = Instant::now() + timeout;
        let mut guard = lock(shared);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match guard.outcome {
                Some(outcome) => return outcome,
                None if left.is_zero() => return WaitOutcome::Timeout,
                None => {
                    guard = changed
                        .wait_timeout(guard, left)
                        .map_or_else(|bad| bad.into_inner().0, |(g, _)| g)
                }
            }
        }
    }

    /// How it is doing, as of the last drain.
    pub fn status(&self) -> Status {
        lock(&self.board.0).status
    }

    /// Lets a process into the filter.
    pub fn add_target(&self, pid: u32) -> Result<()> {
        self.ask(|reply| Request::AddTarget(pid, reply))?
    }

    /// What is new since the last take, symbolized.
    pub fn take(&self, lines: bool) -> Result<Tables> {
        self.ask(|reply| Request::Take(lines, reply))?
    }

    /// Stops and drains. Returns the files whose debug files are not on this machine.
    pub fn stop(&self, lines: bool) -> Result<Vec<MissingDebugFile>> {
        self.ask(|reply| Request::Stop(lines, reply))?
    }

    /// Stops, if it has not been stopped, and symbolizes.
    pub fn finish(mut self, lines: bool) -> Result<Finished> {
        let finished = self.ask(|reply| Request::Finish(lines, reply))?;
        self.end();
        finished
    }

    fn ask<T>(&self, request: impl FnOnce(Sender<T>) -> Request) -> Result<T> {
        let (reply, answer) = mpsc::channel();
        let requests = self.requests.as_ref().ok_or_else(broken_off)?;
        requests.send(request(reply)).map_err(|_| broken_off())?;
        self.waker.wake();
        answer.recv().map_err(|_| broken_off())
    }

    fn end(&mut self) {
        self.requests = None;
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A panic there has printed itself, and `ask` has reported it.
            let _ = thread.join();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

fn broken_off() -> Error {
    Error::new(
        ErrorKind::Recording,
        "the recording broke off",
        "run it again with -vvv and report what it prints",
    )
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The thread: set up, then drain and answer until told to finish or left alone.
fn run(options: Options, inbox: &Receiver<Request>, started: &Sender<Result<()>>, board: &Board, waker: Waker) {
    let mut recording = match Recording::begin(options, waker) {
        Ok(recording) => recording,
        Err(error) => {
            let _ = started.send(Err(error)); // nobody listens only when nobody is there to be told
            return;
        }
    };
    recording.report(board);
    if started.send(Ok(())).is_err() {
        return;
    }
    recording.beginning.calibrate();
    loop {
        match next_request(inbox, recording.stopped.is_some()) {
            Ok(Request::AddTarget(pid, reply)) => {
                let _ = reply.send(recording.add_target(pid));
            }
            Ok(Request::Take(lines, reply)) => {
                let _ = reply.send(recording.take(lines));
            }
            Ok(Request::Stop(lines, reply)) => {
                let _ = reply.send(recording.stop_and_look(lines));
            }
            Ok(Request::Finish(lines, reply)) => {
                let _ = reply.send(recording.finish(lines));
                return;
            }
            Err(mpsc::TryRecvError::Disconnected) => return,
            Err(mpsc::TryRecvError::Empty) => recording.turn(board),
        }
    }
}

/// A recording that was stopped has nothing to do but wait.
fn next_request(inbox: &Receiver<Request>, waits: bool) -> std::result::Result<Request, mpsc::TryRecvError> {
    if waits {
        inbox.recv().map_err(|_| mpsc::TryRecvError::Disconnected)
    } else {
        inbox.try_recv()
    }
}

/// The first sample may wait so long for the tables of the processes that are recorded; without them it is marked.
const PREPARATION: Duration = Duration::from_secs(2);
/// The same for those that are running when the system is recorded.
const PREPARATION_OF_SYSTEM: Duration = Duration::from_millis(100);
/// From the first sign of a change to the turn that looks at it: a new program maps its libraries within it.
const GATHERING: Duration = Duration::from_millis(5);
/// Between two drains when no process changes. The rings hold a second of ordinary stacks, half a second of the longest
/// ones.
const DRAIN_INTERVAL: Duration = Duration::from_millis(400);
/// The same while samples show Python code that was not seen before: it must be read before its process ends.
const NEWS_INTERVAL: Duration = Duration::from_millis(40);
/// The same for more than 1,000 Hz, where no ring is made large enough.
const FAST_DRAIN_INTERVAL: Duration = Duration::from_millis(100);
/// A turn reads at most this many processes that ran before, so that the ring is drained in between.
const SCANS_PER_TURN: usize = 64;
/// New CPUs, the combining cache and ended processes are looked after this often.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(1);
/// The status on the board is at most this old; it takes a few system calls.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

struct Recording {
    options: Options,
    programs: Programs,
    rings: Rings,
    combining: Option<Combining>,
    sideband: Sideband,
    targets: Targets,
    waker: Waker,
    beginning: Beginning,
    intake: Intake,
    unwinder: Option<Unwinder>,
    pace: Pace,
    pending: Vec<ProcessEvent>,
    unscanned: VecDeque<u32>,
    failure: Option<Error>,
    notes: Vec<String>,
    kept_up: Instant,
    reported: Option<Instant>,
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
    fn begin(mut options: Options, waker: Waker) -> Result<Self> {
        raise_open_files_limit();
        let targets = Targets::new(&options.pids)?;
        resolve_tracepoints(&mut options)?;
        let mut notes = Vec::new();
        if options.unwind && !kernel_can_unwind() {
            options.unwind = false;
            notes.push("user stacks by frame pointers only: unwind tables need Linux 5.17".into());
        }
        let online = cpus::online();
        let settle = |event| Trigger::settle(event, &options, online[0]);
        let triggers: Vec<Trigger> = options.events.iter().map(settle).collect();
        let layout = Layout::new(ring_bytes(&options), possible_cpus()?, &online);
        let mut programs = Programs::load(&options, triggers.clone(), &layout)?;
        let rings = Rings::new(programs.rings(), layout, &online)?;
        let sideband =
            Sideband::open(&online).map_err(|error| Error::system("processes cannot be followed", &error))?;
        let slots = programs.combine_slots();
        let combining = (slots > 0)
            .then(|| Combining::new(programs.combining(), slots))
            .transpose()?;
        let mut intake = Intake::new(&options, triggers)?;
        let unscanned = scan_first(&options, &mut intake);
        let unwinder = (options.unwind)
            .then(|| begin_unwinding(&options, &mut programs, &mut intake, waker.clone()))
            .transpose()?;
        let beginning = Beginning::now();
        programs.attach_missing(&online)?;
        Ok(Self {
            options,
            programs,
            rings,
            combining,
            sideband,
            targets,
            waker,
            beginning,
            intake,
            unwinder,
            pace: Pace::default(),
            pending: Vec::new(),
            unscanned: unscanned.into(),
            failure: None,
            notes,
            kept_up: Instant::now(),
            reported: None,
            stopped: None,
        })
    }

    /// One turn: wait, then everything that is due.
    fn turn(&mut self, board: &Board) {
        self.wait();
        let lately_ns = cost::boottime_ns().saturating_sub(MIN_TURN.as_nanos() as u64);
        self.intake.processes.look_at_new(lately_ns, &mut self.intake.profile);
        self.drain();
        self.scan_some();
        if let Err(error) = self.inform_walker() {
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

    fn inform_walker(&mut self) -> Result<()> {
        if let Some(unwinder) = &mut self.unwinder {
            unwinder.serve(&self.intake.files);
            publish(unwinder, &mut self.intake, !self.options.pids.is_empty())?;
            if self.options.python {
                find_pythons(unwinder, &mut self.intake);
            }
        }
        Ok(())
    }

    fn wait(&mut self) {
        if !self.unscanned.is_empty() {
            return;
        }
        let begun = Instant::now();
        let interval = match self.options.drain_interval {
            _ if self.intake.processes.has_new() => MIN_TURN,
            _ if self.intake.pythons.has_news() => NEWS_INTERVAL,
            Some(interval) => interval,
            None if self.options.fastest_hz() > 1_000 => FAST_DRAIN_INTERVAL,
            None => DRAIN_INTERVAL,
        };
        let until_python = (self.intake.pythons.due()).map(|due| due.saturating_duration_since(begun));
        let interval = until_python.map_or(interval, |until| interval.min(until));
        let others = self.sideband.fds().chain([self.waker.fd()]);
        let others = others.chain(self.unwinder.as_ref().map(Unwinder::fd));
        self.targets.wait(others, interval);
        if !self.targets.have_ended() {
            let pause = self.pace.pause().min(interval);
            let left = interval.saturating_sub(begun.elapsed());
            self.waker
                .wait(pause.saturating_sub(begun.elapsed()).max(GATHERING.min(left)));
        }
        self.waker.clear();
    }

    /// Samples first, then what processes did: whatever a sample depends on was written before it. What happened
    /// after this began waits for the next turn, whose samples may be older.
    fn drain(&mut self) {
        let began_ns = cost::boottime_ns();
        self.rings.look();
        self.sideband.consume(&mut self.pending);
        self.pending.sort_by_key(|event| event.time_ns);
        self.intake.pythons.learn(self.rings.found(), &mut self.intake.profile);
        let due = self.pending.partition_point(|event| event.time_ns < began_ns);
        let mut events = self.pending.drain(..due).peekable();
        let intake = &mut self.intake;
        self.rings.take(|sample| {
            while let Some(event) = events.next_if(|event| event.time_ns <= sample.header.boottime_ns) {
                intake.apply(event);
            }
            intake.store(&sample);
        });
        events.for_each(|event| intake.apply(event));
    }

    fn scan_some(&mut self) {
        let now_ns = cost::boottime_ns();
        for pid in self.unscanned.drain(..SCANS_PER_TURN.min(self.unscanned.len())) {
            self.intake.processes.scan(pid, &mut self.intake.files, now_ns);
        }
    }

    fn keep_up(&mut self) -> Result<()> {
        self.intake.processes.forget_ended(cost::boottime_ns());
        self.keep_up_unwinding()?;
        let online = cpus::online();
        let gone = self.programs.detach_lost_cpus(&online);
        self.sideband.drop_cpus(&gone);
        self.rings.add_missing(&online)?;
        let follow = self.sideband.follow(&online);
        follow.map_err(|error| Error::system("processes cannot be followed on a new CPU", &error))?;
        self.programs.attach_missing(&online)?;
        self.flush()
    }

    fn keep_up_unwinding(&mut self) -> Result<()> {
        let Some(unwinder) = &mut self.unwinder else {
            return Ok(());
        };
        unwinder.keep_up();
        let _guard = Guard::new().map_err(|error| Error::system("SIGBUS cannot be caught", &error))?;
        for pid in unwinder.read_made_code(&self.intake.files) {
            self.intake.processes.mark_changed(pid);
        }
        Ok(())
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

    fn report(&mut self, board: &Board) {
        let outcome = self.outcome();
        if outcome.is_none() && self.reported.is_some_and(|at| at.elapsed() < STATUS_INTERVAL) {
            return;
        }
        self.reported = Some(Instant::now());
        let status = self.status();
        let (shared, changed) = &**board;
        *lock(shared) = Shared { status, outcome };
        if outcome.is_some() {
            changed.notify_all();
        }
    }

    fn outcome(&self) -> Option<WaitOutcome> {
        match self.failure {
            Some(_) => Some(WaitOutcome::Failed),
            None => self.targets.have_ended().then_some(WaitOutcome::TargetsExited),
        }
    }

    fn status(&mut self) -> Status {
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

    fn add_target(&mut self, pid: u32) -> Result<()> {
        self.targets.add(pid)?;
        self.intake
            .processes
            .scan(pid, &mut self.intake.files, cost::boottime_ns());
        self.programs.add_target(pid, abi::TARGET_SAMPLED)?;
        self.options.pids.push(pid);
        Ok(())
    }

    fn take(&mut self, lines: bool) -> Result<Tables> {
        self.drain();
        self.intake.symbolize(lines)?;
        Ok(self.intake.profile.take_new())
    }

    fn stop_and_look(&mut self, lines: bool) -> Result<Vec<MissingDebugFile>> {
        if self.stopped.is_none() {
            self.stopped = Some(self.stop()?);
        }
        self.intake.missing_debug_files(lines)
    }

    fn stop(&mut self) -> Result<Stopped> {
        let status = self.status();
        let counters = self.programs.counters();
        let idle_ns = self.beginning.idle_ns();
        let unseen = self.programs.unseen_entries(&counters, idle_ns);
        self.drain();
        let now_ns = cost::boottime_ns();
        self.intake.processes.look_at_new(now_ns, &mut self.intake.profile);
        self.programs.detach();
        let end_boottime_ns = cost::boottime_ns();
        let unwind_bytes = self.unwinder.as_ref().map_or(0, Unwinder::memory_bytes);
        self.notes.extend(self.unwinder.iter().flat_map(Unwinder::lacks));
        self.unwinder = None; // its threads would only be in the way
        self.drain();
        self.flush()?;
        self.drain(); // what waited in `pending`, so that the last exits are noted
        let counters = self.programs.counters();
        self.note_losses(&counters, unseen);
        Ok(Stopped {
            counters,
            status,
            end_boottime_ns,
            idle_ns,
            unwind_bytes,
        })
    }

    fn finish(&mut self, lines: bool) -> Result<Finished> {
        let stopped = match self.stopped.take() {
            Some(stopped) => stopped,
            None => self.stop()?,
        };
        self.intake.symbolize(lines)?;
        let triggers = self.intake.triggers.iter().map(|trigger| trigger.name.clone());
        let ending = Ending {
            counters: &stopped.counters,
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

    fn note_losses(&mut self, counters: &abi::Counters, unseen: u64) {
        let misses = self.programs.recursion_misses();
        let profile = &mut self.intake.profile;
        profile.loss(
            "ring full",
            counters.lost_ring_full,
            false,
            "samples that found no room in the ring",
        );
        let meaning = "combined samples that found no room in the ring";
        profile.loss("combined, ring full", counters.lost_ring_combined, false, meaning);
        let meaning = "samples of processes outside the recorder's PID namespace";
        profile.loss("process not visible", counters.lost_no_process, false, meaning);
        let meaning = "samples whose program the kernel did not run: nested in another program, or throttled";
        profile.loss("not run", unseen.max(misses), true, meaning);
        let meaning = "children that found no room in the filter";
        profile.loss("filter full", counters.targets_full, false, meaning);
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

/// Reads the processes that the first samples will be of, and says which are left: they have time.
fn scan_first(options: &Options, intake: &mut Intake) -> Vec<u32> {
    let now_ns = cost::boottime_ns();
    let all = if options.pids.is_empty() {
        procfs::pids()
    } else {
        Vec::new()
    };
    for pid in options.pids.iter().chain(&procfs::running(&all)) {
        intake.processes.scan(*pid, &mut intake.files, now_ns);
    }
    all
}

/// The processes that were read have their tables, mostly, when this returns.
fn begin_unwinding(options: &Options, programs: &mut Programs, intake: &mut Intake, waker: Waker) -> Result<Unwinder> {
    let mut unwinder = Unwinder::new(programs.unwind_maps(), waker)?;
    publish(&mut unwinder, intake, true)?;
    unwinder.wait_for_tables(if options.pids.is_empty() {
        PREPARATION_OF_SYSTEM
    } else {
        PREPARATION
    });
    if options.python {
        find_pythons(&mut unwinder, intake);
    }
    Ok(unwinder)
}

/// Tells the walker what changed in the mappings of processes. `with_tables`: has their tables made, too, before the
/// walker misses them.
fn publish(unwinder: &mut Unwinder, intake: &mut Intake, with_tables: bool) -> Result<()> {
    let _guard = Guard::new().map_err(|error| Error::system("SIGBUS cannot be caught", &error))?;
    let Intake {
        processes,
        files,
        pythons,
        ..
    } = intake;
    for (pid, became_other, known) in processes.take_changed() {
        if became_other {
            unwinder.clear(pid);
            pythons.forget(pid);
        }
        match known {
            Known::Mappings(mappings) => {
                if with_tables {
                    unwinder.prepare(mappings, files);
                }
                unwinder.publish(pid, mappings, files);
                pythons.follow(pid, mappings);
            }
            Known::Gone => {
                unwinder.forget(pid);
                pythons.forget(pid);
            }
        }
    }
    Ok(())
}

/// Tells the walker of the interpreters of Python that are there by now.
fn find_pythons(unwinder: &mut Unwinder, intake: &mut Intake) {
    let Intake { processes, pythons, .. } = intake;
    let found = unwinder.take_interpreters();
    if !found.is_empty() {
        for (file, interpreter) in found {
            pythons.add_interpreter(file, interpreter);
        }
        processes.each(|pid, mappings| pythons.follow(pid, mappings));
    }
    pythons.attach(unwinder);
}

fn lost(counters: &abi::Counters) -> u64 {
    counters.lost_ring_full + counters.lost_ring_combined + counters.lost_no_process
}

/// Of each CPU: a second's worth of records of 1 KiB, 128 KiB to 2 MiB. Linux 5.10 takes no value of 4 MiB or more.
fn ring_bytes(options: &Options) -> usize {
    const RECORD_BYTES: u64 = 1024;
    const PAGE_BYTES: usize = 4096;
    let wanted = match options.ring_bytes {
        Some(bytes) => bytes.max(PAGE_BYTES),
        None => (options.fastest_hz() * RECORD_BYTES).clamp(128 << 10, 2 << 20) as usize,
    };
    wanted.next_power_of_two().min(1 << 30)
}

/// Tracepoints have numbers of their own on every machine.
fn resolve_tracepoints(options: &mut Options) -> Result<()> {
    let mut tracefs = None;
    for event in &mut options.events {
        let Some(name) = &event.tracepoint else { continue };
        if tracefs.is_none() {
            tracefs = Some(Tracefs::open().map_err(|error| Error::system("tracefs cannot be read", &error))?);
        }
        let id = tracefs.as_ref().map(|tracefs| tracefs.id(name));
        event.config[0] = id.and_then(|id| id.ok()).ok_or_else(|| {
            let message = format!("this machine has no tracepoint {name}");
            Error::new(ErrorKind::Event, message, "'stackhound list' shows what there is")
        })?;
    }
    Ok(())
}

/// Each mapped file is held by a descriptor: the soft limit goes up to the hard one.
fn raise_open_files_limit() {
    // SAFETY: a struct of our own, filled and handed back.
    unsafe {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
