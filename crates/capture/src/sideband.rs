//! What processes do besides running: exec, fork, exit and new code mappings, from perf's side-band records.
//!
//! One dummy event a CPU writes them into a small ring. perf writes a mapping's record when it is made, before any
//! code in it can run, and orders all of them by the clock that samples use (CLOCK_BOOTTIME).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use stackhound_core::maps::Map;

use crate::cpus;
use crate::perf_event;

/// Data pages of a CPU's ring, a power of two: 256 KiB hold about 2,000 new mappings, of 400 programs.
const DATA_PAGES: usize = 64;

/// Who waits is woken when this much was written: less than a library's mapping, since what was told of its process lacks
/// it until then; more than the ends of two processes, of which nobody has to know at once.
const WAKEUP_BYTES: u32 = 120;

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_DUMMY: u64 = 9;
const PERF_SAMPLE_TID: u64 = 1 << 1;
const PERF_SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_ID_BYTES: usize = 16; // pid, tid, time: as the two bits above ask for

const PERF_RECORD_LOST: u32 = 2;
const PERF_RECORD_COMM: u32 = 3;
const PERF_RECORD_EXIT: u32 = 4;
const PERF_RECORD_FORK: u32 = 7;
const PERF_RECORD_MMAP2: u32 = 10;
const PERF_RECORD_MISC_COMM_EXEC: u16 = 1 << 13;
const PERF_RECORD_MISC_MMAP_BUILD_ID: u16 = 1 << 14;

/// Something that happened to a process. Ids are those of the collector's PID namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEvent {
    /// CLOCK_BOOTTIME.
    pub time_ns: u64,
    /// The process.
    pub pid: u32,
    /// What happened.
    pub change: Change,
}

/// What can happen to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It began as a copy of its parent.
    Fork {
        /// The parent.
        parent: u32,
    },
    /// It became another program.
    Exec {
        /// That program's name, as the kernel cuts it.
        comm: Vec<u8>,
    },
    /// The new program has everything that it begins with.
    Begin {
        /// Its arguments, a null byte behind each.
        command_line: Vec<u8>,
        /// Number of its version-2 control group.
        cgroup: u64,
    },
    /// It was moved to another control group.
    Move,
    /// One of its threads ended.
    Exit {
        /// The thread; the first one has the process's id.
        tid: u32,
    },
    /// It has new code.
    Map(MappedFile),
}

/// Code that a process mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// First address.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// Of the first byte, in the file.
    pub file_offset: u64,
    /// The file's device (major, minor).
    pub device: (u32, u32),
    /// The file's inode; 0 where there is no file.
    pub inode: u64,
    /// As the process sees it, or a name in brackets.
    pub path: Vec<u8>,
}

impl From<Map> for MappedFile {
    fn from(map: Map) -> Self {
        Self {
            start: map.start.0,
            end: map.end.0,
            file_offset: map.file_offset.0,
            device: map.device,
            inode: map.inode,
            path: map.path.into_bytes(),
        }
    }
}

/// The side-band rings of all CPUs.
pub struct Sideband {
    rings: Vec<(u32, Ring)>,
    lost: u64,
}

impl Sideband {
    /// Opens one ring for each of the CPUs.
    pub fn open(cpus: &[u32]) -> io::Result<Self> {
        let mut sideband = Self {
            rings: Vec::new(),
            lost: 0,
        };
        sideband.follow(cpus)?;
        Ok(sideband)
    }

