//! The kernel's own statistics of programs, which it keeps while somebody asks for them.

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use super::programs::{check_permission, info, open_all};
use super::trial::{self, Input, Ran};
use crate::error::{Error, Result};

/// Since statistics were switched on for the first time, by anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Of the program.
    pub id: u32,
    /// How often it ran.
    pub runs: u64,
    /// How long, all together.
    pub run_ns: u64,
    /// Runs that the kernel skipped, because it was running on the CPU already.
    pub recursion_misses: u64,
}

/// Switched on as long as this lives.
pub struct Statistics {
    _enabled: OwnedFd,
    overhead: Overhead,
}

/// What statistics take of each run, of an empty program here and now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overhead {
    /// Of that, what they count as the program's own.
    pub counted_ns: f64,
    /// All of it.
    pub whole_ns: f64,
}

impl Statistics {
    /// Switches them on, and finds out what they take.
    pub fn begin() -> Result<Self> {
        check_permission()?;
        let empty = EmptyProgram::load();
        let before_ns = empty.as_ref().and_then(EmptyProgram::ns_per_run);
        // SAFETY: takes a number.
        let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if fd < 0 {
            let error = io::Error::from_raw_os_error(-fd);
            return Err(Error::system(
                "statistics of BPF programs cannot be switched on",
                &error,
            ));
        }
        // SAFETY: a new descriptor that nobody else owns.
        let enabled = unsafe { OwnedFd::from_raw_fd(fd) };
        let overhead = empty
            .as_ref()
            .zip(before_ns)
            .and_then(|(empty, before_ns)| empty.overhead(before_ns));
        Ok(Self {
            _enabled: enabled,
            overhead: overhead.unwrap_or_default(),
        })
    }

    /// What they take; 0 where that could not be found out.
    pub fn overhead(&self) -> Overhead {
        self.overhead
    }

    /// Of all programs, by their numbers.
    pub fn read(&self) -> Vec<Count> {
        let count = |(id, fd): (u32, OwnedFd)| {
            let info = info(&fd)?;
            Some(Count {
                id,
                runs: info.run_cnt,
                run_ns: info.run_time_ns,
                recursion_misses: info.recursion_misses,
            })
        };
        open_all().filter_map(count).collect()
    }
}

/// A socket filter that returns 0, to be run for its own sake.
struct EmptyProgram(OwnedFd);

/// Of the empty program, in one call: 0.2 ms.
const RUNS: u32 = 5_000;
/// The fastest of so many calls is one that nothing interrupted.
const CALLS: usize = 20;

impl EmptyProgram {
    fn load() -> Option<Self> {
        trial::load_empty(libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER, 0, 0)
            .ok()
            .map(Self)
    }

    fn ns_per_run(&self) -> Option<f64> {
        fastest((0..CALLS).map(|_| Some(self.run()?.elapsed_ns as f64 / f64::from(RUNS))))
    }

    fn run(&self) -> Option<Ran> {
        let input = Input {
            data: &[0; 64],
            repeat: RUNS,
            ..Input::default()
        };
        trial::run(self.0.as_fd(), input).ok()
    }

    fn overhead(&self, before_ns: f64) -> Option<Overhead> {
        let whole_ns = self.ns_per_run()? - before_ns;
        let call = |_| {
            let begun = info(&self.0)?;
            self.run()?;
            let ended = info(&self.0)?;
            let runs = ended.run_cnt.checked_sub(begun.run_cnt).filter(|runs| *runs > 0)?;
            Some(ended.run_time_ns.saturating_sub(begun.run_time_ns) as f64 / runs as f64)
        };
        Some(Overhead {
            counted_ns: fastest((0..CALLS).map(call))?,
            whole_ns: whole_ns.max(0.0),
        })
    }
}

fn fastest(calls: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    calls.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
}
