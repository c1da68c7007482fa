//! Two threads that look up symbols, and keep what they parsed for the next time.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use hashbrown::HashMap;

use super::debug_files::DebugDirs;
use super::resolver::{Request, Resolver};
use super::symbols::Symbols;
use crate::rows::ObjectId;
use crate::symbolize::Source;

/// Threads: more would wait for the largest object.
const WORKERS: usize = 2;

/// The threads, started when first needed.
#[derive(Default)]
pub(crate) struct Pool {
    debug_dirs: DebugDirs,
    workers: Vec<Worker>,
    /// Which of them has read an object's files before.
    homes: HashMap<ObjectId, usize>,
    /// Which of them has read the kernel's symbols, which serve its modules, too, and take 0.1 s to read.
    kernel_home: Option<usize>,
}

/// A file with so many addresses is looked up by all of them: what they parse twice is less than what that saves.
const SHARED_ADDRESSES: usize = 256;

/// Addresses of one object, in increasing order.
pub(super) struct Job {
    /// What its answer is known by.
    pub(super) number: usize,
    pub(super) object: ObjectId,
    /// Which part of an object that both look up.
    pub(super) part: Option<usize>,
    /// The real name of its file.
    pub(super) name: OsString,
    pub(super) source: Source,
    pub(super) addresses: Vec<u64>,
    pub(super) lines: bool,
}

/// How many parts a file's look-up has.
pub(super) fn parts(addresses: usize, lines: bool) -> usize {
    let is_worth_it = lines && addresses >= SHARED_ADDRESSES;
    match is_worth_it && thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= WORKERS) {
        true => WORKERS,
        false => 1,
    }
}

impl Job {
    fn request(&self) -> Request<'_> {
        Request {
            name: &self.name,
            source: &self.source,
            addresses: &self.addresses,
            lines: self.lines,
        }
    }
}

impl Pool {
    pub(super) fn new(debug_dirs: DebugDirs) -> Self {
        Self {
            debug_dirs,
            ..Self::default()
        }
    }

    pub(super) fn debug_dirs(&self) -> &DebugDirs {
        &self.debug_dirs
    }

    /// Look up addresses, which are in increasing order. The result is an [`Pool::answer`].
    pub(super) fn ask(&mut self, job: Job) {
        let is_kernel = matches!(job.source, Source::Kernel { .. });
        let home = job.part.or_else(|| self.homes.get(&job.object).copied());
        let home = home.or(self.kernel_home.filter(|_| is_kernel));
        let worker = home.unwrap_or_else(|| self.least_loaded());
        self.homes.insert(job.object, worker);
        if is_kernel {
            self.kernel_home = Some(worker);
        }
        while self.workers.len() <= worker {
            self.start_worker();
        }
        self.workers[worker].ask(job);
    }

    fn least_loaded(&mut self) -> usize {
        if self.workers.len() < WORKERS {
            self.start_worker();
            return self.workers.len() - 1;
        }
        (0..WORKERS)
            .min_by_key(|&worker| self.workers[worker].load)
            .unwrap_or(0)
    }

    fn start_worker(&mut self) {
        self.workers.push(Worker::start(self.debug_dirs.clone()));
    }

    /// One of the results that are still to come, in any order, with the number of its job.
    pub(super) fn answer(&mut self) -> Option<(usize, Symbols)> {
        self.workers.iter_mut().find_map(Worker::answer)
    }
}

/// A thread, and what it was asked for.
struct Worker {
    jobs: Sender<Job>,
    answers: Receiver<Symbols>,
    /// (number of the job, number of addresses) of each answer that is still to come.
    asked: VecDeque<(usize, usize)>,
    /// Addresses that it was asked for so far.
    load: usize,
}

impl Worker {
    /// The thread ends when the worker is dropped.
    fn start(debug_dirs: DebugDirs) -> Self {
        let (jobs, todo) = channel::<Job>();
        let (done, answers) = channel();
        thread::spawn(move || {
            let mut resolver = Resolver::new(debug_dirs);
            for job in todo {
                if done.send(resolver.resolve(&job.request())).is_err() {
                    break;
                }
            }
        });
        Self {
            jobs,
            answers,
            asked: VecDeque::new(),
            load: 0,
        }
    }

    fn ask(&mut self, job: Job) {
        self.asked.push_back((job.number, job.addresses.len()));
        self.load += job.addresses.len();
        // A thread that is gone shows when its answer is awaited.
        let _ = self.jobs.send(job);
    }

    fn answer(&mut self) -> Option<(usize, Symbols)> {
        let (job, addresses) = self.asked.pop_front()?;
        let symbols = self
            .answers
            .recv()
            .unwrap_or_else(|_| Symbols::missing("symbol look-up failed", addresses));
        Some((job, symbols))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module's symbols are looked up where the kernel's were read, other objects' wherever there is less to do.
    #[test]
    fn the_kernel_and_its_modules_share_a_thread() {
        let kernel = Source::Kernel {
            kallsyms: "/nowhere".into(),
            vmlinux: None,
            base: 0,
        };
        let mut pool = Pool::default();
        for (object, source) in [kernel.clone(), Source::Named("f".into()), kernel]
            .into_iter()
            .enumerate()
        {
            pool.ask(Job {
                number: object,
                object: ObjectId(object as u32),
                part: None,
                name: OsString::new(),
                source,
                addresses: vec![1],
                lines: false,
            });
        }
        let home = |object| pool.homes[&ObjectId(object)];
        assert_eq!(home(0), home(2));
        assert_ne!(home(0), home(1));
    }
}
