//! The threads that make unwind tables, in the order in which they are asked for: one for large files, so that the
//! others need not wait for them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use memmap2::Mmap;
use stackhound_core::address::{FileOffset, ObjectAddr};
use stackhound_core::elf::{Elf, Segment};
use stackhound_core::unwind::{self, Table};

use super::cache::{self, Cache};
use super::known_files::KnownFiles;
use super::memory::{Memory, Piece};
use super::tables::{self, Loaded, Outcome, Tables};
use crate::error::{Error, Result};
use crate::files::{FileId, Inode, reopen};
use crate::python::Found;
use crate::sigbus::Guard;
use crate::waker::Waker;

/// The table of a file of this size takes some 10 ms.
const LARGE_BYTES: u64 = 16 << 20;

enum Job {
    Load(u32, OwnedFd, Option<Inode>),
    GiveUp(u32),
    Unload(u32),
    Retire(Vec<Piece>),
    Discard(Loaded),
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
    pub fn start(tables: Tables, known: KnownFiles, memory: Arc<Mutex<Memory>>, waker: Waker) -> Result<Self> {
        let workshop = Arc::new(Workshop {
            tables: Mutex::new(tables),
            known: Mutex::new(known),
            memory,
            cache: OnceLock::new(),
            interpreters: Mutex::default(),
            waker,
            loaded: Mutex::default(),
            by_identity: Mutex::default(),
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
    pub fn load(&mut self, file: u32, handle: Option<OwnedFd>, inode: Option<Inode>) {
        let Some(handle) = handle else {
            return self.send(file, Job::GiveUp(file));
        };
        let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
        if fs::metadata(path).is_ok_and(|metadata| metadata.len() >= LARGE_BYTES) {
            self.large_files.insert(file);
        }
        self.send(file, Job::Load(file, handle, inode));
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
        lock(&self.workshop.loaded).insert(place, Arc::new(loaded));
        true
    }

    /// Takes it out of that place, now.
    pub fn unload_made(&self, place: u32) {
        if let Some(loaded) = self.workshop.take_out(place) {
            send(&self.small, Job::Discard(loaded));
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
    known: Mutex<KnownFiles>,
    memory: Arc<Mutex<Memory>>,
    /// Opened when it is first needed.
    cache: OnceLock<Cache>,
    interpreters: Mutex<Vec<(FileId, Found)>>,
    waker: Waker,
    /// By place in the table of files. Files that are the same have one table.
    loaded: Mutex<HashMap<u32, Arc<Loaded>>>,
    by_identity: Mutex<HashMap<String, Weak<Loaded>>>,
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
                Job::Load(file, handle, inode) => self.load(file, handle, inode),
                Job::GiveUp(file) => lock(&self.tables).set_none(file),
                Job::Unload(file) => self.unload(file),
                Job::Retire(pieces) => {
                    wait_for_programs();
                    tables::free(&self.memory, &pieces);
                }
                Job::Discard(loaded) => self.discard(loaded),
                Job::Tell(sender) => drop(sender.send(())),
            }
        }
    }

    fn load(&self, file: u32, handle: OwnedFd, inode: Option<Inode>) {
        match self.find_or_make(file, handle, inode) {
            Some(loaded) => drop(lock(&self.loaded).insert(file, loaded)),
            None => lock(&self.tables).set_none(file),
        }
    }

    fn find_or_make(&self, file: u32, handle: OwnedFd, inode: Option<Inode>) -> Option<Arc<Loaded>> {
        let guard = Guard::new().ok()?;
        let bytes = map(handle)?;
        let elf = Elf::parse(&bytes).ok()?;
        if let Some(found) = Found::look(&elf, &bytes) {
            lock(&self.interpreters).push((FileId::from_index(file), found));
            self.waker.wake();
        }
        let table = self.table_of(file, &elf, &bytes, &guard)?;
        if let Some(inode) = inode {
            lock(&self.known).add(file, inode, &elf);
        }
        Some(table)
    }

    fn table_of(&self, file: u32, elf: &Elf, bytes: &[u8], guard: &Guard) -> Option<Arc<Loaded>> {
        let identity = cache::identity(elf, bytes);
        if let Some(same) = identity.as_ref().and_then(|identity| self.find(identity)) {
            lock(&self.tables).publish(file, &same);
            return Some(same);
        }
        let Outcome::Loaded(loaded) = self.make(file, elf, bytes, identity.as_deref(), guard)? else {
            return None;
        };
        let loaded = Arc::new(loaded);
        if let Some(identity) = identity {
            self.remember(identity, &loaded);
        }
        Some(loaded)
    }

    /// From the cache, or anew.
    fn make(&self, file: u32, elf: &Elf, bytes: &[u8], identity: Option<&str>, guard: &Guard) -> Option<Outcome> {
        let cache = self.cache.get_or_init(Cache::open);
        let place = identity.and_then(|identity| cache.place(identity));
        let put = |table: &unwind::TableView<'_>| lock(&self.tables).load(file, table, &elf.segments);
        if let Some(outcome) = place.as_ref().and_then(|place| cache.read(place, put)) {
            return Some(outcome);
        }
        let table = unwind::build(bytes).ok()?;
        if guard.zeroed_pages() > 0 {
            return None; // cut off meanwhile
        }
        let outcome = put(&table.view());
        if let Some(place) = place {
            cache.write(&place, &table);
        }
        Some(outcome)
    }

    /// The table of a file that is the same, like that of another container.
    fn find(&self, identity: &str) -> Option<Arc<Loaded>> {
        lock(&self.by_identity).get(identity)?.upgrade()
    }

    fn remember(&self, identity: String, loaded: &Arc<Loaded>) {
        let mut by_identity = lock(&self.by_identity);
        by_identity.retain(|_, other| other.strong_count() > 0);
        by_identity.insert(identity, Arc::downgrade(loaded));
    }

    fn unload(&self, file: u32) {
        if let Some(loaded) = self.take_out(file) {
            self.discard(loaded);
        }
    }

    /// The walker does not use a table for a file any more. Returns the table if no other file has it.
    fn take_out(&self, file: u32) -> Option<Loaded> {
        let loaded = lock(&self.loaded).remove(&file)?;
        lock(&self.known).remove(file);
        lock(&self.tables).forget(file);
        Arc::into_inner(loaded)
    }

    fn discard(&self, loaded: Loaded) {
        wait_for_programs();
        lock(&self.tables).free(loaded);
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

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn builder() -> Builder {
        let memory = Arc::new(Mutex::new(Memory::anonymous()));
        let tables = Tables::anonymous(Arc::clone(&memory)).unwrap();
        let builder = Builder::start(tables, KnownFiles::default(), memory, Waker::new().unwrap()).unwrap();
        assert!(builder.workshop.cache.set(Cache::default()).is_ok()); // none: the user's own is left alone
        builder
    }

    /// Copies of the program of this test: inodes of their own.
    fn load(builder: &mut Builder, count: u32) {
        for file in 0..count {
            let path = std::env::temp_dir().join(format!("stackhound-same-{file}-{:?}", std::thread::current().id()));
            fs::copy("/proc/self/exe", &path).unwrap();
            builder.load(file, Some(fs::File::open(&path).unwrap().into()), None);
            fs::remove_file(path).unwrap();
        }
        builder.wait(Instant::now() + PATIENCE);
    }

    fn loaded(builder: &Builder, file: u32) -> Arc<Loaded> {
        Arc::clone(&lock(&builder.workshop.loaded)[&file])
    }

    #[test]
    fn files_that_are_the_same_have_one_table() {
        let mut builder = builder();
        load(&mut builder, 2);
        assert!(Arc::ptr_eq(&loaded(&builder, 0), &loaded(&builder, 1)));
    }

    #[test]
    fn a_table_is_kept_for_as_long_as_one_of_its_files_is_used() {
        let mut builder = builder();
        load(&mut builder, 2);
        let identity = lock(&builder.workshop.by_identity).keys().next().unwrap().clone();
        builder.unload(0);
        builder.wait(Instant::now() + PATIENCE);
        assert!(builder.workshop.find(&identity).is_some());
        builder.unload(1);
        builder.wait(Instant::now() + PATIENCE);
        assert!(builder.workshop.find(&identity).is_none());
    }
}
