//! An allocator that counts what a program asks the heap for: exact, and the same in every run that does the same.
//!
//! The one place of the core with global state, and only in programs that ask for it by the feature
//! `count-allocations` and make [`Counting`] their `#[global_allocator]`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

static BLOCKS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// What was asked for, in all threads. A block that changes its size is counted anew, with all of its new size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many times.
    pub blocks: u64,
    /// Bytes, without what the allocator adds.
    pub bytes: u64,
}

impl Totals {
    /// Since the program began.
    pub fn now() -> Self {
        Self {
            blocks: BLOCKS.load(Ordering::Relaxed),
            bytes: BYTES.load(Ordering::Relaxed),
        }
    }

    /// What `work` asks for, with what other threads do meanwhile.
    pub fn of(work: impl FnOnce()) -> Self {
        let before = Self::now();
        work();
        let after = Self::now();
        Self {
            blocks: after.blocks - before.blocks,
            bytes: after.bytes - before.bytes,
        }
    }
}

/// The system's allocator, counted.
pub struct Counting;

fn count(bytes: usize) {
    BLOCKS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: all of it is the system's allocator, whose contract is passed on; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as our caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as our caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: as our caller promises.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as our caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}
