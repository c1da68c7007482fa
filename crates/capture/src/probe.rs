//! What this kernel lets us do, tried out and undone: for `stackhound doctor`.

use libbpf_rs::ProgramType;

use crate::abi;
use crate::block_tracepoints::BlockTracepoints;
use crate::drain::Layout;
use crate::kernel_features::{kernel_can_unwind, kernel_has_callbacks, kernel_keeps_of_threads};
use crate::options::{EventKind, EventSpec, KernelWalk, Options, Sampling};
use crate::orc;
use crate::perf_event::Trigger;
use crate::programs::Programs;
use crate::sideband::Sideband;

/// One thing that was tried.
pub struct Probe {
    /// What.
    pub name: &'static str,
    /// `ok`, `degraded` or `missing`.
    pub state: &'static str,
    /// What was found, or the error.
    pub detail: String,
}

/// Tries everything; changes nothing that outlives the call.
pub fn probe() -> Vec<Probe> {
    vec![
        sampling(),
        threads(),
        sideband(),
        hardware(),
        program("tracepoint programs", ProgramType::Tracepoint),
        program("raw tracepoint programs", ProgramType::RawTracepoint),
        helper(
            "bpf_get_attach_cookie",
            ProgramType::PerfEvent,
            libbpf_sys::BPF_FUNC_get_attach_cookie,
            "one event at a time",
        ),
        helper(
            "bpf_task_pt_regs",
            ProgramType::PerfEvent,
            libbpf_sys::BPF_FUNC_task_pt_regs,
            "an older way is used",
        ),
        helper(
            "bpf_loop",
            ProgramType::PerfEvent,
            libbpf_sys::BPF_FUNC_loop,
            "user stacks by frame pointers only",
        ),
        helper(
            "bpf_snprintf",
            ProgramType::Syscall,
            libbpf_sys::BPF_FUNC_snprintf,
            "kernel functions are looked up in /proc/kallsyms, in 0.1 s",
        ),
        storage(),
        kernel_stacks(),
        requests(),
        allocations(),
    ]
}

fn cpu_event() -> EventSpec {
    EventSpec {
        name: "cpu".into(),
        unit: "nanoseconds".into(),
        kind: EventKind::CpuTime,
        config: [0; 3],
        sampling: Sampling::Frequency(99),
        tracepoint: None,
        exclude_kernel: false,
        exclude_user: false,
    }
}

fn options() -> Options {
    Options {
        events: vec![cpu_event()],
        software_only: false,
        pids: vec![std::process::id()],
        held_pids: Vec::new(),
        inherit: true,
        comm: None,
        cgroup: None,
        user_only: false,
        kernel_only: false,
        unwind: kernel_can_unwind(),
        kernel_walk: KernelWalk::Tables,
        python: true,
        asyncio: false,
        include_self: false,
        aggregate: false,
        off_cpu_min: std::time::Duration::ZERO,
        off_cpu_max: std::time::Duration::MAX,
        off_cpu_exact: false,
        wakers: false,
        off_cpu_at_departure: false,
        heap_library: None,
        heap_uprobes: false,
        heap_files: Vec::new(),
        heap_max_slowdown_percent: 5.0,
        ring_bytes: None,
        raw_addresses: false,
        drain_interval: None,
        debug_dirs: Vec::new(),
        debuginfod_cache: None,
        log_level: 0,
    }
}

fn result(name: &'static str, result: Result<String, String>) -> Probe {
    match result {
        Ok(detail) => Probe {
            name,
            state: "ok",
            detail,
        },
        Err(detail) => Probe {
            name,
            state: "missing",
            detail,
        },
    }
}

/// The real programs, loaded and attached for a moment.
fn sampling() -> Probe {
    const RING_BYTES: usize = 64 << 10;
    let options = options();
    let online = crate::cpus::online();
    let trigger = Trigger::settle(&options.events[0], &options, online[0]);
    let layout = Layout::new(RING_BYTES, online.len(), &online, 1);
    let tried =
        Programs::load(&options, vec![trigger], &layout).and_then(|mut programs| programs.attach_missing(&online));
    let say = |events: usize| format!("perf_event and tp_btf programs load and attach, {events} CPUs");
    result("sampling programs", tried.map(say).map_err(|error| error.message))
}

/// What `dump` needs, tried on this process.
fn threads() -> Probe {
    match crate::dump::try_out(&options()) {
        Ok(()) => result("task iterator", Ok("dump shows what threads do".into())),
        Err(error) => Probe {
            name: "task iterator",
            state: "degraded",
            detail: format!("no dump: {}", error.message),
        },
    }
}

fn sideband() -> Probe {
    let tried = Sideband::open(&crate::cpus::online());
    result(
        "process records",
        tried
            .map(|_| "mmap, exec, fork, exit".into())
            .map_err(|error| error.to_string()),
    )
}

