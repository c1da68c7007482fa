//! Code that a process makes at run time: what it tells of it, in jitdump files and in a perf map.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use memmap2::Mmap;
use stackhound_core::address::ObjectAddr;
use stackhound_core::jitdump::{Code, JitDump};
use stackhound_core::perfmap::{Entry, PerfMap};
use stackhound_core::reuse::{MAX_GENERATION, split_generation, with_generation};
use stackhound_core::symbolize::{Made, Source};

use crate::cost;
use crate::files::{FileId, FileStore, reopen};
use crate::procfs::{self, ProcessInfo};

/// A perf map of more than this is cut: 64 MiB are about a million functions.
const PERF_MAP_BYTES: u64 = 64 << 20;

/// jitdump files of a process: its own, and that of the process that it was forked from.
pub const MAX_DUMPS: usize = 4;

const NO_PERF_MAP: &str = "code without a file, and no perf map";
const NOT_IN_PERF_MAP: &str = "not in the perf map";
const NOT_IN_DUMP: &str = "not in the jitdump";

/// What one program tells of the code that it makes.
pub struct MadeCode {
    pid: u32,
    start_boottime_ns: u64,
    /// Held from when code of the program was first sampled: it may be deleted when the process ends.
    perf_map: Option<File>,
    /// What was read of it, and how long it was then.
    names: Option<(u64, PerfMap)>,
    dumps: Vec<Dump>,
}

struct Dump {
    file: FileId,
    contents: JitDump,
    /// As it was when it was looked at last.
    bytes: Option<Mmap>,
}

/// A piece of code: which dump, and its index there.
type Place = (usize, u32);

impl MadeCode {
    /// Of a process that runs. `earlier`: what was known of it so far.
    pub fn new(pid: u32, start_boottime_ns: u64, dumps: &[FileId], earlier: Option<Self>) -> Self {
        let dump = |file: &FileId| Dump {
            file: *file,
            contents: JitDump::default(),
            bytes: None,
        };
        let perf_map = open_perf_map(pid).or(earlier.and_then(|earlier| earlier.perf_map));
        Self {
            pid,
            start_boottime_ns,
            perf_map,
            names: None,
            dumps: dumps.iter().map(dump).collect(),
        }
    }

    /// Reads what the process has written since the last time.
    pub fn refresh(&mut self, files: &FileStore) {
        for dump in &mut self.dumps {
            dump.refresh(files);
        }
        // A runtime may have been asked for its map meanwhile (jcmd), or have written another.
        if ProcessInfo::read(self.pid).is_some_and(|info| info.began_at(self.start_boottime_ns)) {
            self.perf_map = open_perf_map(self.pid).or(self.perf_map.take());
        }
        self.read_perf_map();
    }

    fn read_perf_map(&mut self) {
        let Some(file) = &self.perf_map else { return };
        let bytes = file.metadata().map_or(0, |metadata| metadata.len());
        if self.names.as_ref().is_none_or(|(before, _)| *before != bytes) {
            self.names = read_up_to(file, bytes.min(PERF_MAP_BYTES)).map(|text| (bytes, PerfMap::parse(&text)));
        }
    }

    /// Names in the perf map; None when there is none.
    pub fn perf_map_names(&self) -> Option<usize> {
        self.names.as_ref().map(|(_, names)| names.len())
    }

    /// Pieces of code in all jitdump files.
    pub fn jitdump_codes(&self) -> usize {
        self.dumps.iter().map(|dump| dump.contents.codes().len()).sum()
    }

    /// Which of these addresses, in increasing order, had different code one after the other.
    pub fn reuse(&self, addresses: &[u64]) -> Reuse {
        let codes = self.codes_at(addresses);
        let reused = addresses.iter().zip(codes).filter(|(_, codes)| codes.len() > 1);
        let offset_ns = cost::boottime_ns().saturating_sub(cost::monotonic_ns());
        let since = |place: &Place| self.code(*place).since_ns.saturating_add(offset_ns);
        let (addresses, since_ns) = reused
            .map(|(address, codes)| (*address, codes.iter().map(since).collect()))
            .unzip();
        Reuse { addresses, since_ns }
    }

    /// What is at these addresses of the object, which are in increasing order.
    pub fn source(&self, addresses: &[u64]) -> Source {
        let mut plain: Vec<u64> = addresses
            .iter()
            .map(|address| split_generation(ObjectAddr(*address)).0)
            .collect();
        plain.sort_unstable();
        plain.dedup();
        let codes = self.codes_at(&plain);
        let found = addresses.iter().map(|address| {
            let (plain_address, generation) = split_generation(ObjectAddr(*address));
            let codes = &codes[plain.binary_search(&plain_address).ok()?];
            let code = codes.get(generation.min(codes.len().checked_sub(1)?));
            self.describe(*code?, plain_address, generation)
        });
        let found = found
            .zip(addresses)
            .map(|(made, address)| made.or_else(|| self.mapped(*address)));
        Source::Made(found.collect(), self.reason())
    }

