//! What the kernel half writes, as words.

use crate::abi;

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
/// A count and a time, behind the addresses of a record of combined samples.
const COMBINED_WORDS: usize = 2;

impl<'a> RawSample<'a> {
    /// What a record of it takes in a ring.
    pub fn record_bytes(&self) -> u64 {
        let words = HEADER_WORDS + self.kernel.len() + self.user.len();
        let is_combined = u32::from(self.header.kind) == abi::RECORD_COMBINED;
        8 * (words + if is_combined { COMBINED_WORDS } else { 0 }) as u64
    }

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
