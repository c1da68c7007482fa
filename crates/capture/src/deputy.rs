//! A thread for work that may hang: reading another process's memory waits for whoever serves its pages, which may be
//! a program that never answers (userfaultfd, FUSE).

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Threads that hang are left behind, up to so many at a time; the end of this process ends them. Each has some 30 KB.
const MAX_LEFT_BEHIND: usize = 256;

/// How long work is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// While it waits itself: for memory.
    pub waiting: Duration,
    /// As long as it does not: it computes, or has no CPU on a machine with much to do. At least as long as `waiting`.
    pub computing: Duration,
}

/// Why there is no result.
#[derive(Clone, Debug)]
pub enum Late {
    /// It took too long, and its thread was left behind with it.
    Behind(Behind),
    /// As many threads as may be are left behind, or no other could be made: nothing was begun.
    Nobody,
}

/// A thread that was left behind.
#[derive(Clone, Debug)]
pub struct Behind(Weak<()>);

impl Behind {
    /// Whether it is through with its work, and has ended.
    pub fn is_back(&self) -> bool {
        self.0.strong_count() == 0
    }
}

type Work<T> = Box<dyn FnOnce() -> T + Send>;

/// Does one thing after the other.
pub struct Deputy<T> {
    /// None: the last one was left behind, and no other was made.
    thread: Option<Thread<T>>,
    left_behind: Vec<Behind>,
}

struct Thread<T> {
    work: Sender<Work<T>>,
    results: Receiver<T>,
    tid: libc::pid_t,
    life: Weak<()>,
}

impl<T: Send + 'static> Thread<T> {
    fn start() -> Result<Self> {
        let (work, inbox) = mpsc::channel::<Work<T>>();
        let (sender, results) = mpsc::channel();
        let (tid_sender, tid) = mpsc::channel();
        let alive = Arc::new(());
        let life = Arc::downgrade(&alive);
        let serve = move || {
            let _until_its_end = alive;
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
            life,
        })
    }

    /// Whether it runs, or would if it had a CPU: it waits for nobody's memory.
    fn is_runnable(&self) -> bool {
        let stat = std::fs::read(format!("/proc/self/task/{}/stat", self.tid)).unwrap_or_default();
        let end_of_comm = stat.iter().rposition(|byte| *byte == b')');
        end_of_comm.is_some_and(|end| stat[end..].starts_with(b") R"))
    }

    /// What the work came to; None when it took too long, or the thread is gone.
    fn within(&self, patience: Patience, work: Work<T>) -> Option<T> {
        self.work.send(work).ok()?;
        let begun = Instant::now();
        loop {
            let left = patience.computing.saturating_sub(begun.elapsed());
            match self.results.recv_timeout(patience.waiting.min(left)) {
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() < patience.computing && self.is_runnable() => {}
                Err(_) => return None,
            }
        }
    }
}

impl<T: Send + 'static> Deputy<T> {
    /// Starts the thread.
    pub fn new() -> Result<Self> {
        Ok(Self {
            thread: Some(Thread::start()?),
            left_behind: Vec::new(),
        })
    }

    /// What the work came to, unless it took too long.
    pub fn within(
        &mut self,
        patience: Patience,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::result::Result<T, Late> {
        let thread = self.thread().ok_or(Late::Nobody)?;
        if let Some(result) = thread.within(patience, Box::new(work)) {
            return Ok(result);
        }
        let behind = Behind(thread.life.clone());
        self.left_behind.push(behind.clone());
        self.thread = None; // it ends with what it is at
        Err(Late::Behind(behind))
    }

    /// The one that is free, or another one as long as not too many are left behind; those that came back do not count.
    fn thread(&mut self) -> Option<&Thread<T>> {
        if self.thread.is_none() {
            self.left_behind.retain(|behind| !behind.is_back());
            let has_room = self.left_behind.len() < MAX_LEFT_BEHIND;
            self.thread = has_room.then(Thread::start).and_then(Result::ok);
        }
        self.thread.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Patience = Patience {
        waiting: Duration::from_secs(60),
        computing: Duration::from_secs(60),
    };
    const NONE: Patience = Patience {
        waiting: Duration::ZERO,
        computing: Duration::ZERO,
    };

    /// Work that hangs until what is returned with it is dropped.
    fn hanging() -> (Sender<()>, impl FnOnce() + Send + 'static) {
        let (keep, never) = mpsc::channel::<()>();
        let hang = move || {
            let _ = never.recv();
        };
        (keep, hang)
    }

    fn leave_behind(deputy: &mut Deputy<()>, work: impl FnOnce() + Send + 'static) -> Behind {
        match deputy.within(NONE, work) {
            Err(Late::Behind(behind)) => behind,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn work_that_hangs_is_left_behind_and_the_next_is_done() {
        let mut deputy = Deputy::new().unwrap();
        let (_keep, hang) = hanging();
        assert!(!leave_behind(&mut deputy, hang).is_back());
        assert!(deputy.within(LONG, || ()).is_ok());
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
        let patience = Patience {
            waiting: Duration::from_millis(20),
            ..LONG
        };
        assert_eq!(deputy.within(patience, compute).ok(), Some(4));
    }

    /// But not for ever: whoever computes without end is left behind as well.
    #[test]
    fn work_that_never_ends_is_not_waited_for() {
        let mut deputy = Deputy::new().unwrap();
        let (keep, stop) = mpsc::channel::<()>();
        let compute = move || while stop.try_recv() == Err(mpsc::TryRecvError::Empty) {};
        let patience = Patience {
            waiting: Duration::from_millis(1),
            computing: Duration::from_millis(20),
        };
        assert!(matches!(deputy.within(patience, compute), Err(Late::Behind(_))));
        drop(keep);
    }

    /// Nothing is begun while too many hang; as soon as one is back, there is room for another.
    #[test]
    fn threads_that_hang_do_not_become_ever_more() {
        let mut deputy = Deputy::new().unwrap();
        let hung: Vec<_> = (0..MAX_LEFT_BEHIND)
            .map(|_| {
                let (keep, hang) = hanging();
                (keep, leave_behind(&mut deputy, hang))
            })
            .collect();
        assert!(matches!(deputy.within(LONG, || ()), Err(Late::Nobody)));
        let (keep, behind) = hung.into_iter().next().unwrap();
        drop(keep);
        while !behind.is_back() {
            std::thread::yield_now();
        }
        assert!(deputy.within(LONG, || ()).is_ok());
    }
}
