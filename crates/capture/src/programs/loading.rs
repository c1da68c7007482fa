//! How the BPF programs are configured and loaded: those that have something to do, and maps as large as they need.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, Object, OpenObject, ProgramMut};

use super::Programs;
use crate::abi;
use crate::block_tracepoints::BlockTracepoints;
use crate::bpf_objects::{bpf_error, find_map, open, open_map, possible_cpus, print_above};
use crate::configuration::{bits_of, configure, wanted_block_tracepoints};
use crate::drain::Layout;
use crate::error::{Error, ErrorKind, Result};
use crate::fault_times::{self, FaultTimes};
use crate::fault_totals::{self, FaultTotals};
use crate::kernel_features::kernel_has_callbacks;
use crate::options::Options;
use crate::orc;
use crate::perf_event::Trigger;

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/programs.bpf.o"));
static PROGRAMS_BEFORE_5_13: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/before_5_13.bpf.o"));

/// Two tables of the combining cache, all CPUs together, stay below this.
const COMBINING_BYTES: usize = 32 << 20;
const MAX_COMBINING_SLOTS: usize = 1024;

/// That are in use at once, where allocators are watched: 128 GiB at the default interval.
const CHOSEN_ALLOCATIONS: u32 = 1 << 18;

impl Programs {
    /// Loads everything; nothing runs yet.
    pub fn load(options: &Options, triggers: Vec<Trigger>, rings: &Layout) -> Result<Self> {
        Self::load_with(options, triggers, rings, Vec::new())
    }

