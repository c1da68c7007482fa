//! A thread for work that may hang: reading another process's memory waits for whoever serves its pages, which may be
//! a program that never answers (userfaultfd, FUSE).

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Threads that hang are left behind, up to so many; the end of this process ends them.
const MAX_LEFT_BEHIND: usize = 16;

/// It is waited for so much longer while it does not wait itself: on a machine with much to do it has no CPU.
const WITHOUT_CPU: Duration = Duration::from_secs(5);

type Work<T> = Box<dyn FnOnce() -> T + Send>;

/// Does one thing after the other.
pub struct Deputy<T> {
    work: Sender<Work<T>>,
    results: Receiver<T>,
    tid: libc::pid_t,
    left_behind: usize,
}

impl<T: Send + 'static> Deputy<T> {
    /// Starts the thread.
    pub fn new() -> Result<Self> {
        let (work, inbox) = mpsc::channel::<Work<T>>();
        let (sender, results) = mpsc::channel();
        let (tid_sender, tid) = mpsc::channel();
        let serve = move || {
            // SAFETY: takes no arguments.
            let tid = unsafe { libc::gettid() };
            tid_sender.send(tid).is_ok() && inbox.into_iter().all(|work| sender.send(work()).is_ok())
        };
        std::thread::Builder::new()
            .name("stackhound-py".into())
            .spawn(serve)
            .map_err(|error| Error::system("no thread for the memory of other processes", &error))?;
        Ok(Self {
            work,
            results,
            tid: tid.recv().unwrap_or(0), // it says so before anything else
            left_behind: 0,
        })
    }

    /// What the work came to; None when it took longer than this, or cannot be done any more.
    pub fn within(&mut self, patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.work.send(Box::new(work)).ok()?;
        let begun = Instant::now();
        loop {
            match self.results.recv_timeout(patience) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) if self.is_runnable() && begun.elapsed() < patience + WITHOUT_CPU => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.leave_behind();
                    return None;
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Whether the thread runs, or would if it had a CPU: it waits for nobody's memory.
    fn is_runnable(&self) -> bool {
        let stat = std::fs::read(format!("/proc/self/task/{}/stat", self.tid)).unwrap_or_default();
        let end_of_comm = stat.iter().rposition(|byte| *byte == b')');
        end_of_comm.is_some_and(|end| stat[end..].starts_with(b") R"))
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
    fn work_that_takes_its_time_is_waited_for() {
        let mut deputy = Deputy::new().unwrap();
        let compute = || {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(100) {
                std::hint::spin_loop();
            }
            4
        };
        assert_eq!(deputy.within(Duration::from_millis(20), compute), Some(4));
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
