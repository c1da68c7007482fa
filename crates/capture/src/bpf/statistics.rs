//! The kernel's own statistics of programs, which it keeps while somebody asks for them.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Instant;

use super::programs::{check_permission, info, open_all};
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
        let return_0 = [
            libbpf_sys::bpf_insn {
                code: (libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K) as u8,
                ..Default::default()
            },
            libbpf_sys::bpf_insn {
                code: (libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT) as u8,
                ..Default::default()
            },
        ];
        // SAFETY: the instructions live through the call; the license is a constant text.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_SOCKET_FILTER,
                c"stackhound_nil".as_ptr(),
                c"GPL".as_ptr(),
                return_0.as_ptr(),
                return_0.len() as libbpf_sys::size_t,
                std::ptr::null_mut(),
            )
        };
        // SAFETY: a new descriptor that nobody else owns.
        (fd >= 0).then(|| Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// By the clock on the wall: the kernel's own answer is a whole number.
    fn ns_per_run(&self) -> Option<f64> {
        let call = |_| {
            let begun = Instant::now();
            self.run()?;
            Some(begun.elapsed().as_nanos() as f64 / f64::from(RUNS))
        };
        fastest((0..CALLS).map(call))
    }

    fn run(&self) -> Option<()> {
        let packet = [0u8; 64];
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
            data_in: packet.as_ptr().cast(),
            data_size_in: packet.len() as u32,
            repeat: RUNS as i32,
            ..Default::default()
        };
        // SAFETY: the options live through the call.
        let status = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &raw mut options) };
        (status == 0).then_some(())
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
