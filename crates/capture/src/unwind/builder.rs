//! The threads that make unwind tables, in the order in which they are asked for: one for large files, so that the
//! others need not wait for them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use memmap2::Mmap;
use stackhound_core::address::{FileOffset, ObjectAddr};
use stackhound_core::elf::{Elf, Segment};
use stackhound_core::unwind::{self, Table};

use super::cache::Cache;
use super::memory::{Memory, Piece};
use super::tables::{self, Loaded, Outcome, Tables};
use crate::error::{Error, Result};
use crate::files::{FileId, reopen};
use crate::python::Found;
use crate::sigbus::Guard;
use crate::waker::Waker;

/// The table of a file of this size takes some 10 ms.
const LARGE_BYTES: u64 = 16 << 20;

enum Job {
    Load(u32, OwnedFd),
    GiveUp(u32),
    Unload(u32),
    Retire(Vec<Piece>),
    Tell(Sender<()>),
}

/// A handle on the threads. When it is dropped each ends after the table that it is at.
pub struct Builder {
    small: Sender<Job>,
    large: Sender<Job>,
    large_files: HashSet<u32>,
    workshop: Arc<Workshop>,
}

impl Builder {
    /// Starts the threads.
    pub fn start(tables: Tables, memory: Arc<Mutex<Memory>>, waker: Waker) -> Result<Self> {
        let workshop = Arc::new(Workshop {
            tables: Mutex::new(tables),
            memory,
            cache: OnceLock::new(),
            interpreters: Mutex::default(),
            waker,
            loaded: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        Ok(Self {
            small: workshop.hire("stackhound-cfi")?,
            large: workshop.hire("stackhound-cfi2")?,
            large_files: HashSet::new(),
            workshop,
        })
    }

    /// Makes the table of a file; without a handle there will be none.
    pub fn load(&mut self, file: u32, handle: Option<OwnedFd>) {
        let Some(handle) = handle else {
            return self.send(file, Job::GiveUp(file));
        };
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        if fs::metadata(path).is_ok_and(|metadata| metadata.len() >= LARGE_BYTES) {
            self.large_files.insert(file);
        }
        self.send(file, Job::Load(file, handle));
    }

    /// Puts the table of made code into a place, now. False when there is no room for it, or nothing in it.
    pub fn load_made(&self, place: u32, table: &Table, bytes: u64) -> bool {
        let segment = Segment {
            file_offset: FileOffset(0),
            address: ObjectAddr(0),
            size: bytes,
            executable: true,
        };
        let outcome = lock(&self.workshop.tables).load(place, &table.view(), &[segment]);
        let Outcome::Loaded(loaded) = outcome else {
            return false;
        };
        lock(&self.workshop.loaded).insert(place, loaded);
        true
    }

    /// Takes it out of that place, now.
    pub fn unload_made(&self, place: u32) {
        let loaded = lock(&self.workshop.loaded).remove(&place);
        if let Some(loaded) = loaded {
            self.retire(lock(&self.workshop.tables).unload(place, loaded));
        }
    }

    /// The interpreters of Python that were found in files since the last call.
    pub fn take_interpreters(&self) -> Vec<(FileId, Found)> {
        std::mem::take(&mut lock(&self.workshop.interpreters))
    }

    /// Takes a file's table out of use.
    pub fn unload(&mut self, file: u32) {
        self.send(file, Job::Unload(file));
        self.large_files.remove(&file);
    }

    /// Gives pieces back that nothing refers to any more.
    pub fn retire(&self, pieces: Vec<Piece>) {
        send(&self.small, Job::Retire(pieces));
    }

    /// Waits until all that was asked for is done, or until then.
    pub fn wait(&self, deadline: Instant) {
        let (tell, told) = mpsc::channel();
        for lane in [&self.small, &self.large] {
            send(lane, Job::Tell(tell.clone()));
        }
        for _ in 0..2 {
            // Too late is no failure.
            let _ = told.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }

    fn send(&self, file: u32, job: Job) {
        let is_large = self.large_files.contains(&file);
        send(if is_large { &self.large } else { &self.small }, job);
    }
}

impl Drop for Builder {
    fn drop(&mut self) {
        self.workshop.is_over.store(true, Ordering::Relaxed);
    }
}

/// A thread that has panicked has said so; the recording goes on without its tables.
fn send(lane: &Sender<Job>, job: Job) {
    let _ = lane.send(job);
}

/// What the threads share.
struct Workshop {
    tables: Mutex<Tables>,
    memory: Arc<Mutex<Memory>>,
    /// Opened when it is first needed.
    cache: OnceLock<Cache>,
    interpreters: Mutex<Vec<(FileId, Found)>>,
    waker: Waker,
    loaded: Mutex<HashMap<u32, Loaded>>,
    is_over: AtomicBool,
}

impl Workshop {
    fn hire(self: &Arc<Self>, name: &str) -> Result<Sender<Job>> {
        let (jobs, inbox) = mpsc::channel();
        let workshop = Arc::clone(self);
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || workshop.run(&inbox))
            .map_err(|error| Error::system("no thread for unwind tables", &error))?;
        Ok(jobs)
    }

    fn run(&self, inbox: &Receiver<Job>) {
        for job in inbox {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            match job {
                Job::Load(file, handle) => self.load(file, handle),
                Job::GiveUp(file) => lock(&self.tables).set_none(file),
                Job::Unload(file) => self.unload(file),
                Job::Retire(pieces) => self.retire(&pieces),
                Job::Tell(sender) => drop(sender.send(())),
            }
        }
    }

    fn load(&self, file: u32, handle: OwnedFd) {
        match self.make(file, handle) {
            Some(Outcome::Loaded(loaded)) => drop(lock(&self.loaded).insert(file, loaded)),
            Some(Outcome::Empty | Outcome::NoRoom) | None => lock(&self.tables).set_none(file),
        }
    }

    fn make(&self, file: u32, handle: OwnedFd) -> Option<Outcome> {
        let guard = Guard::new().ok()?;
        let bytes = map(handle)?;
        let elf = Elf::parse(&bytes).ok()?;
        if let Some(found) = Found::look(&elf, &bytes) {
            lock(&self.interpreters).push((FileId::from_index(file), found));
            self.waker.wake();
        }
        let cache = self.cache.get_or_init(Cache::open);
        let place = cache.place(&elf, &bytes);
        let put = |table: &unwind::TableView<'_>| lock(&self.tables).load(file, table, &elf.segments);
        if let Some(outcome) = place.as_ref().and_then(|place| cache.read(place, put)) {
            return Some(outcome);
        }
        let table = unwind::build(&bytes).ok()?;
        if guard.zeroed_pages() > 0 {
            return None; // cut off meanwhile
        }
        let outcome = put(&table.view());
        if let Some(place) = place {
            cache.write(&place, &table);
        }
        Some(outcome)
    }

    fn unload(&self, file: u32) {
        let loaded = lock(&self.loaded).remove(&file);
        if let Some(loaded) = loaded {
            let pieces = lock(&self.tables).unload(file, loaded);
            self.retire(&pieces);
        }
    }

    fn retire(&self, pieces: &[Piece]) {
        wait_for_programs();
        tables::free(&self.memory, pieces);
    }
}

/// What a thread that panicked has left is whole: each change is one call.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn map(handle: OwnedFd) -> Option<Mmap> {
    let file = reopen(&handle).ok()?;
    // SAFETY: the guard of sigbus.rs turns pages that are cut off meanwhile into zeros; bytes that change under the
    // parser make a wrong table, as they make a wrong program.
    unsafe { Mmap::map(&file) }.ok()
}

/// After this no program is running that began before it: each runs within RCU's protection.
fn wait_for_programs() {
    const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1; // synchronize_rcu()
    // SAFETY: takes no pointers.
    if unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) } != 0 {
        // The kernel refuses it where CPUs run without a tick (nohz_full). No program runs for so long.
        std::thread::sleep(Duration::from_secs(1));
    }
}
