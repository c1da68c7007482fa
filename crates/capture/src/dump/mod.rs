//! What every thread of some processes does now, while they go on.
//!
//! A thread that sleeps, is stopped or waits for a CPU has left its registers in the kernel: the iterator has its stack
//! walked from outside, and a stack counts only if the thread stood still meanwhile. One that is on a CPU is sampled
//! there, by the events and the program of a recording, or found asleep soon after: for each thread it is what came
//! first. So no thread is stopped, and each stack was that thread's at the moment that its sample is marked with.

mod record;
mod state;
mod ticks;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::abi;
use crate::cost;
use crate::cpus;
use crate::error::{Error, Result};
use crate::informer;
use crate::intake::Intake;
use crate::iterator::{Scope, ThreadIterator};
use crate::metadata::{Beginning, Ending};
use crate::options::{EventKind, EventSpec, Options, Sampling};
use crate::perf_event::{PERF_TYPE_SOFTWARE, Trigger};
use crate::programs;
use crate::raw_sample::RawSample;
use crate::recording::Finished;
use crate::setup;
use crate::targets::Targets;
use crate::unwind::Unwinder;
use crate::waker::Waker;
use record::Dumped;
use ticks::Ticks;

/// Between two looks at the threads that were on a CPU.
const ROUND: Duration = Duration::from_millis(2);
/// For so long; then a thread is shown without its stack. Only one that comes and goes within microseconds lasts.
const PATIENCE: Duration = Duration::from_millis(300);
/// Code objects are asked for so often, since there is no other time: some 20,000 of one process.
const MAX_TURNS: usize = 8;

/// Looks once, at all threads of `options.pids`.
pub fn dump(mut options: Options) -> Result<Finished> {
    setup::raise_open_files_limit();
    Targets::new(&options.pids)?;
    options.events = vec![once()];
    let mut dump = Dump::prepare(options)?;
    dump.look_at_all()?;
    dump.finish()
}

/// Whether the kernel can tell what threads do: tried out on this process.
pub fn try_out(options: &Options) -> Result<()> {
    let mut iterator = record::load(options, &[])?;
    iterator.read(Scope::Process(std::process::id())).map(drop)
}

/// A thread that was on a CPU when it was looked at.
struct Running {
    thread: abi::DumpedThread,
    header: abi::SampleHeader,
}

struct Dump {
    options: Options,
    iterator: ThreadIterator,
    intake: Intake,
    unwinder: Unwinder,
    beginning: Beginning,
    /// By thread id.
    running: BTreeMap<u32, Running>,
    notes: Vec<String>,
}

impl Dump {
    /// Everything that a stack needs is there when this returns: the processes' mappings, tables, interpreters.
    fn prepare(options: Options) -> Result<Self> {
        let online = cpus::online();
        let mut iterator = record::load(&options, &[])?;
        let mut intake = Intake::new(&options, vec![Trigger::settle(&options.events[0], &options, online[0])])?;
        setup::scan_first(&options, &mut intake);
        let waker = Waker::new().map_err(|error| Error::system("no eventfd for the dump", &error))?;
        let unwinder = informer::begin_unwinding(&options, iterator.unwind_maps(), &mut intake, waker)?;
        Ok(Self {
            options,
            iterator,
            intake,
            unwinder,
            beginning: Beginning::now(),
            running: BTreeMap::new(),
            notes: Vec::new(),
        })
    }

    fn look_at_all(&mut self) -> Result<()> {
        for pid in self.options.pids.clone() {
            self.look(Scope::Process(pid))?;
        }
        if !self.running.is_empty() {
            self.wait_for_running()?;
        }
        for Running { thread, header } in std::mem::take(&mut self.running).into_values() {
            self.store(&thread, &without_stack(header), false);
        }
        Ok(())
    }

    fn wait_for_running(&mut self) -> Result<()> {
        let mut ticks = Ticks::begin(&self.options, self.iterator.shared_maps())?;
        let deadline = Instant::now() + PATIENCE;
        while !self.running.is_empty() && Instant::now() < deadline {
            std::thread::sleep(ROUND);
            self.take(&mut ticks);
            for tid in self.running.keys().copied().collect::<Vec<_>>() {
                self.look(Scope::Thread(tid))?;
            }
        }
        Ok(())
    }