    /// Opens rings for CPUs that have none, closes those of CPUs that are gone.
    pub fn follow(&mut self, cpus: &[u32]) -> io::Result<()> {
        self.rings.retain(|(cpu, _)| cpus.contains(cpu));
        for &cpu in cpus {
            if self.rings.iter().any(|(known, _)| *known == cpu) {
                continue;
            }
            match Ring::open(cpu) {
                Ok(ring) => self.rings.push((cpu, ring)),
                Err(error) if cpus::has_left(cpu, &error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes every record out of the rings, unordered.
    pub fn consume(&mut self, events: &mut Vec<ProcessEvent>) {
        for (_, ring) in &mut self.rings {
            self.lost += ring.consume(events);
        }
    }

    /// Records that found no room, so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Each is readable when processes have changed; ends of processes may wait for others.
    pub fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.rings.iter().map(|(_, ring)| ring.fd.as_raw_fd())
    }

    /// Closes the rings of these CPUs.
    pub fn drop_cpus(&mut self, cpus: &[u32]) {
        self.rings.retain(|(cpu, _)| !cpus.contains(cpu));
    }
}

/// One CPU's ring: a control page, then data.
struct Ring {
    fd: OwnedFd,
    base: NonNull<u8>,
    page_bytes: usize,
    scratch: Vec<u8>,
}

impl Ring {
    fn open(cpu: u32) -> io::Result<Self> {
        let mut attributes = perf_event::attributes(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY);
        attributes.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
        attributes.set_sample_id_all(1);
        attributes.set_mmap(1);
        attributes.set_mmap2(1);
        attributes.set_comm(1);
        attributes.set_comm_exec(1);
        attributes.set_task(1);
        attributes.set_use_clockid(1);
        attributes.clockid = libc::CLOCK_BOOTTIME;
        attributes.set_watermark(1);
        attributes.__bindgen_anon_2.wakeup_watermark = WAKEUP_BYTES;
        let fd = perf_event::open(&attributes, -1, cpu as i32)?;
        let ring = Self::map(fd)?;
        perf_event::enable(&ring.fd)?;
        Ok(ring)
    }

    fn map(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: a fresh shared mapping of an open event.
        let (address, page_bytes) = unsafe {
            let page_bytes = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let bytes = (1 + DATA_PAGES) * page_bytes;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            (
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    protection,
                    libc::MAP_SHARED,
                    fd.as_raw_fd(),
                    0,
                ),
                page_bytes,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(address.cast()).expect("mmap gives no null");
        Ok(Self {
            fd,
            base,
            page_bytes,
            scratch: Vec::new(),
        })
    }

    fn data_bytes(&self) -> usize {
        DATA_PAGES * self.page_bytes
    }

    /// Takes what is there; returns how many records the kernel could not write.
    fn consume(&mut self, events: &mut Vec<ProcessEvent>) -> u64 {
        let page: *mut libbpf_sys::perf_event_mmap_page = self.base.as_ptr().cast();
        // SAFETY: the control page is mapped, aligned, and shared with the kernel through these two words only.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let mut at = tail.load(Ordering::Relaxed);
        let mut lost = 0;
        while end - at >= 8 {
            let bytes = self.copy(at, 8);
            let size = u16::from_ne_bytes([bytes[6], bytes[7]]);
            if size < 8 || u64::from(size) > end - at {
                break;
            }
            match parse(self.copy(at, size.into())) {
                Some(Record::Event(event)) => events.push(event),
                Some(Record::Lost(count)) => lost += count,
                None => {}
            }
            at += u64::from(size);
        }
        tail.store(end, Ordering::Release);
        lost
    }

    /// Bytes of the ring that begin at a position, around its end.
    fn copy(&mut self, position: u64, bytes: usize) -> &[u8] {
        let start = position as usize % self.data_bytes();
        let first = bytes.min(self.data_bytes() - start);
        self.scratch.clear();
        // SAFETY: both parts lie in the mapped data pages.
        unsafe {
            let data = self.base.as_ptr().add(self.page_bytes);
            self.scratch
                .extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            self.scratch
                .extend_from_slice(std::slice::from_raw_parts(data, bytes - first));
        }
        &self.scratch
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping of this very length.
        unsafe { libc::munmap(self.base.as_ptr().cast(), (1 + DATA_PAGES) * self.page_bytes) };
    }
}

enum Record {
    Event(ProcessEvent),
    Lost(u64),
}

/// One record with its header (include/uapi/linux/perf_event.h); None for kinds that are not wanted.
fn parse(record: &[u8]) -> Option<Record> {
    let kind = u32_at(record, 0)?;
    let misc = u16::from_ne_bytes(record.get(4..6)?.try_into().ok()?);
    let body = record.get(8..record.len().checked_sub(SAMPLE_ID_BYTES)?)?;
    let time_ns = u64_at(record, record.len() - 8)?;
    let pid = u32_at(body, 0)?;
    let change = match kind {
        PERF_RECORD_LOST => return Some(Record::Lost(u64_at(body, 8)?)),
        PERF_RECORD_FORK => fork(body)?,
        PERF_RECORD_EXIT => Change::Exit { tid: u32_at(body, 8)? },
        PERF_RECORD_COMM if misc & PERF_RECORD_MISC_COMM_EXEC != 0 => Change::Exec {
            comm: text(body.get(8..)?),
        },
        PERF_RECORD_MMAP2 => Change::Map(mapped_file(body, misc)?),
        _ => return None,
    };
    Some(Record::Event(ProcessEvent { time_ns, pid, change }))
}

/// A new process; a new thread of the same process is no change.
fn fork(body: &[u8]) -> Option<Change> {
    let (pid, parent) = (u32_at(body, 0)?, u32_at(body, 4)?);
    (pid != parent).then_some(Change::Fork { parent })
}

fn mapped_file(body: &[u8], misc: u16) -> Option<MappedFile> {
    let start = u64_at(body, 8)?;
    let has_inode = misc & PERF_RECORD_MISC_MMAP_BUILD_ID == 0;
    Some(MappedFile {
        start,
        end: start.checked_add(u64_at(body, 16)?)?,
        file_offset: u64_at(body, 24)?,
        device: if has_inode {
            (u32_at(body, 32)?, u32_at(body, 36)?)
        } else {
            (0, 0)
        },
        inode: if has_inode { u64_at(body, 40)? } else { 0 },
        path: text(body.get(64..)?),
    })
}

fn text(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut record = kind.to_ne_bytes().to_vec();
        record.extend(misc.to_ne_bytes());
        record.extend(((8 + body.len() + SAMPLE_ID_BYTES) as u16).to_ne_bytes());
        record.extend(body);
        record.extend([0; 8]);
        record.extend(99u64.to_ne_bytes());
        record
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn event(record: &[u8]) -> Option<ProcessEvent> {
        match parse(record)? {
            Record::Event(event) => Some(event),
            Record::Lost(_) => None,
        }
    }

    #[test]
    fn an_exec_is_told_from_a_mere_renaming() {
        let mut body = words(&[7, 7]);
        body.extend(b"cat\0\0\0\0\0");
        let exec = event(&record(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC, &body)).unwrap();
        assert_eq!(
            exec,
            ProcessEvent {
                time_ns: 99,
                pid: 7,
                change: Change::Exec { comm: b"cat".to_vec() }
            }
        );
        assert!(event(&record(PERF_RECORD_COMM, 0, &body)).is_none());
    }

    #[test]
    fn a_new_thread_is_no_new_process() {
        assert!(event(&record(PERF_RECORD_FORK, 0, &words(&[7, 7, 8, 7, 0, 0]))).is_none());
        let fork = event(&record(PERF_RECORD_FORK, 0, &words(&[8, 7, 8, 7, 0, 0]))).unwrap();
        assert_eq!(fork.change, Change::Fork { parent: 7 });
    }

    #[test]
    fn each_thread_that_ends_is_told() {
        let exit = event(&record(PERF_RECORD_EXIT, 0, &words(&[7, 1, 8, 7, 0, 0]))).unwrap();
        assert_eq!((exit.pid, exit.change), (7, Change::Exit { tid: 8 }));
    }

    #[test]
    fn a_mapping_has_its_file_and_path() {
        let mut body = words(&[7, 7]);
        for word in [0x1000u64, 0x2000, 0x3000] {
            body.extend(word.to_ne_bytes());
        }
        body.extend(words(&[8, 1]));
        body.extend(1234u64.to_ne_bytes());
        body.extend([0; 16]);
        body.extend(b"/bin/x\0\0");
        let map = event(&record(PERF_RECORD_MMAP2, 0, &body)).unwrap();
        let expected = MappedFile {
            start: 0x1000,
            end: 0x3000,
            file_offset: 0x3000,
            device: (8, 1),
            inode: 1234,
            path: b"/bin/x".to_vec(),
        };
        assert_eq!(map.change, Change::Map(expected));
    }

    #[test]
    fn torn_records_are_passed_over() {
        let whole = record(PERF_RECORD_MMAP2, 0, &[0; 80]);
        for length in 0..whole.len() {
            parse(&whole[..length]);
        }
    }
}
