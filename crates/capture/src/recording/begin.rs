//! How a recording begins: everything is loaded and read, then sampling starts.

use std::time::Instant;

use super::waiting::Waiting;
use super::{MANY_SAMPLES, Recording, possible};
use crate::absent::Absent;
use crate::allocators::Allocators;
use crate::block_io::BlockIoPace;
use crate::bpf_objects::possible_cpus;
use crate::combining::Combining;
use crate::cpus;
use crate::drain::{Layout, Rings};
use crate::error::{Error, ErrorKind, Result};
use crate::fault_times;
use crate::fault_totals;
use crate::informer;
use crate::intake::Intake;
use crate::kernel_features::{kernel_can_unwind, kernel_tells_arrivals};
use crate::metadata::Beginning;
use crate::off_cpu::OffCpuPace;
use crate::options::Options;
use crate::perf_event::Trigger;
use crate::programs::Programs;
use crate::setup;
use crate::sideband::Sideband;
use crate::targets::Targets;
use crate::waker::Waker;

impl Recording {
    pub fn begin(mut options: Options, waker: Waker) -> Result<Self> {
        setup::raise_open_files_limit();
        let targets = Targets::new(&options.pids)?;
        let online = cpus::online();
        let mut notes = possible::leave_out_missing(&mut options, online[0])?;
        notes.extend(settle_for_less(&mut options));
        let (mut programs, layout, triggers) = load_possible(&mut options, &online, &mut notes)?;
        let rings = Rings::new(programs.rings(), layout, &online)?;
        let sideband =
            Sideband::open(&online).map_err(|error| Error::system("processes cannot be followed", &error))?;
        let new_programs = programs.new_programs()?;
        let combining = begin_combining(&mut programs)?;
        let mut intake = Intake::new(&options, triggers)?;
        let unscanned = setup::scan_first(&options, &mut intake);
        let unwinder = (options.unwind)
            .then(|| informer::begin_unwinding(&options, programs.unwind_maps(), &mut intake, waker.clone()))
            .transpose()?;
        let off_cpu = OffCpuPace::begin(&options, online.len(), &mut programs)?;
        let absent = match &off_cpu {
            Some(_) => load_absent(&options, &intake.triggers, &mut programs, &mut notes)?,
            None => None,
        };
        let block_io = BlockIoPace::begin(&options, online.len(), &mut programs)?;
        let beginning = Beginning::now();
        attach(&mut programs, &options, &online, &mut notes)?;
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
}

/// What this kernel cannot do is done as well as it can be. Returns what is to be said of it.
fn settle_for_less(options: &mut Options) -> Vec<String> {
    let mut notes = Vec::new();
    if options.unwind && !kernel_can_unwind() {
        options.unwind = false;
        notes.push("user stacks by frame pointers only: unwind tables need Linux 5.17".into());
    }
    options.off_cpu_at_departure |= options.off_cpu_event().is_some() && !kernel_tells_arrivals();
    notes
}

/// The programs, and the events that run them as this machine has them.
type Loaded = (Programs, Layout, Vec<Trigger>);

/// Without the events whose programs this kernel does not take, if others remain.
fn load_possible(options: &mut Options, online: &[u32], notes: &mut Vec<String>) -> Result<Loaded> {
    let error = match load(options, online, notes) {
        Err(error) if error.kind == ErrorKind::Kernel => error,
        tried => return tried,
    };
    let left_out = possible::leave_out_failing(options, |one| load(one, online, &mut Vec::new()).map(drop));
    if left_out.is_empty() {
        return Err(error);
    }
    notes.extend(left_out);
    load(options, online, notes)
}

fn load(options: &Options, online: &[u32], notes: &mut Vec<String>) -> Result<Loaded> {
    let settle = |event| Trigger::settle(event, options, online[0]);
    let mut triggers: Vec<Trigger> = options.events.iter().map(settle).collect();
    let hooks = options.hooks().len();
    let layout = Layout::new(setup::ring_bytes(options), possible_cpus()?, online, hooks);
    let programs = Programs::load(options, triggers.clone(), &layout)?;
    notes.extend(fault_totals::lack(&triggers));
    if programs.fault_times.is_some() {
        triggers.iter_mut().for_each(Trigger::note_timing);
    } else if fault_times::are_wanted(options, &triggers) {
        notes.push("page faults are not timed: this kernel lets no program look at its functions (fentry)".into());
    }
    Ok((programs, layout, triggers))
}

fn begin_combining(programs: &mut Programs) -> Result<Option<Combining>> {
    let slots = programs.combine_slots();
    (slots > 0)
        .then(|| Combining::new(programs.combining(), slots))
        .transpose()
}

fn load_absent(
    options: &Options,
    triggers: &[Trigger],
    programs: &mut Programs,
    notes: &mut Vec<String>,
) -> Result<Option<Absent>> {
    let why = match Absent::load(options, triggers, programs) {
        Ok(Some(absent)) => return Ok(Some(absent)),
        Ok(None) => "--cgroup, --call-graph fp".into(),
        Err(error) if error.kind == ErrorKind::Kernel => error.to_string(),
        Err(error) => return Err(error),
    };
    notes.push(format!("threads that were off the CPU all along are missing: {why}"));
    Ok(None)
}

/// Sampling begins.
fn attach(programs: &mut Programs, options: &Options, online: &[u32], notes: &mut Vec<String>) -> Result<()> {
    programs.attach_missing(online)?;
    if let Some(event) = options.off_cpu_event() {
        possible::unless_alone(options, event, programs.attach_off_cpu(options), notes)?;
    }
    if let Some(event) = options.block_io_event() {
        possible::unless_alone(options, event, programs.attach_block_io(), notes)?;
    }
    if let Some(library) = &options.heap_library {
        programs.attach_heap_library(library)?;
    }
    Ok(())
}
