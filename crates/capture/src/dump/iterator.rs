//! The kernel's iterator over threads (`bpf/dump.bpf.c`), each use of which is a file to read.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{Object, OpenObject};

use crate::abi;
use crate::deputy::Deputy;
use crate::drain::Layout;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::programs::{self, bpf_error};
use crate::raw_sample::RawSample;
use crate::unwind;

static DUMP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dump.bpf.o"));

/// Threads of one process may take so long, 10,000 of them some 100 ms. What is swapped out has to be read.
const PATIENCE: Duration = Duration::from_secs(5);
/// What the kernel hands out at a time (PAGE_SIZE << 3 of kernel/bpf/bpf_iter.c).
const PIECE_BYTES: usize = 32 << 10;
/// Of one process: 65,536 of the longest records. What is beyond is not looked at.
const MAX_BYTES: usize = 65_536 * size_of::<abi::Dumped>();

const THREAD_WORDS: usize = size_of::<abi::DumpedThread>() / 8;

/// Whose threads are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of a process.
    Process(u32),
    /// One.
    Thread(u32),
}

impl Scope {
    /// Whether a thread is among them.
    pub fn has(self, tid: u32, header: &abi::SampleHeader) -> bool {
        match self {
            Self::Process(pid) => header.tgid == pid,
            Self::Thread(wanted) => tid == wanted,
        }
    }

    fn link_info(self) -> libbpf_sys::bpf_iter_link_info {
        let mut info = libbpf_sys::bpf_iter_link_info::default();
        info.task = match self {
            Self::Process(pid) => libbpf_sys::bpf_iter_link_info__bindgen_ty_3 {
                pid,
                ..Default::default()
            },
            Self::Thread(tid) => libbpf_sys::bpf_iter_link_info__bindgen_ty_3 {
                tid,
                ..Default::default()
            },
        };
        info
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(out, "process {pid}"),
            Self::Thread(tid) => write!(out, "thread {tid}"),
        }
    }
}

/// A thread, as the kernel half has found it.
#[derive(Clone, Copy)]
pub struct Dumped<'w> {
    /// What it does.
    pub thread: abi::DumpedThread,
    /// Where.
    pub sample: RawSample<'w>,
}

/// The loaded program. One use at a time, since it walks in memory of its own.
pub struct ThreadIterator {
    object: Object,
    deputy: Deputy<io::Result<Vec<u64>>>,
}

impl ThreadIterator {
    /// Loads it; it walks by the tables that the recording's programs have.
    pub fn load(options: &Options, tables: &unwind::Maps) -> Result<Self> {
        let config = programs::configure(options, &[], &Layout::default(), 0, false);
        let mut object = programs::open(DUMP, &config)?;
        share(&mut object, tables).map_err(|error| bpf_error("a map cannot be shared", &error))?;
        let object = object
            .load()
            .map_err(|error| bpf_error("the program that looks at threads cannot be loaded", &error))?;
        Ok(Self {
            object,
            deputy: Deputy::new()?,
        })
    }

    /// The records of these threads, for [`parse`]; none for threads that are gone. None when it took too long: then
    /// this is of no use any more, since somebody is still at it.
    pub fn read(&mut self, scope: Scope) -> Result<Option<Vec<u64>>> {
        let cannot = |error| Error::system(&format!("{scope} cannot be looked at"), &error);
        let file = self.begin(scope).map_err(cannot)?;
        let records = self.deputy.within(PATIENCE, move || read_all(file));
        records.transpose().map_err(cannot)
    }

    fn begin(&self, scope: Scope) -> io::Result<File> {
        let program = self.object.progs().next().expect("bpf/dump.bpf.c has one program");
        let mut info = scope.link_info();
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            iter_info: &raw mut info,
            iter_info_len: size_of_val(&info) as u32,
            ..Default::default()
        };
        let program = program.as_fd().as_raw_fd();
        // SAFETY: the options live through the call.
        let link = unsafe { libbpf_sys::bpf_link_create(program, 0, libbpf_sys::BPF_TRACE_ITER, &raw const options) };
        let link = owned(link)?;
        // SAFETY: takes no pointers. The file keeps what it needs of the link.
        let file = unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) };
        owned(file).map(File::from)
    }
}

/// A new descriptor, of a call that returns a negative error number instead.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets the program use the tables that are there, and no memory for what it does not.
fn share(object: &mut OpenObject, tables: &unwind::Maps) -> libbpf_rs::Result<()> {
    let shared = [
        ("unwind_segments", &tables.segments),
        ("unwind_rules", &tables.rules),
        ("unwind_files", &tables.files),
        ("unwind_processes", &tables.processes),
        ("unwind_wanted", &tables.wanted),
    ];
    for (name, map) in shared {
        programs::open_map(object, name).reuse_fd(map.as_fd())?;
    }
    for unused in ["targets", "counters"] {
        programs::open_map(object, unused).set_autocreate(false)?;
    }
    Ok(())
}

fn read_all(mut file: File) -> io::Result<Vec<u64>> {
    let (mut words, mut piece) = (Vec::new(), vec![0; PIECE_BYTES]);
    while words.len() < MAX_BYTES / 8 {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => {
                let new = piece[..bytes].chunks_exact(8);
                words.extend(new.map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(words)
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
