//! What programs were called with, as `bpf/command_line.h` tells it when they begin.

use std::cell::RefCell;
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::rc::Rc;

use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};

use crate::abi;
use crate::bpf_objects::{bpf_error, bytes_of};
use crate::error::Result;
use crate::files::Inode;
use crate::sideband::{Change, ProcessEvent};

/// The ring that the programs write.
pub struct NewPrograms {
    urgent: MapHandle,
    ring: RingBuffer<'static>,
    found: Rc<RefCell<Vec<ProcessEvent>>>,
}

impl NewPrograms {
    /// On the programs' maps.
    pub fn new(map: MapHandle, urgent: MapHandle) -> Result<Self> {
        let refused = |error| bpf_error("command lines cannot be read", &error);
        let found = Rc::new(RefCell::new(Vec::new()));
        let events = Rc::clone(&found);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, move |record| {
                events.borrow_mut().extend(parse(record));
                0
            })
            .map_err(refused)?;
        let ring = builder.build().map_err(refused)?;
        Ok(Self { urgent, ring, found })
    }

    /// Readable when an urgent program has begun.
    pub fn fd(&self) -> RawFd {
        self.ring.epoll_fd()
    }

    /// This program is to be looked at when it begins. Where there is no room it is looked at later.
    pub fn hurry(&self, program: Inode) {
        let _ = (self.urgent).update(bytes_of(&abi::InodeKey::from(program)), &[1], MapFlags::ANY);
    }

    /// Takes every record out of the ring, unordered.
    pub fn consume(&mut self, events: &mut Vec<ProcessEvent>) {
        self.ring.consume_raw(); // its only failures are the callback's, which has none
        events.append(&mut self.found.borrow_mut());
    }
}

/// A `struct new_program`, cut behind its command line.
fn parse(record: &[u8]) -> Option<ProcessEvent> {
    let (head, command_line) = record.split_at_checked(offset_of!(abi::NewProgram, command_line))?;
    let word = |at: usize| Some(u64::from_ne_bytes(*head.get(at..)?.first_chunk()?));
    let short = |at: usize| Some(u16::from_ne_bytes(*head.get(at..)?.first_chunk()?));
    let tgid = offset_of!(abi::NewProgram, tgid);
    let bytes = short(offset_of!(abi::NewProgram, command_line_bytes))?;
    let begin = Change::Begin {
        command_line: command_line.get(..bytes.into())?.to_vec(),
        cgroup: word(offset_of!(abi::NewProgram, cgroup))?,
    };
    let has_moved = short(offset_of!(abi::NewProgram, has_moved))? != 0;
    Some(ProcessEvent {
        time_ns: word(offset_of!(abi::NewProgram, boottime_ns))?,
        pid: u32::from_ne_bytes(*head.get(tgid..)?.first_chunk()?),
        change: if has_moved { Change::Move } else { begin },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_tells_who_began_when_with_what() {
        let mut record = Vec::new();
        record.extend(77u64.to_ne_bytes());
        record.extend(5u64.to_ne_bytes());
        record.extend(42u32.to_ne_bytes());
        record.extend(4u16.to_ne_bytes());
        record.extend(0u16.to_ne_bytes());
        record.extend(b"ls\0/and what follows in the ring");
        let change = Change::Begin {
            command_line: b"ls\0/".to_vec(),
            cgroup: 5,
        };
        let expected = ProcessEvent {
            time_ns: 77,
            pid: 42,
            change,
        };
        assert_eq!(parse(&record), Some(expected));
        record[22] = 1;
        assert_eq!(parse(&record).unwrap().change, Change::Move);
        assert_eq!(parse(&record[..27]), None);
        assert_eq!(parse(&record[..9]), None);
    }
}