fn hardware() -> Probe {
    let options = options();
    let trigger = Trigger::settle(&options.events[0], &options, crate::cpus::online()[0]);
    let state = if trigger.name == "cycles" { "ok" } else { "degraded" };
    let detail = match state {
        "ok" => "cycles",
        _ => "none (a virtual machine, most likely): cpu-clock is used, which cannot see code with interrupts off",
    };
    Probe {
        name: "hardware counters",
        state,
        detail: detail.into(),
    }
}

fn helper(name: &'static str, program: ProgramType, helper: libbpf_sys::bpf_func_id, without: &str) -> Probe {
    let has_programs = || program.is_supported().unwrap_or(false); // or libbpf takes their helpers for there
    match program
        .is_helper_supported(helper)
        .map(|is_there| is_there && has_programs())
    {
        Ok(true) => Probe {
            name,
            state: "ok",
            detail: "there".into(),
        },
        Ok(false) => Probe {
            name,
            state: "degraded",
            detail: format!("not in this kernel: {without}"),
        },
        Err(error) => Probe {
            name,
            state: "missing",
            detail: error.to_string(),
        },
    }
}

fn program(name: &'static str, kind: ProgramType) -> Probe {
    there(name, kind.is_supported())
}

/// What programs keep of each thread.
fn storage() -> Probe {
    let (state, detail) = match kernel_keeps_of_threads() {
        true => ("ok", "there: off-cpu, exact numbers of page faults"),
        false => (
            "degraded",
            "not in this kernel: no off-cpu, and page faults are not counted",
        ),
    };
    Probe {
        name: "task storage",
        state,
        detail: detail.into(),
    }
}

fn there(name: &'static str, tried: libbpf_rs::Result<bool>) -> Probe {
    match tried {
        Ok(true) => result(name, Ok("there".into())),
        Ok(false) => result(name, Err("not in this kernel".into())),
        Err(error) => result(name, Err(error.to_string())),
    }
}

/// What tells of requests to block devices.
fn requests() -> Probe {
    let tracepoints = BlockTracepoints::find();
    let (state, detail) = match probe_block_io() {
        Some(reason) => ("degraded", reason),
        None if tracepoints.has_start => ("ok", "block_io_start: block-io, from where a thread submits a request"),
        None => (
            "degraded",
            "block-io from where a request is queued: Linux 6.5 tells where it is submitted",
        ),
    };
    Probe {
        name: "block requests",
        state,
        detail: detail.into(),
    }
}

/// How many events one recording takes.
pub const MAX_EVENTS: usize = abi::MAX_EVENTS;

/// Why time off the CPU cannot be recorded here; None when it can.
pub fn probe_off_cpu() -> Option<&'static str> {
    (!kernel_keeps_of_threads()).then_some("nothing can be kept of threads: Linux 5.13 can")
}

/// Why requests to block devices cannot be recorded here; None when they can.
pub fn probe_block_io() -> Option<&'static str> {
    (!BlockTracepoints::find().has_requests).then_some("nothing tells of requests to block devices (CONFIG_BLOCK)")
}

/// Why allocations cannot be followed here; None when they can.
pub fn probe_heap() -> Option<&'static str> {
    let is_there = std::path::Path::new("/sys/bus/event_source/devices/uprobe/type").exists();
    match is_there {
        true => (!kernel_has_callbacks()).then_some("nothing can be exchanged in memory: Linux 5.13 can"),
        false => Some("nothing can look at functions of programs (CONFIG_UPROBE_EVENTS)"),
    }
}

/// Who walks the kernel's stacks.
fn kernel_stacks() -> Probe {
    let (state, detail) = match orc::find_tables(&options()) {
        Some(_) => ("ok", "by the kernel's tables (ORC)"),
        None if !cfg!(target_arch = "x86_64") => ("ok", "by the kernel, along frame pointers"),
        None => (
            "degraded",
            "by the kernel, which takes twice as long: it does not tell where its tables are",
        ),
    };
    Probe {
        name: "kernel stacks",
        state,
        detail: detail.into(),
    }
}

/// What looks at functions of programs.
fn allocations() -> Probe {
    let (state, detail) = match probe_heap() {
        Some(reason) => ("degraded", reason),
        None => ("ok", "uprobes: heap"),
    };
    Probe {
        name: "functions of programs",
        state,
        detail: detail.into(),
    }
}

/// Why an event cannot be counted here; None when it can.
pub fn probe_event(kind: u32, config: u64) -> Option<String> {
    let error = crate::perf_event::open(&crate::perf_event::attributes(kind, config), 0, -1).err()?;
    Some(match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => "this machine has no such counter".into(),
        Some(libc::EPERM | libc::EACCES) => "permission denied".into(),
        _ => error.to_string(),
    })
}
