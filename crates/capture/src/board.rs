//! What a recording's thread tells those who wait for it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

#[derive(Default)]
struct Notice {
    status: Status,
    outcome: Option<WaitOutcome>,
}

/// Where the thread writes, and others read.
#[derive(Clone, Default)]
pub struct Board(Arc<(Mutex<Notice>, Condvar)>);

impl Board {
    /// How the recording is doing now; an outcome ends everybody's wait.
    pub fn write(&self, status: Status, outcome: Option<WaitOutcome>) {
        *self.lock() = Notice { status, outcome };
        if outcome.is_some() {
            self.0.1.notify_all();
        }
    }

    /// As it was written last.
    pub fn status(&self) -> Status {
        self.lock().status
    }

    /// Waits for an outcome, for at most this long.
    pub fn wait(&self, timeout: Duration) -> WaitOutcome {
        let deadline = Instant::now() + timeout;
        let mut notice = self.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match notice.outcome {
                Some(outcome) => return outcome,
                None if left.is_zero() => return WaitOutcome::Timeout,
                None => {
                    let waited = self.0.1.wait_timeout(notice, left);
                    notice = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(notice, _)| notice);
                }
            }
        }
    }

    /// What a thread that panicked has left is whole.
    fn lock(&self) -> MutexGuard<'_, Notice> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
