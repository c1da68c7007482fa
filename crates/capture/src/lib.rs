//! From the kernel's records to raw samples and mappings: the only crate that knows libbpf and /proc.
//!
//! Read `session.rs` first: it owns a recording from start to finish, and each of its steps is a module here.

#[allow(missing_docs)] // generated; bpf/abi.h documents each field
pub mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));
}

mod absent;
mod allocators;
mod block_devices;
mod block_io;
mod block_tracepoints;
mod board;
pub mod bpf;
mod bpf_objects;
mod cgroups;
mod combining;
mod configuration;
mod cost;
mod cpus;
mod departures;
mod deputy;
mod drain;
mod dump;
mod error;
mod fault_times;
mod fault_totals;
mod files;
mod heap;
mod informer;
pub mod inspection;
mod intake;
mod iterator;
mod kernel;
mod kernel_features;
mod kernel_names;
mod kernel_types;
mod lately;
mod made_code;
mod mapped;
mod mappings;
mod memory;
mod metadata;
mod new_programs;
mod off_cpu;
mod options;
mod orc;
mod pace;
mod perf_event;
pub mod probe;
mod processes;
mod procfs;
mod programs;
mod python;
mod raw_sample;
mod recording;
mod session;
mod setup;
mod sideband;
mod sigbus;
mod sources;
mod targets;
mod throttle;
mod tracefs;
pub mod unwind;
mod waker;
mod wakers;

/// The library in which programs choose samples of their allocations (`preload/heap.c`), as a file.
pub static HEAP_LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/heap.so"));

pub use board::WaitOutcome;
pub use dump::dump;
pub use error::{Error, ErrorKind, Result};
pub use options::{EventKind, EventSpec, KernelWalk, Options, Sampling};
pub use recording::{Finished, Status};
pub use session::Session;
pub use sigbus::Guard;
pub use tracefs::list_events;
