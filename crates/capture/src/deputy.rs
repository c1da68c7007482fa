//! A thread for work that may hang: reading another process's memory waits for whoever serves its pages, which may be
//! a program that never answers (userfaultfd, FUSE).

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::error::{Error, Result};

/// Threads that hang are left behind, up to so many; the end of this process ends them.
const MAX_LEFT_BEHIND: usize = 16;

type Work<T> = Box<dyn FnOnce() -> T + Send>;

/// Does one thing after the other.
pub struct Deputy<T> {
    work: Sender<Work<T>>,
    results: Receiver<T>,
    left_behind: usize,
}

impl<T: Send + 'static> Deputy<T> {
    /// Starts the thread.
    pub fn new() -> Result<Self> {
        let (work, inbox) = mpsc::channel::<Work<T>>();
        let (sender, results) = mpsc::channel();
        std::thread::Builder::new()
            .name("stackhound-py".into())
            .spawn(move || inbox.into_iter().all(|work| sender.send(work()).is_ok()))
            .map_err(|error| Error::system("no thread for the memory of other processes", &error))?;
        Ok(Self {
            work,
            results,
            left_behind: 0,
        })
    }

    /// What the work came to; None when it took longer than this, or cannot be done any more.
    pub fn within(&mut self, patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.work.send(Box::new(work)).ok()?;
        match self.results.recv_timeout(patience) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => {
                self.leave_behind();
                None
            }
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Goes on with another thread, as long as there are not too many: then nothing is done any more.
    fn leave_behind(&mut self) {
        let left_behind = self.left_behind + 1;
        match Self::new() {
            Ok(other) if left_behind < MAX_LEFT_BEHIND => *self = Self { left_behind, ..other },
            _ => self.work = mpsc::channel().0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn work_that_hangs_is_left_behind_and_the_next_is_done() {
        let mut deputy = Deputy::new().unwrap();
        assert_eq!(deputy.within(LONG, || 1), Some(1));
        let (_keep, never) = mpsc::channel::<()>();
        let hang = move || {
            let _ = never.recv();
            2
        };
        assert_eq!(deputy.within(Duration::from_millis(1), hang), None);
        assert_eq!(deputy.within(LONG, || 3), Some(3));
    }

    #[test]
    fn threads_that_hang_do_not_become_ever_more() {
        let mut deputy = Deputy::new().unwrap();
        let mut kept = Vec::new();
        for _ in 0..MAX_LEFT_BEHIND {
            let (keep, never) = mpsc::channel::<()>();
            kept.push(keep);
            let hang = move || {
                let _ = never.recv();
            };
            assert_eq!(deputy.within(Duration::ZERO, hang), None);
        }
        assert_eq!(deputy.within(LONG, || ()), None);
    }
}