    /// The same, with maps that others have made, by name.
    pub fn load_with(
        options: &Options,
        triggers: Vec<Trigger>,
        rings: &Layout,
        mut shared: Vec<(&'static str, MapHandle)>,
    ) -> Result<Self> {
        print_above(options.log_level);
        let combine_slots = if options.aggregate { combining_slots()? } else { 0 };
        let mut config = configure(options, &triggers, rings, combine_slots);
        let kernel_tables = orc::find_tables(options);
        if kernel_tables.is_some() {
            config.kernel_walk = options.kernel_walk as u8;
        }
        let mut fault_times = begin_fault_times(options, &triggers, &mut config);
        shared.extend(fault_times.iter_mut().flat_map(FaultTimes::maps));
        let mut object = load(&config, rings, options, &triggers, &shared)?;
        if let Some(tables) = kernel_tables {
            orc::tell_tables(&mut find_map(&mut object, "orc_tables"), &tables)?;
        }
        let followers = attach_followers(&mut object)?;
        let counted = vec![0; triggers.len()];
        let mut programs = Self {
            attachments: Vec::new(),
            hooks: Vec::new(),
            _followers: followers,
            fault_totals: None,
            fault_times,
            object,
            settings: abi::Settings {
                off_cpu_period_ns: 0,
                block_io_period: 1,
                heap_window: 0,
            },
            triggers,
            counted,
            combine_slots,
        };
        programs.restrict(options)?;
        if fault_totals::are_wanted(options, &programs.triggers) {
            programs.fault_totals = Some(FaultTotals::begin(&mut programs.object)?);
        }
        Ok(programs)
    }

    /// Puts the wanted processes and the wanted cgroup into the filter.
    fn restrict(&mut self, options: &Options) -> Result<()> {
        for pid in &options.pids {
            let is_held = options.held_pids.contains(pid);
            self.add_target(*pid, if is_held { abi::TARGET_HELD } else { abi::TARGET_SAMPLED })?;
        }
        if let Some(path) = &options.cgroup {
            let directory = File::open(path).map_err(|error| {
                Error::new(
                    ErrorKind::Usage,
                    format!("{}: {error}", path.display()),
                    "give a cgroup v2 directory",
                )
            })?;
            let fd = directory.as_raw_fd() as u32;
            self.map("cgroups")
                .update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
                .map_err(|_| {
                    let message = format!("{} is no cgroup v2 directory", path.display());
                    Error::new(ErrorKind::Usage, message, "give one below the cgroup2 mount")
                })?;
        }
        Ok(())
    }
}

/// None where nobody asks. Where the kernel refuses, faults are sampled all the same.
fn begin_fault_times(options: &Options, triggers: &[Trigger], config: &mut abi::Config) -> Option<FaultTimes> {
    if !fault_times::are_wanted(options, triggers) {
        return None;
    }
    let fault_times = FaultTimes::begin(config).ok()?;
    config.timed_faults = bits_of(triggers, |trigger| trigger.faults().is_some());
    Some(fault_times)
}

fn combining_slots() -> Result<usize> {
    let each = COMBINING_BYTES / (2 * possible_cpus()? * size_of::<abi::Combined>());
    Ok(prev_power_of_two(each).clamp(16, MAX_COMBINING_SLOTS))
}

fn prev_power_of_two(number: usize) -> usize {
    if number == 0 { 0 } else { 1 << number.ilog2() }
}

fn load(
    config: &abi::Config,
    rings: &Layout,
    options: &Options,
    triggers: &[Trigger],
    shared: &[(&str, MapHandle)],
) -> Result<Object> {
    let programs = match kernel_has_callbacks() {
        true => PROGRAMS,
        false => PROGRAMS_BEFORE_5_13,
    };
    let mut object = open(programs, config)?;
    let mut map = open_map(&mut object, "rings");
    map.set_max_entries(rings.rings() as u32)
        .and_then(|()| map.set_value_size(rings.value_bytes() as u32))
        .map_err(|error| bpf_error("a map cannot be sized", &error))?;
    size_unwind_maps(&mut object, options.unwind, rings)?;
    open_map(&mut object, "chosen_allocations")
        .set_max_entries(CHOSEN_ALLOCATIONS)
        .map_err(|error| bpf_error("a map cannot be sized", &error))?;
    for (name, is_used) in [
        ("thread_faults", fault_totals::are_wanted(options, triggers)),
        ("presences", options.off_cpu_event().is_some()),
        ("presence_places", options.sees_arrivals()),
        ("last_departures", options.sees_departures()),
        ("new_sites", options.sees_departures()),
        ("fault_times", config.timed_faults != 0),
        ("heap_calls", options.heap_uprobes),
        ("chosen_allocations", options.heap_uprobes),
    ] {
        open_map(&mut object, name)
            .set_autocreate(is_used)
            .map_err(|error| bpf_error("a map cannot be left out", &error))?;
    }
    for (name, map) in shared {
        open_map(&mut object, name)
            .reuse_fd(map.as_fd())
            .map_err(|error| bpf_error("a map cannot be shared", &error))?;
    }
    let block = wanted_block_tracepoints(options);
    for mut program in object.progs_mut() {
        let wanted = is_wanted(program.name(), options, triggers, block);
        program.set_autoload(wanted);
    }
    object
        .load()
        .map_err(|error| bpf_error("the sampling program cannot be loaded", &error))
}

/// What is not used takes next to no memory.
fn size_unwind_maps(object: &mut OpenObject, is_used: bool, rings: &Layout) -> Result<()> {
    let unused = ["unwind_rules", "unwind_files", "unwind_processes", "unwind_inodes"].map(|name| (name, 1));
    let used = ["walks", "kernel_walks"].map(|name| (name, rings.rings() as u32));
    for &(name, entries) in if is_used { &used[..] } else { &unused[..] } {
        let mut map = open_map(object, name);
        map.set_max_entries(entries)
            .map_err(|error| bpf_error("a map cannot be sized", &error))?;
    }
    Ok(())
}

/// Whether a program has something to do in this recording.
fn is_wanted(name: &OsStr, options: &Options, triggers: &[Trigger], block: BlockTracepoints) -> bool {
    let is_tracepoint = |trigger: &Trigger| trigger.event.tracepoint.is_some();
    let is_counter = |trigger: &Trigger| trigger.is_perf_event() && !is_tracepoint(trigger);
    let has_targets = !options.pids.is_empty();
    match name.to_str() {
        Some("sample_event") => triggers.iter().any(is_counter),
        Some("sample_tracepoint") => triggers.iter().any(is_tracepoint),
        Some("arrive" | "begin_presence" | "begin_presences" | "end_presence") => options.sees_arrivals(),
        Some("depart" | "begin_departures" | "begin_all_departures" | "expect_last_departure") => {
            options.sees_departures()
        }
        Some("note_waker") => options.wakers,
        Some("submit_request") => block.has_start,
        Some("insert_request") => block.has_requests && !block.has_start,
        Some("issue_request" | "requeue_request" | "complete_request") => block.has_requests,
        Some("end_request") => block.has_done,
        Some("merge_request") => block.has_merge,
        Some("tell_allocation" | "tell_free" | "tell_count") => options.heap_library.is_some(),
        Some("enter_allocator" | "leave_allocator") => options.heap_uprobes,
        Some("forget_mappings") => options.unwind,
        Some("tell_program" | "follow_move") => true,
        Some("follow_fork") => has_targets && options.inherit,
        Some("release_held") => !options.held_pids.is_empty(),
        Some("begin_faults" | "sum_faults") => fault_totals::are_wanted(options, triggers),
        Some("follow_exit") => has_targets || fault_totals::are_wanted(options, triggers),
        other => unreachable!("bpf/ has no program {other:?}"),
    }
}

/// The programs of bpf/lifecycle.bpf.c, which run for every process.
fn attach_followers(object: &mut Object) -> Result<Vec<Link>> {
    let is_follower = |program: &ProgramMut<'_>| {
        let hook = program.section().as_encoded_bytes().strip_prefix(b"tp_btf/");
        let is_of_processes = |hook: &[u8]| hook.starts_with(b"sched_process_") || hook == b"cgroup_attach_task";
        program.autoload() && hook.is_some_and(is_of_processes)
    };
    let followers = object.progs_mut().filter(is_follower);
    followers
        .map(|program| {
            let link = program.attach();
            link.map_err(|error| bpf_error("processes cannot be followed", &error))
        })
        .collect()
}