    /// Looks at threads, and stores those that stood still.
    fn look(&mut self, scope: Scope) -> Result<()> {
        let answer = self.iterator.read(scope)?;
        self.running.retain(|tid, running| !scope.has(*tid, &running.header)); // those that still run are told again
        let Some(words) = answer else {
            return self.give_up(scope);
        };
        let found: Vec<Dumped<'_>> = record::parse(&words).collect();
        for _ in 0..MAX_TURNS {
            let Intake { pythons, profile, .. } = &mut self.intake;
            pythons.begin_turn();
            pythons.forget_put_off();
            pythons.learn(found.iter().map(|dumped| dumped.sample), profile);
            if !pythons.has_put_off() {
                break;
            }
        }
        for Dumped { thread, sample } in found {
            if thread.has_run == 0 {
                self.store(&thread, &sample, true);
            } else {
                let header = sample.header;
                self.running.insert(header.tid, Running { thread, header });
            }
        }
        Ok(())
    }

    /// Somebody is still waiting for the answer, with the iterator's memory: the next look is another one's.
    fn give_up(&mut self, scope: Scope) -> Result<()> {
        let why = "its memory takes too long to read";
        self.notes.push(format!("{scope} cannot be looked at: {why}"));
        self.iterator = record::load(&self.options, &self.iterator.shared_maps())?;
        Ok(())
    }

    /// Stores the samples of threads that were on a CPU.
    fn take(&mut self, ticks: &mut Ticks) {
        let rings = ticks.look();
        let Self { intake, running, .. } = self;
        intake.pythons.begin_turn();
        intake.pythons.learn(rings.found(), &mut intake.profile);
        rings.take(|sample| {
            if let Some(Running { thread, .. }) = running.remove(&sample.header.tid) {
                intake.store(&sample);
                intake.profile.thread_state(state::describe(&thread, true));
            }
        });
    }

    fn store(&mut self, thread: &abi::DumpedThread, sample: &RawSample<'_>, has_stack: bool) {
        self.intake.store(sample);
        self.intake.profile.thread_state(state::describe(thread, has_stack));
    }

    fn finish(mut self) -> Result<Finished> {
        let ending = Ending {
            counters: &programs::no_counters(), // of what is recorded while time passes
            absent: 0,
            held: 0,
            triggers: vec![self.options.events[0].name.clone()],
            end_boottime_ns: cost::boottime_ns(),
            idle_ns: self.beginning.idle().ns,
            collector_cpu_ns: self.beginning.collector_cpu_ns(),
            resident_bytes: cost::resident_bytes(),
            unwind_bytes: self.unwinder.memory_bytes(),
            python: self.intake.pythons.cost,
            notes: self.notes(),
        };
        let mut metadata = self.beginning.finish(&self.options, &ending);
        metadata["pythons"] = self.pythons();
        self.intake.symbolize(true)?;
        Ok(Finished {
            tables: self.intake.profile.tables(),
            metadata: metadata.to_string(),
        })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        notes.extend(self.unwinder.lacks());
        notes.extend(self.intake.pythons.notes());
        notes
    }

    /// The version of each process's interpreter.
    fn pythons(&self) -> Value {
        let versions = self.intake.pythons.versions();
        let by_pid: Map<String, Value> = versions
            .map(|(pid, version)| (pid.to_string(), json!(version.to_string())))
            .collect();
        by_pid.into()
    }
}

/// What a dump's samples are of.
fn once() -> EventSpec {
    EventSpec {
        name: "dump".into(),
        unit: "count".into(),
        kind: EventKind::Perf(PERF_TYPE_SOFTWARE),
        config: [0; 3], // the CPU clock
        sampling: Sampling::Period(1),
        tracepoint: None,
        exclude_kernel: false,
        exclude_user: false,
    }
}

fn without_stack(header: abi::SampleHeader) -> RawSample<'static> {
    RawSample {
        last_ns: header.boottime_ns,
        header,
        kernel: &[],
        user: &[],
        python: None,
        count: 1,
        address: None,
        fault: None,
        off_cpu: None,
        waking: None,
        block_step: None,
        heap_step: None,
        departure: None,
    }
}
