//! What a running process offers of its code, mapping by mapping: for `stackhound doctor -p`. Nothing is changed.

use memmap2::Mmap;
use stackhound_core::inspection::{Inspection, inspect};
use stackhound_core::maps::parse_maps;

use crate::error::{Error, ErrorKind, Result};
use crate::files::{FileStore, reopen};
use crate::made_code::{MadeCode, is_jitdump};
use crate::procfs::{self, ProcessInfo};
use crate::sideband::MappedFile;
use crate::sigbus::Guard;

/// One mapping of code.
pub struct MappedCode {
    /// First address.
    pub start: u64,
    /// Behind the last one.
    pub end: u64,
    /// As the process sees it, or a name in brackets; empty: no file.
    pub path: String,
    /// What its file says; empty where there is none.
    pub inspection: Inspection,
    /// Why its file could not be read; empty when it could, or when there is none.
    pub reason: String,
}

/// What a process has of code, and says of it.
pub struct ProcessCode {
    /// Its command, as the kernel cuts it.
    pub comm: String,
    /// Every mapping of code, by address.
    pub mappings: Vec<MappedCode>,
    /// Names in its perf map; None: it has no such file.
    pub perf_map_names: Option<usize>,
    /// Pieces of code in its jitdump files; None: it has no such file.
    pub jitdump_codes: Option<usize>,
}

/// Look at a process.
pub fn inspect_process(pid: u32) -> Result<ProcessCode> {
    let info = ProcessInfo::read(pid).ok_or_else(|| {
        Error::new(
            ErrorKind::NoProcess,
            format!("there is no process {pid}"),
            "'ps -e' shows which there are",
        )
    })?;
    let guard = Guard::new().map_err(|error| Error::system("SIGBUS cannot be caught", &error))?;
    let mut files = FileStore::default();
    let (mut mappings, mut dumps) = (Vec::new(), Vec::new());
    for map in executable_mappings(pid) {
        if is_jitdump(&map.path) {
            dumps.push(files.hold(pid, &map));
            continue;
        }
        mappings.push(look_at(pid, &map, &mut files));
    }
    let mut code = MadeCode::new(pid, info.start_boottime_ns(), &dumps, None);
    code.refresh(&files);
    drop(guard);
    Ok(ProcessCode {
        comm: info.comm,
        mappings,
        perf_map_names: code.perf_map_names(),
        jitdump_codes: (!dumps.is_empty()).then(|| code.jitdump_codes()),
    })
}

fn executable_mappings(pid: u32) -> Vec<MappedFile> {
    let text = procfs::maps(pid).unwrap_or_default();
    let maps = parse_maps(&text).filter(|map| map.executable);
    maps.map(MappedFile::from).collect()
}

fn look_at(pid: u32, map: &MappedFile, files: &mut FileStore) -> MappedCode {
    let found = match map.inode {
        0 => Ok(Inspection::default()),
        _ => inspect_file(pid, map, files),
    };
    let reason = found.as_ref().err().cloned().unwrap_or_default();
    MappedCode {
        start: map.start,
        end: map.end,
        path: String::from_utf8_lossy(&map.path).into_owned(),
        inspection: found.unwrap_or_default(),
        reason,
    }
}

fn inspect_file(pid: u32, map: &MappedFile, files: &mut FileStore) -> std::result::Result<Inspection, String> {
    let file = files.hold(pid, map);
    let handle = files.duplicate(file).ok_or("it cannot be opened")?;
    let file = reopen(&handle).map_err(|error| error.to_string())?;
    // SAFETY: `inspect_process` holds the guard of sigbus.rs, and any bytes may come at any time.
    let bytes = unsafe { Mmap::map(&file) }.map_err(|error| error.to_string())?;
    inspect(&bytes).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_is_seen_with_its_libraries() {
        let found = inspect_process(std::process::id()).unwrap();
        let libc = found
            .mappings
            .iter()
            .find(|mapping| mapping.path.contains("libc.so"))
            .unwrap();
        assert!(libc.inspection.sections.contains(&".eh_frame"));
        assert!(libc.reason.is_empty() && !libc.inspection.build_id.is_empty());
        assert_eq!((found.perf_map_names, found.jitdump_codes), (None, None));
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(inspect_process(u32::MAX).is_err());
    }
}
