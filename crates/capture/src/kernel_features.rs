//! What the programs need that not every kernel has.

use libbpf_rs::{MapType, ProgramType};

use crate::block_tracepoints::BlockTracepoints;
use crate::error::{Error, ErrorKind};
use crate::kernel_types::kernel_has_type;
use crate::options::{EventKind, EventSpec, Options};

/// Why this kernel cannot record an event that has programs of its own; None where it can, and for all others.
pub fn lack_of(event: &EventSpec, options: &Options) -> Option<Error> {
    let (is_there, kind, message, remedy) = match event.kind {
        EventKind::OffCpu => (
            kernel_keeps_of_threads(),
            ErrorKind::Event,
            "this kernel has no event off-cpu: it keeps nothing of threads for programs (Linux 5.13)",
            "record sched:sched_switch, or boot a newer kernel",
        ),
        EventKind::BlockIo => (
            BlockTracepoints::find().has_requests,
            ErrorKind::Event,
            "this kernel has no event block-io: it was built without CONFIG_BLOCK",
            "record other events",
        ),
        EventKind::Heap => (
            !options.heap_uprobes || kernel_has_type(b"bpf_uprobe_multi_link"),
            ErrorKind::Kernel,
            "this kernel watches allocators one function at a time, which takes too long (several need Linux 6.6)",
            "record a COMMAND that is linked dynamically, without --heap-uprobes",
        ),
        EventKind::CpuTime | EventKind::Perf(_) => return None,
    };
    (!is_there).then(|| Error::new(kind, message, remedy))
}

/// Whether a program can be told which event it runs for.
pub fn kernel_has_cookies() -> bool {
    ProgramType::PerfEvent
        .is_helper_supported(libbpf_sys::BPF_FUNC_get_attach_cookie)
        .unwrap_or(false)
}

/// Whether a tracepoint tells when a thread comes back to a CPU.
pub fn kernel_tells_arrivals() -> bool {
    kernel_has_type(b"btf_trace_sched_exit_tp")
}

/// Whether programs can keep something of each thread (Linux 5.11) and exchange it (5.12, which nothing tells).
pub fn kernel_keeps_of_threads() -> bool {
    kernel_has_callbacks() && MapType::TaskStorage.is_supported().unwrap_or(false)
}

/// Whether programs may have functions that a helper calls (Linux 5.13), be it in code that never runs.
pub fn kernel_has_callbacks() -> bool {
    ProgramType::PerfEvent
        .is_helper_supported(libbpf_sys::BPF_FUNC_for_each_map_elem)
        .unwrap_or(false)
}

/// Whether programs of perf events may look into hashes that grow: since Linux 6.1, as the helper that is asked for.
pub fn kernel_grows_hashes() -> bool {
    ProgramType::PerfEvent
        .is_helper_supported(libbpf_sys::BPF_FUNC_user_ringbuf_drain)
        .unwrap_or(false)
}

/// Whether the walker of tables can run: a helper loops over its steps.
pub fn kernel_can_unwind() -> bool {
    ProgramType::PerfEvent
        .is_helper_supported(libbpf_sys::BPF_FUNC_loop)
        .unwrap_or(false)
}
