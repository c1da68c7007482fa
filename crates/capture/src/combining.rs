//! The combining cache's other side: two tables take turns, and the one at rest is read and cleared.

use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::abi;
use crate::drain::RawSample;
use crate::error::{Error, Result};
use crate::programs::{bpf_error, map_options};

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
        let cpus = libbpf_rs::num_possible_cpus().map_err(|error| bpf_error("the CPUs cannot be counted", &error))?;
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
    words: NonNull<u64>,
    slots: usize,
}

impl Table {
    fn new(slots: usize) -> Result<Self> {
        let options = map_options(libbpf_sys::BPF_F_MMAPABLE | libbpf_sys::BPF_F_INNER_MAP);
        let bytes = size_of::<abi::Combined>() as u32;
        let map = MapHandle::create(
            MapType::Array,
            Some("combining_table"),
            4,
            bytes,
            slots as u32,
            &options,
        )
        .map_err(|error| bpf_error("the combining table cannot be made", &error))?;
        // SAFETY: a fresh shared mapping of a whole map, which lives as long as the table.
        let address = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let bytes = slots * size_of::<abi::Combined>();
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::system(
                "the combining table cannot be mapped",
                &std::io::Error::last_os_error(),
            ));
        }
        Ok(Self {
            map,
            words: NonNull::new(address.cast()).expect("mmap gives no null"),
            slots,
        })
    }

    fn take(&mut self, mut handle: impl FnMut(RawSample<'_>)) {
        // SAFETY: the mapping is that long, and no program writes to a table that is not in place.
        let words = unsafe { std::slice::from_raw_parts_mut(self.words.as_ptr(), self.slots * SLOT_WORDS) };
        for slot in words.chunks_exact_mut(SLOT_WORDS) {
            let (count, last_ns) = (slot[COUNT_WORD], slot[LAST_NS_WORD]);
            if count == 0 {
                continue;
            }
            if let Some(sample) = RawSample::parse(&slot[SAMPLE_WORD..]) {
                handle(RawSample {
                    count,
                    last_ns,
                    ..sample
                });
            }
            slot[COUNT_WORD] = 0;
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: our own mapping of this very length.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.slots * size_of::<abi::Combined>()) };
    }
}
