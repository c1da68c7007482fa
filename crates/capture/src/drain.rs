//! The rings of samples, one for each CPU, that `bpf/emit.h` fills: emptied on a timer.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::abi;
use crate::error::Result;
use crate::mapped::MappedArray;
use crate::programs::bpf_error;
use crate::raw_sample::RawSample;

/// The rings of the CPUs that are, or were, online.
pub struct Rings {
    rings: BTreeMap<u32, Ring>,
    ring_bytes: usize,
    outer: Option<MapHandle>,
    /// Times and places of the records that were there at the last look.
    found: Vec<(u64, Place)>,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    cpu: u32,
    position: u64,
}

impl Rings {
    /// `ring_bytes` for each CPU: a power of two with room for a sample.
    pub fn new(ring_bytes: usize, online: &[u32]) -> Result<Self> {
        let mut rings = Self {
            rings: BTreeMap::new(),
            ring_bytes,
            outer: None,
            found: Vec::new(),
        };
        rings.add_missing(online)?;
        Ok(rings)
    }

    /// Of each ring, for records.
    pub fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// A map like all inner ones, for the verifier.
    pub fn template(&self) -> &MapHandle {
        self.rings.values().next().expect("some CPU is online").memory.map()
    }

    /// Hands the rings to the programs.
    pub fn install(&mut self, outer: MapHandle) -> Result<()> {
        self.rings
            .iter()
            .try_for_each(|(cpu, ring)| ring.install(&outer, *cpu))?;
        self.outer = Some(outer);
        Ok(())
    }

    /// Gives each CPU that came online a ring.
    pub fn add_missing(&mut self, online: &[u32]) -> Result<()> {
        for cpu in online {
            if !self.rings.contains_key(cpu) {
                let ring = Ring::new(self.ring_bytes)?;
                self.outer.as_ref().map_or(Ok(()), |outer| ring.install(outer, *cpu))?;
                self.rings.insert(*cpu, ring);
            }
        }
        Ok(())
    }

    /// Finds all records that are there now.
    pub fn look(&mut self) {
        for ring in self.rings.values_mut() {
            ring.seen = ring.head().load(Ordering::Acquire);
        }
        order_stores();
        self.found.clear();
        for (&cpu, ring) in &self.rings {
            let mut position = ring.taken;
            while position < ring.seen {
                let sample = ring.sample(position);
                self.found.push((sample.header.boottime_ns, Place { cpu, position }));
                position = ring.after(position, sample.record_bytes());
            }
        }
        self.found.sort_unstable();
    }

    /// Calls `handle` with each record that was found, ordered by time, and gives their room back to the programs.
    pub fn take(&mut self, mut handle: impl FnMut(RawSample<'_>)) {
        for (_, place) in self.found.drain(..) {
            handle(self.rings[&place.cpu].sample(place.position));
        }
        for ring in self.rings.values_mut() {
            ring.taken = ring.seen;
            ring.tail().store(ring.taken, Ordering::Release);
        }
    }
}

struct Ring {
    memory: MappedArray,
    bytes: u64,
    taken: u64,
    seen: u64,
}

const CONTROL_WORDS: usize = size_of::<abi::Ring>() / 8;
const HEAD_WORD: usize = std::mem::offset_of!(abi::Ring, head) / 8;
const TAIL_WORD: usize = std::mem::offset_of!(abi::Ring, tail) / 8;

impl Ring {
    fn new(bytes: usize) -> Result<Self> {
        let value_bytes = size_of::<abi::Ring>() + bytes + size_of::<abi::Sample>();
        Ok(Self {
            memory: MappedArray::new("ring", value_bytes, 1, 0)?,
            bytes: bytes as u64,
            taken: 0,
            seen: 0,
        })
    }

    fn install(&self, outer: &MapHandle, cpu: u32) -> Result<()> {
        let fd = self.memory.map().as_fd().as_raw_fd();
        outer
            .update(&cpu.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| bpf_error("a CPU's ring cannot be put in place", &error))
    }

    fn head(&self) -> &AtomicU64 {
        self.control(HEAD_WORD)
    }

    fn tail(&self) -> &AtomicU64 {
        self.control(TAIL_WORD)
    }

    fn control(&self, word: usize) -> &AtomicU64 {
        // SAFETY: within the mapping, aligned, and shared with the kernel as a word that changes.
        unsafe { AtomicU64::from_ptr(self.memory.words().add(word).as_ptr()) }
    }

    /// The record at `position`, which lies between `taken` and `seen`.
    fn sample(&self, position: u64) -> RawSample<'_> {
        let first = CONTROL_WORDS + (position & (self.bytes - 1)) as usize / 8;
        // SAFETY: within the mapping; nothing writes to these records before `release`.
        let words =
            unsafe { std::slice::from_raw_parts(self.memory.words().add(first).as_ptr(), self.memory.len() - first) };
        RawSample::parse(words).expect("the programs hand over whole records")
    }

    fn after(&self, position: u64, record_bytes: u64) -> u64 {
        let mask = self.bytes - 1;
        if (position & mask) + record_bytes < self.bytes {
            position + record_bytes
        } else {
            (position | mask) + 1
        }
    }
}

/// After this, what the programs stored before the heads that were read is here, too. x86 orders stores itself; on other
/// processors every CPU passes a barrier now. The kernel refuses that where CPUs run without a tick (`nohz_full`): there
/// the stores, which are older than the timer's turn, have nothing but the time to arrive.
fn order_stores() {
    #[cfg(not(target_arch = "x86_64"))]
    {
        const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;
        // SAFETY: takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) };
    }
}
