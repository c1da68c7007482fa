//! What a recording's thread tells those who wait for it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

/// Where the thread writes, and others read.
#[derive(Clone, Default)]
pub struct Board(Arc<(Mutex<Option<WaitOutcome>>, Condvar)>);

impl Board {
    /// Ends everybody's wait.
    pub fn write(&self, outcome: WaitOutcome) {
        *self.lock() = Some(outcome);
        self.0.1.notify_all();
    }

    /// Waits for an outcome, for at most this long.
    pub fn wait(&self, timeout: Duration) -> WaitOutcome {
        let is_open = |outcome: &mut Option<WaitOutcome>| outcome.is_none();
        let waited = self.0.1.wait_timeout_while(self.lock(), timeout, is_open);
        let outcome = waited.unwrap_or_else(PoisonError::into_inner).0;
        outcome.unwrap_or(WaitOutcome::Timeout)
    }

    /// What a thread that panicked has left is whole.
    fn lock(&self) -> MutexGuard<'_, Option<WaitOutcome>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
