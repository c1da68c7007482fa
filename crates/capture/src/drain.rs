//! The ring of samples, emptied on a timer.

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use crate::abi;
use crate::error::Result;
use crate::programs::bpf_error;

/// One sample as the kernel half wrote it.
#[derive(Clone, Copy, Debug)]
pub struct RawSample<'a> {
    /// What it is, without its addresses.
    pub header: abi::SampleHeader,
    /// Leaf first.
    pub kernel: &'a [u64],
    /// Leaf first.
    pub user: &'a [u64],
    /// Observations that it stands for.
    pub count: u64,
    /// Time of the last of them.
    pub last_ns: u64,
}

const HEADER_WORDS: usize = size_of::<abi::SampleHeader>() / 8;

impl<'a> RawSample<'a> {
    /// Of a ring record's or a combining slot's words; None when they contradict themselves.
    pub fn parse(words: &'a [u64]) -> Option<Self> {
        let (header, rest) = words.split_at_checked(HEADER_WORDS)?;
        // SAFETY: SampleHeader is plain integers of this very size, and u64 are aligned for it.
        let header: abi::SampleHeader = unsafe { std::ptr::read(header.as_ptr().cast()) };
        let (kernel, rest) = rest.split_at_checked(header.kernel_frames.into())?;
        let (user, rest) = rest.split_at_checked(header.user_frames.into())?;
        let (count, last_ns) = match (u32::from(header.kind), rest) {
            (abi::RECORD_COMBINED, [count, last_ns, ..]) => (*count, *last_ns),
            (abi::RECORD_SAMPLE, _) => (1, header.boottime_ns),
            _ => return None,
        };
        Some(Self {
            header,
            kernel,
            user,
            count,
            last_ns,
        })
    }
}

/// Records of one drain, back to back, each a run of words.
#[derive(Default)]
struct Records {
    words: Vec<u64>,
    starts: Vec<(u64, usize)>, // (boottime_ns, index of the first word)
}

impl Records {
    fn push(&mut self, bytes: &[u8]) {
        let start = self.words.len();
        self.words.extend(
            bytes
                .chunks_exact(8)
                .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))),
        );
        if let Some(time_ns) = self.words.get(start) {
            self.starts.push((*time_ns, start));
        }
    }
}

/// The consumer's end of the ring.
pub struct Drain {
    records: Rc<RefCell<Records>>,
    ring: RingBuffer<'static>,
}

impl Drain {
    /// On an open ring-buffer map.
    pub fn new(map: &MapHandle) -> Result<Self> {
        let records = Rc::new(RefCell::new(Records::default()));
        let sink = Rc::clone(&records);
        let mut builder = RingBufferBuilder::new();
        let push = move |bytes: &[u8]| {
            sink.borrow_mut().push(bytes);
            0
        };
        let unreadable = |error| bpf_error("the ring cannot be read", &error);
        builder.add(map, push).map_err(unreadable)?;
        Ok(Self {
            records,
            ring: builder.build().map_err(unreadable)?,
        })
    }

    /// Takes everything out of the ring; returns how many records there were.
    pub fn consume(&mut self) -> usize {
        let mut records = self.records.borrow_mut();
        records.words.clear();
        records.starts.clear();
        drop(records);
        self.ring.consume_raw();
        let mut records = self.records.borrow_mut();
        records.starts.sort_unstable();
        records.starts.len()
    }

    /// The records of the last `consume`, ordered by time. Calls `handle` with each one.
    pub fn for_each(&self, mut handle: impl FnMut(RawSample<'_>)) {
        let records = self.records.borrow();
        for &(_, start) in &records.starts {
            if let Some(sample) = RawSample::parse(&records.words[start..]) {
                handle(sample);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(kind: u32, kernel: u8, user: u8, rest: &[u64]) -> Vec<u64> {
        let mut words = vec![0; HEADER_WORDS];
        words[0] = 42;
        let tail = u64::from(kind) | 3 << 8 | u64::from(kernel) << 16 | u64::from(user) << 24;
        words[HEADER_WORDS - 1] = tail << 32 | 7;
        words.extend(rest);
        words
    }

    #[test]
    fn a_record_gives_back_its_kernel_and_user_addresses() {
        let words = words(abi::RECORD_SAMPLE, 2, 1, &[10, 11, 20]);
        let sample = RawSample::parse(&words).unwrap();
        assert_eq!((sample.kernel, sample.user), (&[10, 11][..], &[20][..]));
        assert_eq!(
            (sample.header.cpu, sample.header.event, sample.count, sample.last_ns),
            (7, 3, 1, 42)
        );
    }

    #[test]
    fn a_combined_record_tells_how_many_it_stands_for() {
        let words = words(abi::RECORD_COMBINED, 0, 1, &[20, 1000, 99]);
        let sample = RawSample::parse(&words).unwrap();
        assert_eq!((sample.count, sample.last_ns), (1000, 99));
    }

    #[test]
    fn a_record_that_promises_more_frames_than_it_has_is_refused() {
        assert!(RawSample::parse(&words(abi::RECORD_SAMPLE, 2, 1, &[10])).is_none());
        assert!(RawSample::parse(&words(abi::RECORD_COMBINED, 0, 0, &[1])).is_none());
        assert!(RawSample::parse(&[1, 2, 3]).is_none());
    }
}
