//! The rings of samples, one for each CPU and hook, that `bpf/emit.h` fills: emptied on a timer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::MapHandle;

use crate::abi;
use crate::error::{Error, Result};
use crate::mapped::{Mapped, page_bytes};
use crate::raw_sample::RawSample;

/// How large the rings are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layout {
    /// Of records in each ring: a power of two with room for a sample.
    pub ring_bytes: usize,
    /// CPUs that have rings.
    pub cpus: usize,
    /// Kinds of programs that write, each into rings of its own (`bpf/abi.h`, `enum hook`).
    pub hooks: usize,
}

impl Layout {
    /// Rings for all CPUs that may ever come; for those up to the last one that is online where that takes too much.
    pub fn new(ring_bytes: usize, possible: usize, online: &[u32], hooks: usize) -> Self {
        const MAX_SPARE_BYTES: usize = 64 << 20;
        let up_to_last = online.iter().max().map_or(1, |last| *last as usize + 1);
        let cpus = if possible * hooks * ring_bytes <= MAX_SPARE_BYTES {
            possible
        } else {
            up_to_last
        };
        Self {
            ring_bytes,
            cpus,
            hooks,
        }
    }

    /// All of them.
    pub fn rings(&self) -> usize {
        self.cpus * self.hooks
    }

    /// Those of the CPUs that are given.
    fn places<'a>(&self, online: &'a [u32]) -> impl Iterator<Item = u32> + use<'a> {
        let (cpus, hooks) = (self.cpus as u32, self.hooks as u32);
        let with_rings = online.iter().filter(move |cpu| **cpu < cpus);
        with_rings.flat_map(move |cpu| (0..hooks).map(move |hook| hook * cpus + cpu))
    }

    /// Of a value of the map: whole pages, so that each can be mapped by itself.
    pub fn value_bytes(&self) -> usize {
        (size_of::<abi::Ring>() + self.ring_bytes + size_of::<abi::Sample>()).next_multiple_of(page_bytes())
    }
}

/// The rings of the CPUs that are, or were, online.
pub struct Rings {
    /// By their places in the map.
    rings: BTreeMap<u32, Ring>,
    map: MapHandle,
    layout: Layout,
    /// Times and places of the records that were there at the last look.
    found: Vec<(u64, Place)>,
}

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    ring: u32,
    position: u64,
}

impl Rings {
    /// On the programs' map.
    pub fn new(map: MapHandle, layout: Layout, online: &[u32]) -> Result<Self> {
        let mut rings = Self {
            rings: BTreeMap::new(),
            map,
            layout,
            found: Vec::new(),
        };
        rings.add_missing(online)?;
        Ok(rings)
    }

    /// Reads the rings of CPUs that came online, too.
    pub fn add_missing(&mut self, online: &[u32]) -> Result<()> {
        for place in self.layout.places(online) {
            if let Entry::Vacant(vacant) = self.rings.entry(place) {
                vacant.insert(Ring::new(&self.map, &self.layout, place)?);
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
        for (&place, ring) in &self.rings {
            let mut position = ring.taken;
            while position < ring.seen {
                let sample = ring.sample(position);
                self.found
                    .push((sample.header.boottime_ns, Place { ring: place, position }));
                position = ring.after(position, sample.record_bytes());
            }
        }
        self.found.sort_unstable();
    }

    /// The records that were found, in the order of their times.
    pub fn found(&self) -> impl Iterator<Item = RawSample<'_>> {
        self.found
            .iter()
            .map(|(_, place)| self.rings[&place.ring].sample(place.position))
    }

    /// Calls `handle` with each record that was found, ordered by time, and gives their room back to the programs.
    pub fn take(&mut self, mut handle: impl FnMut(RawSample<'_>)) {
        for (_, place) in self.found.drain(..) {
            handle(self.rings[&place.ring].sample(place.position));
        }
        for ring in self.rings.values_mut() {
            ring.taken = ring.seen;
            ring.tail().store(ring.taken, Ordering::Release);
        }
    }
}

struct Ring {
    memory: Mapped,
    bytes: u64,
    taken: u64,
    seen: u64,
}

const CONTROL_WORDS: usize = size_of::<abi::Ring>() / 8;
const HEAD_WORD: usize = std::mem::offset_of!(abi::Ring, head) / 8;
const TAIL_WORD: usize = std::mem::offset_of!(abi::Ring, tail) / 8;

impl Ring {
    fn new(map: &MapHandle, layout: &Layout, place: u32) -> Result<Self> {
        let bytes = layout.value_bytes();
        let memory = Mapped::new(map, place as usize * bytes, bytes)
            .map_err(|error| Error::system("a ring of samples cannot be mapped", &error))?;
        Ok(Self {
            memory,
            bytes: layout.ring_bytes as u64,
            taken: 0,
            seen: 0,
        })
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
        // SAFETY: within the mapping; nothing writes to these records before `take` gives their room back.
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

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn cpus_that_may_come_have_rings_unless_that_takes_too_much() {
        assert_eq!(Layout::new(128 << 10, 64, &[0, 1], 1).rings(), 64);
        assert_eq!(Layout::new(2 << 20, 240, &[0, 3], 1).rings(), 4);
    }

    #[test]
    fn each_hook_has_rings_of_its_own() {
        let layout = Layout::new(128 << 10, 4, &[0, 1], 2);
        assert_eq!(layout.places(&[0, 3]).collect::<Vec<_>>(), [0, 4, 3, 7]);
    }

    #[test]
    fn a_ring_has_whole_pages_with_room_for_a_sample_behind_its_end() {
        let layout = Layout::new(4096, 1, &[0], 1);
        assert_eq!(layout.value_bytes() % 4096, 0);
        assert!(layout.value_bytes() >= 4096 + 2048);
    }
}
