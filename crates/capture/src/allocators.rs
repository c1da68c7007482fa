//! Allocations of programs as they are (`bpf/allocators.bpf.c`): uprobes on the functions of their allocators.
//!
//! Each call of such a function is a trap, and there may be millions a second. So they are watched in windows: as soon as
//! the traps of a window have cost more than was allowed for the time since it began, it is closed; the next one begins
//! when as much again would be allowed for all of the time so far. What was allocated in a window that is closed is not
//! followed any further.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libbpf_rs::Link;
use memmap2::Mmap;
use stackhound_core::allocators::{Call, find_allocators};
use stackhound_core::maps::parse_maps;

use crate::abi;
use crate::cost;
use crate::error::Result;
use crate::options::Options;
use crate::procfs;
use crate::programs::{Programs, UprobeSite};

/// The shortest window: attaching takes about a millisecond a file.
const WINDOW: Duration = Duration::from_millis(25);
/// New processes and files are looked for so often, for each process that is watched.
const SCAN_INTERVAL: Duration = Duration::from_millis(20);
const LONGEST_SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// Calls that calibrate what a trap takes, in batches: the fastest one was disturbed least.
const CALIBRATION_CALLS: u32 = 200;
const CALIBRATION_BATCHES: u32 = 8;
/// What a program works with between two calls: more than the first cache holds. A trap finds what it needs there
/// replaced, and replaces what the program needs next.
const CALIBRATION_BYTES: usize = 64 << 10;
const CACHE_LINE_BYTES: usize = 64;

/// (device, inode)
type FileId = ((u32, u32), u64);

/// The functions of a file, and a path that leads to it.
#[derive(Clone)]
struct Allocator {
    path: PathBuf,
    sites: Vec<UprobeSite>,
}

/// What is watched, and what that costs.
pub struct Allocators {
    /// Of the time that passes; all of it: no limit.
    most_share: f64,
    trap_ns: f64,
    known: HashMap<FileId, Vec<UprobeSite>>,
    /// Of the command, which does not have them mapped yet.
    expected: Vec<(FileId, Allocator)>,
    /// Attached in the window that is open.
    links: Vec<Link>,
    attached: HashSet<(u32, FileId)>,
    /// Counts the windows; the open one's, or the last one's.
    window: u64,
    is_open: bool,
    opened: Instant,
    traps_before: u64,
    /// When it is looked at next.
    due: Instant,
    scanned: Instant,
    processes: u32,
    begun: Instant,
    watched: Duration,
    taken: Duration,
    traps: u64,
}

impl Allocators {
    /// Begins the first window. None when programs are not watched.
    pub fn begin(options: &Options, programs: &mut Programs) -> Result<Option<Self>> {
        if !options.heap_uprobes {
            return Ok(None);
        }
        let now = Instant::now();
        let mut allocators = Self {
            most_share: share_of(options.heap_max_slowdown_percent / 100.0),
            trap_ns: calibrate(programs)?,
            known: HashMap::new(),
            expected: options.heap_files.iter().filter_map(|path| read_file(path)).collect(),
            links: Vec::new(),
            attached: HashSet::new(),
            window: 0,
            is_open: false,
            opened: now,
            traps_before: 0,
            due: now,
            scanned: now,
            processes: 0,
            begun: now,
            watched: Duration::ZERO,
            taken: Duration::ZERO,
            traps: 0,
        };
        allocators.open(programs)?;
        Ok(Some(allocators))
    }

