//! The BPF programs: configured, loaded, attached, and their counters read.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, MapMut, Object, OpenObject, PerfEventOpts, ProgramMut, UprobeMultiOpts,
    UprobeOpts,
};

use crate::abi;
use crate::block_tracepoints::BlockTracepoints;
use crate::bpf_objects::{
    bpf_error, bytes_of, find_map, map_handle, open, open_map, possible_cpus, print_above, program,
};
use crate::configuration::{bits_of, configure, wanted_block_tracepoints};
use crate::cpus;
use crate::drain::Layout;
use crate::error::{Error, ErrorKind, Result};
use crate::fault_times::{self, FaultTimes};
use crate::fault_totals::{self, FaultTotals};
use crate::kernel_features::{kernel_has_callbacks, refuse_what_is_not_there};
use crate::new_programs::NewPrograms;
use crate::options::{Options, Sampling};
use crate::orc;
use crate::perf_event::{Idle, Trigger};
use crate::unwind;

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/programs.bpf.o"));
static PROGRAMS_BEFORE_5_13: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/before_5_13.bpf.o"));

/// Two tables of the combining cache, all CPUs together, stay below this.
const COMBINING_BYTES: usize = 32 << 20;
const MAX_COMBINING_SLOTS: usize = 1024;

/// The loaded programs, and one attachment for each event and CPU.
pub struct Programs {
    attachments: Vec<Attachment>,
    /// Of what is no perf event.
    hooks: Vec<Link>,
    _followers: Vec<Link>,
    /// Of each process; None where nobody asks.
    pub fault_totals: Option<FaultTotals>,
    /// None where nobody asks, or the kernel refuses.
    pub fault_times: Option<FaultTimes>,
    object: Object,
    settings: abi::Settings,
    triggers: Vec<Trigger>,
    /// Of each event: what its attachments had counted that are gone, with their CPUs.
    counted: Vec<u64>,
    combine_slots: usize,
    has_cookie: bool,
}

/// A function of an allocator.
#[derive(Clone, Copy, Debug)]
pub struct UprobeSite {
    /// In its file.
    pub offset: usize,
    /// `enum allocator_call`.
    pub call: u32,
}

