//! The combining cache's other side: two tables take turns, and the one at rest is read and cleared.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::abi;
use crate::bpf_objects::{bpf_error, map_options, possible_cpus};
use crate::error::{Error, Result};
use crate::mapped::Mapped;
use crate::raw_sample::RawSample;

const SLOT_WORDS: usize = size_of::<abi::Combined>() / 8;
const COUNT_WORD: usize = 1;
const LAST_NS_WORD: usize = 2;
const SAMPLE_WORD: usize = 3;

/// The outer map and its two tables.
pub struct Combining {
    outer: MapHandle,
    tables: [Table; 2],
    active: usize,
}

impl Combining {
    /// Makes both tables and puts the first in place.
    pub fn new(outer: MapHandle, slots_per_cpu: usize) -> Result<Self> {
        let cpus = possible_cpus()?;
        let tables = [Table::new(cpus * slots_per_cpu)?, Table::new(cpus * slots_per_cpu)?];
        let mut combining = Self {
            outer,
            tables,
            active: 1,
        };
        combining.swap()?;
        Ok(combining)
    }

    /// Puts the other table in place. When this returns no program uses the old one any more: updating a map in a
    /// map waits for an RCU grace period (kernel/bpf/syscall.c, maybe_wait_bpf_programs).
    fn swap(&mut self) -> Result<()> {
        self.active = 1 - self.active;
        let fd = self.tables[self.active].map.as_fd().as_raw_fd() as u32;
        self.outer
            .update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| bpf_error("the combining table cannot be exchanged", &error))
    }

    /// Exchanges the tables, and hands over and clears what the old one held.
    pub fn flush(&mut self, handle: impl FnMut(RawSample<'_>)) -> Result<()> {
        let full = self.active;
        self.swap()?;
        self.tables[full].take(handle);
        Ok(())
    }
}

/// One table, mapped.
struct Table {
    map: MapHandle,
    memory: Mapped,
}

impl Table {
    fn new(slots: usize) -> Result<Self> {
        let options = map_options(libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP);
        let bytes = size_of::<abi::Combined>();
        let map = MapHandle::create(
            MapType::Array,
            Some("combining_table"),
            4,
            bytes as u32,
            slots as u32,
            &options,
        )
        .map_err(|error| bpf_error("the combining table cannot be made", &error))?;
        let memory = Mapped::new(&map, 0, slots * bytes)
            .map_err(|error| Error::system("the combining table cannot be mapped", &error))?;
        Ok(Self { map, memory })
    }

    fn take(&mut self, mut handle: impl FnMut(RawSample<'_>)) {
        // SAFETY: the mapping is that long, and no program writes to a table that is not in place.
        let words = unsafe { std::slice::from_raw_parts_mut(self.memory.words().as_ptr(), self.memory.len()) };
        for slot in words.chunks_exact_mut(SLOT_WORDS) {
            let (count, last_ns) = (slot[COUNT_WORD], slot[LAST_NS_WORD]);
            if count == 0 {
                continue;
            }
            let sample = RawSample::parse(&slot[SAMPLE_WORD..]).expect("the programs store whole samples");
            handle(RawSample {
                count,
                last_ns,
                ..sample
            });
            slot[COUNT_WORD] = 0;
        }
    }
}
