//! What a dump's program (`bpf/dump.bpf.c`) says of threads.

use libbpf_rs::MapHandle;

use crate::abi;
use crate::configuration;
use crate::drain::Layout;
use crate::error::Result;
use crate::iterator::ThreadIterator;
use crate::options::Options;
use crate::raw_sample::RawSample;

static DUMP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dump.bpf.o"));

const THREAD_WORDS: usize = size_of::<abi::DumpedThread>() / 8;

/// Loads the program; it walks by the tables that the recording's programs have.
pub fn load(options: &Options, tables: &[(&str, MapHandle)]) -> Result<ThreadIterator> {
    let config = configuration::configure(options, &[], &Layout::default(), 0);
    ThreadIterator::load(DUMP, &config, tables, &["targets", "counters", "settings"])
}

/// A thread, as the kernel half has found it.
#[derive(Clone, Copy)]
pub struct Dumped<'w> {
    /// What it does.
    pub thread: abi::DumpedThread,
    /// Where.
    pub sample: RawSample<'w>,
}

/// The records that were read; one that was cut off ends them.
pub fn parse(mut words: &[u64]) -> impl Iterator<Item = Dumped<'_>> {
    std::iter::from_fn(move || {
        let (thread, rest) = words.split_at_checked(THREAD_WORDS)?;
        // SAFETY: DumpedThread is plain integers of this very size, and u64 are aligned for it.
        let thread: abi::DumpedThread = unsafe { std::ptr::read(thread.as_ptr().cast()) };
        let sample = RawSample::parse(rest)?;
        words = &rest[sample.record_bytes() as usize / 8..];
        Some(Dumped { thread, sample })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tid: u32, has_run: bool, user: &[u64]) -> Vec<u64> {
        let mut words = vec![7, 1, has_run.into()];
        let mut header = [0; size_of::<abi::SampleHeader>() / 8];
        header[3] = u64::from(tid) << 32 | 1;
        let kind_and_frames = u64::from(abi::RECORD_SAMPLE) | (user.len() as u64) << 24;
        header[header.len() - 1] = kind_and_frames << 32;
        words.extend(header);
        words.extend(user);
        words
    }

    /// Threads come one after the other, each with its own stack; what was cut off at the end is left out.
    #[test]
    fn records_follow_each_other() {
        let words = [record(5, false, &[10, 11]), record(6, true, &[]), vec![1; 4]].concat();
        let found: Vec<_> = parse(&words)
            .map(|one| (one.sample.header.tid, one.thread.has_run, one.sample.user.to_vec()))
            .collect();
        assert_eq!(found, [(5, 0, vec![10, 11]), (6, 1, vec![])]);
    }
}