struct Attachment {
    event: usize,
    cpu: u32,
    count: File,
    last_count: u64,
    _link: Link,
}

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
        let has_cookie = triggers.len() > 1;
        refuse_what_is_not_there(options, has_cookie)?;
        let combine_slots = if options.aggregate { combining_slots()? } else { 0 };
        let mut config = configure(options, &triggers, rings, combine_slots, has_cookie);
        let kernel_tables = orc::find_tables(options);
        if kernel_tables.is_some() {
            config.kernel_walk = options.kernel_walk as u8;
        }
        let mut fault_times = match fault_times::are_wanted(options, &triggers) {
            true => FaultTimes::begin(&config).ok(), // where it is refused, faults are sampled all the same
            false => None,
        };
        if fault_times.is_some() {
            config.timed_faults = bits_of(&triggers, |trigger| trigger.faults().is_some());
        }
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
            has_cookie,
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

    /// Lets a process into the filter: `abi::TARGET_SAMPLED` now, `abi::TARGET_HELD` from its exec on.
    pub fn add_target(&mut self, pid: u32, state: u32) -> Result<()> {
        let result = self
            .map("targets")
            .update(&pid.to_ne_bytes(), &[state as u8], MapFlags::ANY);
        result.map_err(|error| bpf_error("the filter takes no more processes", &error))
    }

    /// Lets a process into the filter while recording, and counts its faults from now on.
    pub fn admit(&mut self, pid: u32) -> Result<()> {
        self.fault_totals.as_ref().map_or(Ok(()), FaultTotals::sum_up)?;
        self.add_target(pid, abi::TARGET_SAMPLED)?;
        self.fault_totals.as_ref().map_or(Ok(()), FaultTotals::begin_new)
    }

    /// Closes the events of CPUs that are offline, or were for a moment: an event does not survive that, and a clock's
    /// count stands still. Their counts stay. Returns the CPUs. Not to be called more often than such a clock ticks.
    pub fn detach_lost_cpus(&mut self, online: &[u32]) -> Vec<u32> {
        let mut lost = Vec::new();
        for attachment in &mut self.attachments {
            let count = attachment.count();
            let stands_still = self.triggers[attachment.event].is_cpu_clock() && count == attachment.last_count;
            attachment.last_count = count;
            if stands_still || !online.contains(&attachment.cpu) {
                lost.push(attachment.cpu);
            }
        }
        for gone in self
            .attachments
            .extract_if(.., |attachment| lost.contains(&attachment.cpu))
        {
            self.counted[gone.event] += gone.last_count;
        }
        lost
    }

    /// Attaches every event to every CPU that is online and has none yet, their phases spread over one period.
    pub fn attach_missing(&mut self, online: &[u32]) -> Result<usize> {
        let mut attached = 0;
        let is_opened = |event: &usize| self.triggers[*event].is_perf_event();
        for event in (0..self.triggers.len()).filter(is_opened).collect::<Vec<_>>() {
            let step = phase_step(&self.triggers[event], online.len());
            for &cpu in online {
                let has = self.attachments.iter().any(|one| one.event == event && one.cpu == cpu);
                if has || (self.triggers[event].event.tracepoint.is_some() && cpu != online[0]) {
                    continue; // a tracepoint's program runs on every CPU however many events there are
                }
                match self.triggers[event].open(cpu) {
                    Ok(fd) => self.attach(event, cpu, fd)?,
                    Err(error) if cpus::has_left(cpu, &error) => continue,
                    Err(error) => return Err(open_error(&self.triggers[event], &error)),
                }
                attached += 1;
                std::thread::sleep(step);
            }
        }
        Ok(attached)
    }

    fn attach(&mut self, event: usize, cpu: u32, fd: OwnedFd) -> Result<()> {
        let trigger = &self.triggers[event];
        let count = File::from(fd.try_clone().map_err(|error| Error::system("dup", &error))?);
        let name = if trigger.event.tracepoint.is_some() {
            "sample_tracepoint"
        } else {
            "sample_event"
        };
        let cookie = if self.has_cookie { event as u64 } else { 0 };
        let options = PerfEventOpts {
            cookie,
            ..Default::default()
        };
        let program = program(&mut self.object, name);
        let link = program
            .attach_perf_event_with_opts(fd.into_raw_fd(), options)
            .map_err(|error| bpf_error("the sampling program cannot be attached", &error))?;
        self.attachments.push(Attachment {
            event,
            cpu,
            count,
            last_count: 0,
            _link: link,
        });
        Ok(())
    }

    /// Begins to follow how threads leave and come back to CPUs.
    pub fn attach_off_cpu(&mut self, options: &Options) -> Result<()> {
        let failed = |error| bpf_error("threads off the CPU cannot be followed", &error);
        let (hooks, threads): (&[&str], _) = match options.off_cpu_at_departure {
            true => (&["depart"], "begin_all_departures"),
            false => (&["begin_presence", "arrive"], "begin_presences"),
        };
        let waking = options.wakers.then_some(&"note_waker");
        for name in hooks.iter().chain(waking) {
            self.hooks
                .push(program(&mut self.object, name).attach().map_err(failed)?);
        }
        let threads = program(&mut self.object, threads).attach().map_err(failed)?;
        std::thread::sleep(std::time::Duration::from_micros(1)); // so that this thread has just come to its CPU
        let mut run = libbpf_rs::Iter::new(&threads).map_err(failed)?;
        std::io::copy(&mut run, &mut std::io::sink())
            .map_err(|error| Error::system("the threads cannot be counted", &error))?;
        Ok(())
    }

    /// Begins to follow requests to block devices: where they begin last, so that no end of one is missed.
    pub fn attach_block_io(&mut self) -> Result<()> {
        for name in BLOCK_IO_PROGRAMS {
            let program = program(&mut self.object, name);
            if program.autoload() {
                let link = program.attach();
                let link = link.map_err(|error| bpf_error("requests to block devices cannot be followed", &error))?;
                self.hooks.push(link);
            }
        }
        Ok(())
    }

    /// Begins to follow what programs tell of their memory through this library, whoever has it loaded.
    pub fn attach_heap_library(&mut self, library: &Path) -> Result<()> {
        for (name, function) in HEAP_PROGRAMS {
            let options = UprobeOpts {
                func_name: Some(function.into()),
                ..Default::default()
            };
            let link = program(&mut self.object, name).attach_uprobe_with_opts(EVERY_PROCESS, library, 0, options);
            let link = link.map_err(|error| bpf_error("allocations cannot be followed", &error))?;
            self.hooks.push(link);
        }
        Ok(())
    }

    /// The processes in the filter.
    pub fn targets(&mut self) -> Vec<u32> {
        let targets = self.map("targets");
        let pid = |key: Vec<u8>| Some(u32::from_ne_bytes(key.try_into().ok()?));
        targets.keys().filter_map(pid).collect()
    }

    /// Watches functions of an allocator in one process, as long as the links are kept. None where it has ended.
    pub fn attach_allocator(&mut self, pid: u32, file: &Path, sites: &[UprobeSite]) -> Result<Vec<Link>> {
        let returning: Vec<_> = (sites.iter().copied())
            .filter(|site| site.call != abi::CALL_FREE)
            .collect();
        let mut links = Vec::new();
        for (name, is_return, sites) in [
            ("leave_allocator", true, &returning[..]),
            ("enter_allocator", false, sites),
        ] {
            let options = UprobeMultiOpts {
                offsets: sites.iter().map(|site| site.offset).collect(),
                cookies: sites.iter().map(|site| site.call.into()).collect(),
                retprobe: is_return,
                ..Default::default()
            };
            let program = program(&mut self.object, name);
            match program.attach_uprobe_multi_with_opts(pid as i32, file, "", options) {
                Ok(link) => links.push(link),
                Err(_) if crate::procfs::has_ended(pid) => return Ok(Vec::new()),
                Err(error) => return Err(bpf_error("allocators cannot be watched", &error)),
            }
        }
        Ok(links)
    }

    /// What user space may change while the programs run.
    pub fn change_settings(&mut self, change: impl FnOnce(&mut abi::Settings)) -> Result<()> {
        change(&mut self.settings);
        let settings = self.settings;
        let result = self
            .map("settings")
            .update(&0u32.to_ne_bytes(), bytes_of(&settings), MapFlags::ANY);
        result.map_err(|error| bpf_error("the sampling program cannot be changed", &error))
    }

    /// Detaches the events; counters and rings stay readable.
    pub fn detach(&mut self) {
        self.attachments.clear();
        while self.hooks.pop().is_some() {} // the last one first: what it begins another one ends
    }

    /// Samples that the events' own counts stand for, beyond those seen: an estimate of what the kernel dropped before
    /// the program ran. Events without a fixed period are left out; of the others' share that the filter lets through.
    pub fn unseen_samples(&mut self, idle: Idle) -> u64 {
        let counters = self.counters_of(abi::HOOK_EVENT..abi::HOOK_EVENT + 1);
        let counts = self.event_counts();
        let error_ns = cpus::IDLE_TICK_NS * self.attachments.len() as u64;
        let idle = Idle {
            ns: idle.ns + error_ns,
            ..idle
        };
        let each = self.triggers.iter().zip(counts).zip(&counters.event_entries);
        let unseen = |((trigger, count), seen): ((&Trigger, u64), &u64)| {
            trigger
                .expected_entries(count, idle)
                .map_or(0, |expected| expected.saturating_sub(*seen))
        };
        let entries = counters.entries.saturating_sub(counters.idle);
        let passed = entries.saturating_sub(counters.filtered);
        let unseen: u64 = each.map(unseen).sum();
        (unseen as f64 * passed as f64 / entries.max(1) as f64) as u64
    }

    /// What each event has counted, on all CPUs.
    pub fn event_counts(&self) -> Vec<u64> {
        let mut counts = self.counted.clone();
        for attachment in &self.attachments {
            counts[attachment.event] += attachment.count();
        }
        counts
    }

    /// What each event has counted, once the sums of page faults are true.
    pub fn sum_up(&self) -> Result<Vec<u64>> {
        self.fault_totals.as_ref().map_or(Ok(()), FaultTotals::sum_up)?;
        Ok(self.event_counts())
    }

    /// The counters, summed over the CPUs and hooks.
    pub fn counters(&mut self) -> abi::Counters {
        self.counters_of(0..abi::HOOKS as u32)
    }

    fn counters_of(&mut self, hooks: Range<u32>) -> abi::Counters {
        let mut sum = [0u64; size_of::<abi::Counters>() / 8];
        for hook in hooks {
            let each = self.map("counters").lookup_percpu(&hook.to_ne_bytes(), MapFlags::ANY);
            for values in each.ok().flatten().unwrap_or_default() {
                for (total, bytes) in sum.iter_mut().zip(values.chunks_exact(8)) {
                    *total += u64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
                }
            }
        }
        // SAFETY: Counters is nothing but u64 in a row, and sum is as long as it is.
        unsafe { std::mem::transmute(sum) }
    }

    /// The rings of samples.
    pub fn rings(&mut self) -> MapHandle {
        map_handle(&mut self.object, "rings")
    }

    /// Programs that begin.
    pub fn new_programs(&mut self) -> Result<NewPrograms> {
        let [ring, urgent] = ["new_programs", "urgent_programs"].map(|name| map_handle(&mut self.object, name));
        NewPrograms::new(ring, urgent)
    }

    /// What the walker reads to unwind by tables.
    pub fn unwind_maps(&mut self) -> unwind::Maps {
        unwind::Maps::of(|name| map_handle(&mut self.object, name))
    }

    /// What other programs need to walk as these do, and what more they ask for, by name.
    pub fn shared_maps<'n>(&mut self, more: &[&'n str]) -> Vec<(&'n str, MapHandle)> {
        let names = unwind::MAPS.into_iter().chain(more.iter().copied());
        names.map(|name| (name, map_handle(&mut self.object, name))).collect()
    }

    /// The outer map of the combining cache.
    pub fn combining(&mut self) -> MapHandle {
        map_handle(&mut self.object, "combining")
    }

    /// Slots of the combining cache a CPU; 0 when there is none.
    pub fn combine_slots(&self) -> usize {
        self.combine_slots
    }

    /// Runs of the programs that the kernel skipped because one was running on the CPU already.
    pub fn recursion_misses(&mut self) -> u64 {
        let mut misses = 0;
        for program in self.object.progs_mut() {
            // SAFETY: the kernel fills as much of the zeroed struct as it knows.
            unsafe {
                let mut info: libbpf_sys::bpf_prog_info = std::mem::zeroed();
                let mut bytes = size_of_val(&info) as u32;
                let fd = program.as_fd().as_raw_fd();
                if fd >= 0 && libbpf_sys::bpf_prog_get_info_by_fd(fd, &mut info, &mut bytes) == 0 {
                    misses += info.recursion_misses;
                }
            }
        }
        misses
    }

    fn map(&mut self, name: &str) -> MapMut<'_> {
        find_map(&mut self.object, name)
    }
}

