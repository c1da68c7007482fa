//! A program that looks at threads one by one (`bpf/dump.bpf.c`, `bpf/absent.bpf.c`): the kernel's iterator over them,
//! each use of which is a file to read.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{MapHandle, Object, OpenObject};

use crate::abi;
use crate::bpf_objects;
use crate::bpf_objects::{bpf_error, map_handle};
use crate::deputy::{Deputy, Patience};
use crate::error::{Error, Result};
use crate::unwind;

/// Threads of one process may take so long, 10,000 of them some 100 ms. What is swapped out has to be read.
const PATIENCE: Patience = Patience {
    waiting: Duration::from_secs(5),
    computing: Duration::from_secs(10),
};
/// What the kernel hands out at a time (PAGE_SIZE << 3 of kernel/bpf/bpf_iter.c).
const PIECE_BYTES: usize = 32 << 10;
/// Of one process: 65,536 of the longest records. What is beyond is not looked at.
const MAX_BYTES: usize = 65_536 * size_of::<abi::Sample>();

/// Whose threads are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All of a process.
    Process(u32),
    /// One.
    Thread(u32),
    /// Those of all processes.
    All,
}

impl Scope {
    /// Whether a thread is among them.
    pub fn has(self, tid: u32, header: &abi::SampleHeader) -> bool {
        match self {
            Self::Process(pid) => header.tgid == pid,
            Self::Thread(wanted) => tid == wanted,
            Self::All => true,
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
            Self::All => libbpf_sys::bpf_iter_link_info__bindgen_ty_3::default(),
        };
        info
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(out, "process {pid}"),
            Self::Thread(tid) => write!(out, "thread {tid}"),
            Self::All => write!(out, "the machine's threads"),
        }
    }
}

/// The loaded program. One use at a time, since it walks in memory of its own.
pub struct ThreadIterator {
    object: Object,
    deputy: Deputy<io::Result<Vec<u64>>>,
}

impl ThreadIterator {
    /// Loads the object file, configured; it shares these maps with others, and has no use for those.
    pub fn load(file: &[u8], config: &abi::Config, shared: &[(&str, MapHandle)], unused: &[&str]) -> Result<Self> {
        let mut object = bpf_objects::open(file, config)?;
        share(&mut object, shared, unused).map_err(|error| bpf_error("a map cannot be shared", &error))?;
        let object = object
            .load()
            .map_err(|error| bpf_error("the program that looks at threads cannot be loaded", &error))?;
        Ok(Self {
            object,
            deputy: Deputy::new()?,
        })
    }

    /// What it reads to unwind by tables.
    pub fn unwind_maps(&mut self) -> unwind::Maps {
        unwind::Maps::of(|name| map_handle(&mut self.object, name))
    }

    /// The same for others that walk, by name.
    pub fn shared_maps(&mut self) -> Vec<(&'static str, MapHandle)> {
        unwind::MAPS
            .map(|name| (name, map_handle(&mut self.object, name)))
            .into()
    }

    /// The words of the records of these threads; none for threads that are gone. None when it took too long: then
    /// this is of no use any more, since somebody is still at it.
    pub fn read(&mut self, scope: Scope) -> Result<Option<Vec<u64>>> {
        let cannot = |error| Error::system(&format!("{scope} cannot be looked at"), &error);
        let file = self.begin(scope).map_err(cannot)?;
        let records = self.deputy.within(PATIENCE, move || read_all(file));
        records.ok().transpose().map_err(cannot)
    }

    fn begin(&self, scope: Scope) -> io::Result<File> {
        let program = self.object.progs().next().expect("it has one program");
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

fn share(object: &mut OpenObject, shared: &[(&str, MapHandle)], unused: &[&str]) -> libbpf_rs::Result<()> {
    for (name, map) in shared {
        bpf_objects::open_map(object, name).reuse_fd(map.as_fd())?;
    }
    for name in unused {
        bpf_objects::open_map(object, name).set_autocreate(false)?;
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