    /// None for code without a name.
    fn describe(&self, place: Place, address: u64, generation: usize) -> Option<Made> {
        let dump = &self.dumps[place.0];
        let (code, bytes) = (self.code(place), dump.bytes.as_deref().unwrap_or_default());
        let (file, line) = dump.contents.line(bytes, &code, address).unwrap_or_default();
        let entry = Entry {
            start: with_generation(code.start, generation).0,
            size: code.bytes,
            name: dump.contents.name(bytes, &code),
        };
        (!entry.name.is_empty()).then_some(Made { entry, file, line })
    }

    /// By the perf map.
    fn mapped(&self, address: u64) -> Option<Made> {
        let entry = self.names.as_ref()?.1.find(address)?.clone();
        let (file, line) = Default::default();
        Some(Made { entry, file, line })
    }

    fn reason(&self) -> &'static str {
        match (&self.names, self.dumps.is_empty()) {
            (_, false) => NOT_IN_DUMP,
            (Some(_), true) => NOT_IN_PERF_MAP,
            (None, true) => NO_PERF_MAP,
        }
    }

    /// The pieces of code that were at each of the addresses, the oldest first.
    fn codes_at(&self, addresses: &[u64]) -> Vec<Vec<Place>> {
        let mut found = vec![Vec::new(); addresses.len()];
        for (index, dump) in self.dumps.iter().enumerate() {
            let codes = dump.contents.codes_at(addresses);
            for (all, codes) in found.iter_mut().zip(codes) {
                all.extend(codes.into_iter().map(|code| (index, code)));
            }
        }
        for places in &mut found {
            places.sort_by_key(|place| self.code(*place).since_ns); // stable: without times, as they were written
            let excess = places.len().saturating_sub(MAX_GENERATION + 1);
            places.truncate(places.len() - excess);
            if places.iter().any(|place| self.code(*place).since_ns == 0) {
                places.drain(..places.len() - 1); // nothing says when each was there: the newest
            }
        }
        found
    }

    fn code(&self, (dump, code): Place) -> Code {
        self.dumps[dump].contents.codes()[code as usize]
    }
}

impl Dump {
    /// A file that is no dump, or cannot be read, has no code; what was read of it before stays.
    fn refresh(&mut self, files: &FileStore) {
        let file = files.duplicate(self.file).and_then(|handle| reopen(&handle).ok());
        // SAFETY: symbols are looked up under the guard of sigbus.rs, and any bytes may come at any time.
        let bytes = file.and_then(|file| unsafe { Mmap::map(&file) }.ok());
        if let Some(bytes) = bytes {
            if self.contents.read(&bytes).is_err() {
                self.contents = JitDump::default();
            }
            self.bytes = Some(bytes);
        }
    }
}

/// Addresses where code took the place of other code.
pub struct Reuse {
    /// In increasing order.
    pub addresses: Vec<u64>,
    /// Since when each piece of code was there, CLOCK_BOOTTIME, the oldest first.
    since_ns: Vec<Vec<u64>>,
}

impl Reuse {
    /// How many pieces of code had been at the address before the one that was there at a time.
    pub fn generation_at(&self, address: u64, time_ns: u64) -> usize {
        let Ok(index) = self.addresses.binary_search(&address) else {
            return 0;
        };
        let begun = self.since_ns[index].partition_point(|since_ns| *since_ns <= time_ns);
        begun.saturating_sub(1)
    }
}

/// Whether a mapped file is a jitdump: its process maps it executable so that profilers hear of it.
pub fn is_jitdump(path: &[u8]) -> bool {
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let number = name.strip_prefix(b"jit-").and_then(|rest| rest.strip_suffix(b".dump"));
    number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
}

fn read_up_to(file: &File, bytes: u64) -> Option<Vec<u8>> {
    let mut text = vec![0; bytes as usize];
    let mut read = 0;
    while read < text.len() {
        match file.read_at(&mut text[read..], read as u64).ok()? {
            0 => break,
            more => read += more,
        }
    }
    text.truncate(read);
    Some(text)
}

/// /tmp/perf-PID.map as the process sees it: a regular file of its own user or root, no link, never waited for.
fn open_perf_map(pid: u32) -> Option<File> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ns_pid = procfs::innermost_id(&status, "NSpid:")?;
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    let file = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(format!("/proc/{pid}/root/tmp/perf-{ns_pid}.map"))
        .ok()?;
    let metadata = file.metadata().ok()?;
    (metadata.is_file() && [0, owner].contains(&metadata.uid())).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jitdump_is_known_by_its_name() {
        for path in ["/tmp/jit-12.dump", "/a/b/jit-1.dump (deleted)", "jit-7.dump"] {
            assert!(is_jitdump(path.as_bytes()), "{path}");
        }
        for path in [
            "/tmp/jit-.dump",
            "/tmp/jit-1a.dump",
            "/tmp/jit-1.dump/x",
            "/tmp/xjit-1.dump",
            "//anon",
            "",
        ] {
            assert!(!is_jitdump(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn the_code_that_was_there_last_counts() {
        let reuse = Reuse {
            addresses: vec![0x50, 0x60],
            since_ns: vec![vec![10, 20, 30], vec![15, 25]],
        };
        let generations = [5, 10, 19, 20, 99].map(|time_ns| reuse.generation_at(0x50, time_ns));
        assert_eq!(generations, [0, 0, 0, 1, 2]);
        assert_eq!(reuse.generation_at(0x60, 25), 1);
        assert_eq!(reuse.generation_at(0x70, 25), 0);
    }
}