impl Attachment {
    /// The event's own count so far; 0 where it cannot be read.
    fn count(&self) -> u64 {
        let mut bytes = [0; 8];
        match (&self.count).read(&mut bytes) {
            Ok(8) => u64::from_ne_bytes(bytes),
            _ => 0,
        }
    }
}

/// Where nothing was counted.
pub fn no_counters() -> abi::Counters {
    // SAFETY: Counters is nothing but u64 in a row.
    unsafe { std::mem::zeroed() }
}

/// Phases are spread over a period, so that CPUs do not sample at once; never over more than 100 ms.
fn phase_step(trigger: &Trigger, cpus: usize) -> std::time::Duration {
    let period_ns = match trigger.event.sampling {
        Sampling::Frequency(hz) => 1_000_000_000 / hz.max(1),
        Sampling::Period(_) => 0,
    };
    std::time::Duration::from_nanos(period_ns.min(100_000_000) / cpus.max(1) as u64)
}

/// In the order in which they are attached.
const BLOCK_IO_PROGRAMS: [&str; 7] = [
    "end_request",
    "complete_request",
    "requeue_request",
    "merge_request",
    "issue_request",
    "insert_request",
    "submit_request",
];

/// That are in use at once, where allocators are watched: 128 GiB at the default interval.
const CHOSEN_ALLOCATIONS: u32 = 1 << 18;
const EVERY_PROCESS: i32 = -1;

/// The programs that hear of memory, and the functions of preload/heap.c that tell of it.
const HEAP_PROGRAMS: [(&str, &str); 3] = [
    ("tell_count", "stackhound_heap_counted"),
    ("tell_free", "stackhound_heap_freed"),
    ("tell_allocation", "stackhound_heap_allocated"),
];

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
        Some("tell_program") => true,
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
        program.autoload()
            && program
                .section()
                .as_encoded_bytes()
                .starts_with(b"tp_btf/sched_process_")
    };
    let followers = object.progs_mut().filter(is_follower);
    followers
        .map(|program| {
            let link = program.attach();
            link.map_err(|error| bpf_error("processes cannot be followed", &error))
        })
        .collect()
}

fn open_error(trigger: &Trigger, error: &std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => Error::new(
            ErrorKind::Event,
            format!("this machine has no event {}", trigger.name),
            "'stackhound list' shows what there is",
        ),
        Some(libc::EINVAL) => Error::new(
            ErrorKind::Event,
            format!("the kernel refuses event {} at this rate", trigger.name),
            "choose another -F or -c (kernel.perf_event_max_sample_rate is the limit)",
        ),
        _ => Error::system(&format!("event {} cannot be opened", trigger.name), error),
    }
}
