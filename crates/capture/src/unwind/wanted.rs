//! The files whose tables the walker has missed, each told once.

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::rc::Rc;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use crate::bpf_objects::bpf_error;
use crate::error::Result;

/// The ring that `want_table` of bpf/stack/tables.h writes.
pub struct Wanted {
    ring: RingBuffer<'static>,
    files: Rc<RefCell<Vec<u32>>>,
}

impl Wanted {
    /// On the programs' map.
    pub fn new(map: MapHandle) -> Result<Self> {
        let files = Rc::new(RefCell::new(Vec::new()));
        let found = Rc::clone(&files);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |record| {
                found
                    .borrow_mut()
                    .extend(record.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes)));
                0
            })
            .map_err(|error| bpf_error("wanted unwind tables cannot be read", &error))?;
        let ring = builder
            .build()
            .map_err(|error| bpf_error("wanted unwind tables cannot be read", &error))?;
        Ok(Self { ring, files })
    }

    /// Those that were told since the last time.
    pub fn take(&self) -> Vec<u32> {
        self.ring.consume_raw(); // its only failures are the callback's, which has none
        self.files.take()
    }

    /// Readable when there are some.
    pub fn fd(&self) -> RawFd {
        self.ring.epoll_fd()
    }
}