    /// How long nothing has to be done.
    pub fn patience(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Opens or closes a window when it is time to. Returns the number of one that was closed.
    pub fn turn(&mut self, programs: &mut Programs) -> Result<Option<u64>> {
        let now = Instant::now();
        let scan_interval = (SCAN_INTERVAL * self.processes).clamp(SCAN_INTERVAL, LONGEST_SCAN_INTERVAL);
        if self.is_open && now.duration_since(self.scanned) >= scan_interval {
            self.attach(programs)?;
        }
        if now < self.due {
            return Ok(None);
        }
        if !self.is_open {
            self.open(programs)?;
            return Ok(None);
        }
        let (_, taken) = self.cost(programs);
        let allowed = taken.div_f64(self.most_share);
        if allowed <= self.opened.elapsed() || self.most_share >= 1.0 {
            self.due = now + WINDOW;
            return Ok(None);
        }
        let before = self.taken;
        self.close(programs)?; // until that is done there are traps
        let window = self.taken - before;
        self.due = self.begun + (self.taken + window).div_f64(self.most_share);
        Ok(Some(self.window))
    }

    /// The traps of this window so far, and what they have taken of the programs' time.
    fn cost(&self, programs: &mut Programs) -> (u64, Duration) {
        let counters = programs.counters();
        let traps = counters.traps - self.traps_before;
        let pass_ns = counters.timed_passes_ns as f64 / counters.timed_passes.max(1) as f64;
        let taken_ns = traps as f64 * (self.trap_ns + pass_ns);
        (traps, Duration::from_nanos(taken_ns as u64))
    }

    fn open(&mut self, programs: &mut Programs) -> Result<()> {
        self.window += 1;
        let window = self.window;
        programs.change_settings(|settings| settings.heap_window = window)?;
        self.traps_before = programs.counters().traps;
        self.is_open = true;
        self.opened = Instant::now();
        self.due = self.opened + WINDOW;
        self.attach(programs)
    }

    /// Takes the uprobes off.
    pub fn close(&mut self, programs: &mut Programs) -> Result<()> {
        if !self.is_open {
            return Ok(());
        }
        self.links.clear();
        self.attached.clear();
        self.is_open = false;
        self.watched += self.opened.elapsed();
        let (traps, taken) = self.cost(programs);
        self.traps += traps;
        self.taken += taken;
        programs.change_settings(|settings| settings.heap_window = 0)
    }

    /// Watches processes that are not watched yet.
    fn attach(&mut self, programs: &mut Programs) -> Result<()> {
        self.scanned = Instant::now();
        let targets = programs.targets();
        self.processes = targets.len() as u32;
        for pid in targets {
            let expected = std::mem::take(&mut self.expected);
            for (id, allocator) in self.allocators_of(pid).into_iter().chain(expected) {
                if self.attached.insert((pid, id)) {
                    let links = programs.attach_allocator(pid, &allocator.path, &allocator.sites);
                    self.links.extend(links?); // none where the process has just ended
                }
            }
        }
        Ok(())
    }

    fn allocators_of(&mut self, pid: u32) -> Vec<(FileId, Allocator)> {
        let maps = procfs::maps(pid).unwrap_or_default();
        let mut found: HashMap<FileId, Allocator> = HashMap::new();
        for map in parse_maps(&maps).filter(|map| map.executable && map.inode != 0) {
            let id = (map.device, map.inode);
            let path = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", map.start.0, map.end.0));
            let sites = self.known.entry(id).or_insert_with(|| read_sites(&path)).clone();
            if !sites.is_empty() {
                found.entry(id).or_insert(Allocator { path, sites });
            }
        }
        found.into_iter().collect()
    }

    /// What is to be said of it at the end.
    pub fn note(&self) -> String {
        let elapsed = self.begun.elapsed().as_secs_f64().max(1e-9);
        let watched = 100.0 * self.watched.as_secs_f64() / elapsed;
        let taken = 100.0 * self.taken.as_secs_f64() / elapsed;
        let each_us = self.taken.as_secs_f64() * 1e6 / self.traps.max(1) as f64;
        format!(
            "allocations were watched {watched:.1}% of the time, by uprobes: {} traps of {each_us:.1} µs (calibrated), \
             {taken:.1}% of one thread's time",
            self.traps,
        )
    }
}

fn read_sites(path: &Path) -> Vec<UprobeSite> {
    map_file(path).map_or_else(Vec::new, |bytes| sites_in(&bytes))
}

/// A file that nobody need have mapped; None without an allocator in it.
fn read_file(path: &Path) -> Option<(FileId, Allocator)> {
    let bytes = map_file(path)?;
    let sites = sites_in(&bytes);
    let (id, _) = mapped_at(bytes.as_ptr() as u64)?; // as the maps of a process that has it will say
    let path = path.to_owned();
    (!sites.is_empty()).then_some((id, Allocator { path, sites }))
}

fn map_file(path: &Path) -> Option<Mmap> {
    let file = File::open(path).ok()?;
    // SAFETY: read under the guard of crates/capture/src/sigbus.rs, as all files of programs are.
    unsafe { Mmap::map(&file) }.ok()
}

fn sites_in(file: &[u8]) -> Vec<UprobeSite> {
    let sites = find_allocators(file).into_iter();
    sites
        .map(|(offset, call)| UprobeSite {
            offset: offset.0 as usize,
            call: cookie(call),
        })
        .collect()
}

fn cookie(call: Call) -> u32 {
    match call {
        Call::Malloc => abi::CALL_MALLOC,
        Call::Calloc => abi::CALL_CALLOC,
        Call::Realloc => abi::CALL_REALLOC,
        Call::ReallocArray => abi::CALL_REALLOCARRAY,
        Call::Aligned => abi::CALL_ALIGNED,
        Call::PosixMemalign => abi::CALL_POSIX_MEMALIGN,
        Call::Free => abi::CALL_FREE,
        Call::Mmap => abi::CALL_MMAP,
        Call::Mremap => abi::CALL_MREMAP,
    }
}

/// What makes a thread slower by this much, as a share of the time that passes. Twice as slow: no limit.
fn share_of(slowdown: f64) -> f64 {
    if slowdown < 1.0 {
        slowdown / (1.0 + slowdown)
    } else {
        1.0
    }
}

/// Stands for a function of an allocator.
#[inline(never)]
extern "C" fn trapped() {
    std::hint::black_box(());
}

/// What a trap takes, the mean of one at the beginning of a function and one at its end.
fn calibrate(programs: &mut Programs) -> Result<f64> {
    let pid = std::process::id();
    let Some((path, offset)) = place_of(trapped as *const () as u64) else {
        return Ok(FALLBACK_TRAP_NS);
    };
    let site = UprobeSite {
        offset,
        call: abi::CALL_MALLOC,
    };
    let plain_ns = fastest_call_ns();
    let links = programs.attach_allocator(pid, &path, &[site])?;
    let trapped_ns = fastest_call_ns();
    drop(links);
    Ok(((trapped_ns - plain_ns) / 2.0).max(1.0))
}

/// Where this code cannot be found: of a virtual machine in 2026.
const FALLBACK_TRAP_NS: f64 = 2_000.0;

/// A call, and some work, in CPU time of this thread.
fn fastest_call_ns() -> f64 {
    let mut work = vec![1_u8; CALIBRATION_BYTES];
    let batches = (0..CALIBRATION_BATCHES).map(|_| {
        let begun_ns = cost::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        for _ in 0..CALIBRATION_CALLS {
            std::hint::black_box(trapped as extern "C" fn())();
            let lines = std::hint::black_box(&mut work).iter_mut().step_by(CACHE_LINE_BYTES);
            lines.for_each(|byte| *byte = byte.wrapping_add(1));
        }
        cost::clock_ns(libc::CLOCK_THREAD_CPUTIME_ID).saturating_sub(begun_ns)
    });
    batches.min().unwrap_or_default() as f64 / f64::from(CALIBRATION_CALLS)
}

/// The file that has this code of ours, and where.
fn place_of(address: u64) -> Option<(PathBuf, usize)> {
    let (_, (start, end, offset)) = mapped_at(address)?;
    let path = PathBuf::from(format!("/proc/self/map_files/{start:x}-{end:x}"));
    Some((path, (address - start + offset) as usize))
}

/// What is mapped there in this process: the file, and (begin, end, offset in it).
fn mapped_at(address: u64) -> Option<(FileId, (u64, u64, u64))> {
    let maps = procfs::maps(std::process::id())?;
    let map = parse_maps(&maps).find(|map| (map.start.0..map.end.0).contains(&address) && map.inode != 0)?;
    let place = (map.start.0, map.end.0, map.file_offset.0);
    Some(((map.device, map.inode), place))
}
