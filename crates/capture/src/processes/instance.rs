//! One program in one process: what it has mapped, and its row in the profile.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use stackhound_core::address::{FileOffset, ProcessAddr};
use stackhound_core::maps::parse_maps;
use stackhound_core::profile::Profile;
use stackhound_core::rows::{LocationId, MappingRow, ObjectId, ObjectKind, ProcessId, ProcessRow};

use crate::files::{FileId, FileStore};
use crate::lately::Generation;
use crate::made_code::{MAX_DUMPS, MadeCode, is_jitdump};
use crate::mappings::{Mapping, Target, cut_out, find, is_shared_anonymous};
use crate::procfs::{self, ProcessInfo, ProgramInfo};
use crate::python::Frame;
use crate::sideband::MappedFile;

/// Mappings of code that one process may have; beyond it the oldest are kept and the rest is unknown.
const MAX_MAPPINGS: usize = 65_536;

/// One program in one process.
pub(super) struct Instance {
    pub(super) start_boottime_ns: Option<u64>,
    pub(super) info: ProcessInfo,
    pub(super) mappings: Arc<Vec<Mapping>>,
    /// Of the program that called exec: until the new one's first instruction the thread's user registers are still the
    /// old ones.
    pub(super) before_exec: Arc<Vec<Mapping>>,
    /// The callers of its last user stack, root first, each with its location.
    pub(super) callers: Vec<(Frame, LocationId)>,
    /// Under which its addresses are remembered; None: what they lead to has changed.
    pub(super) generation: Option<Generation>,
    pub(super) row: Option<ProcessId>,
    pub(super) written: HashSet<(u64, u64, FileId)>,
    pub(super) has_news: bool,
    pub(super) unread: Unread,
    /// The object of the code that it makes.
    pub(super) made: Option<ObjectId>,
    /// jitdump files, the newest last.
    pub(super) dumps: Vec<FileId>,
    pub(super) ended_ns: Option<u64>,
    pub(super) was_gone: bool,
}

/// What /proc has to be asked of a program that is sampled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    Nothing,
    Cgroup,
    Program,
}

impl Instance {
    pub(super) fn empty(info: ProcessInfo) -> Self {
        Self {
            start_boottime_ns: None,
            info,
            mappings: Arc::default(),
            before_exec: Arc::default(),
            callers: Vec::new(),
            generation: None,
            row: None,
            written: HashSet::new(),
            has_news: true,
            unread: Unread::Nothing,
            made: None,
            dumps: Vec::new(),
            ended_ns: None,
            was_gone: false,
        }
    }

    /// From /proc; with nothing in it when the process is gone, or another has its pid.
    pub(super) fn read(pid: u32, start_ns: Option<u64>, files: &mut FileStore, now_ns: u64) -> Self {
        let info = ProcessInfo::read(pid).filter(|info| start_ns.is_none_or(|start_ns| info.began_at(start_ns)));
        let Some(info) = info else {
            return Self {
                was_gone: true,
                ..Self::empty(ProcessInfo::default())
            };
        };
        let mut instance = Self::empty(info);
        for map in parse_maps(&procfs::maps(pid).unwrap_or_default()).filter(|map| map.executable) {
            instance.add(pid, &map.into(), now_ns, files);
        }
        instance
    }

    /// A new mapping takes the place of what it overlaps.
    pub(super) fn add(&mut self, pid: u32, map: &MappedFile, time_ns: u64, files: &mut FileStore) {
        let target = match &map.path[..] {
            b"[vsyscall]" => Target::Vsyscall,
            b"[vdso]" => Target::File(files.hold(pid, map)),
            path if map.inode == 0 || !path.starts_with(b"/") || is_shared_anonymous(path) => Target::Anonymous,
            _ => Target::File(files.hold(pid, map)),
        };
        if let Target::File(file) = target {
            if self.info.program.executable.is_empty() {
                self.info.program.executable = String::from_utf8_lossy(&map.path).into_owned();
            }
            self.note_dump(file, &map.path);
        }
        let first_ns = time_ns;
        let new = Mapping {
            start: map.start,
            end: map.end,
            file_offset: map.file_offset,
            target,
            first_ns,
        };
        self.forget_frames();
        let mappings = Arc::make_mut(&mut self.mappings);
        cut_out(mappings, new.start, new.end);
        if mappings.len() < MAX_MAPPINGS {
            let at = mappings.partition_point(|mapping| mapping.start < new.start);
            mappings.insert(at, new);
            self.has_news = true;
        }
    }

    /// The object of its code is asked for again, and gets to know the dump.
    fn note_dump(&mut self, file: FileId, path: &[u8]) {
        if is_jitdump(path) && self.dumps.len() < MAX_DUMPS && !self.dumps.contains(&file) {
            self.dumps.push(file);
            self.made = None;
        }
    }

    /// Where it is; one that has ended meanwhile was where its parent is, for all that is known.
    pub(super) fn join(&mut self, cgroup: Option<String>) {
        if let Some(cgroup) = cgroup {
            self.info.program.cgroup = cgroup;
        }
    }

    /// What /proc says counts if it is of this very program.
    pub(super) fn complete(&mut self, found: ProgramInfo) {
        if found.executable == self.info.program.executable {
            self.info.program = found;
        }
    }

    /// Writes what the program is into its row.
    pub(super) fn describe(&self, profile: &mut Profile) {
        let Some(row) = self.row else { return };
        let (program, row) = (&self.info.program, profile.process_mut(row));
        row.executable.clone_from(&program.executable);
        row.command_line.clone_from(&program.command_line);
        row.cgroup.clone_from(&program.cgroup);
        row.container = container(&program.cgroup);
    }

    /// Its addresses lead elsewhere from now on.
    pub(super) fn forget_frames(&mut self) {
        self.callers.clear();
        self.generation = None;
    }

    pub(super) fn find(&self, address: u64) -> Option<Mapping> {
        find(&self.mappings, address).or_else(|| find(&self.before_exec, address))
    }

    pub(super) fn row(&mut self, pid: u32, ns_pid: u32, start_boottime_ns: u64, profile: &mut Profile) -> ProcessId {
        if let Some(row) = self.row {
            return row;
        }
        let info = &self.info;
        let row = profile.process(ProcessRow {
            pid,
            ns_pid,
            parent_pid: info.parent,
            start_boottime_ns,
            comm: info.comm.clone(),
            executable: info.program.executable.clone(),
            command_line: info.program.command_line.clone(),
            cgroup: info.program.cgroup.clone(),
            container: container(&info.program.cgroup),
            exit_boottime_ns: self.ended_ns,
        });
        *self.row.insert(row)
    }

    /// Rows for the file mappings that have none yet; only programs that were sampled get here.
    pub(super) fn write_mappings(&mut self, process: ProcessId, files: &mut FileStore, profile: &mut Profile) {
        if !std::mem::take(&mut self.has_news) {
            return;
        }
        profile
            .process_mut(process)
            .executable
            .clone_from(&self.info.program.executable);
        for mapping in self.mappings.iter() {
            let Mapping {
                start,
                end,
                file_offset,
                first_ns,
                target,
            } = *mapping;
            let Target::File(file) = target else { continue };
            if self.written.insert((start, end, file)) {
                let (object, path) = (files.object(file, profile), files.path(file).to_string());
                profile.mapping(MappingRow {
                    process,
                    start: ProcessAddr(start),
                    end: ProcessAddr(end),
                    file_offset: FileOffset(file_offset),
                    object,
                    path,
                    first_ns,
                });
            }
        }
    }

    /// Code that the program made: one object, whose perf map is opened at first sight.
    pub(super) fn made_object(
        &mut self,
        pid: u32,
        profile: &mut Profile,
        made_code: &mut HashMap<ObjectId, MadeCode>,
    ) -> ObjectId {
        if let Some(object) = self.made {
            return object;
        }
        let start_ns = self.start_boottime_ns.unwrap_or(0);
        let name = format!("[code of {} {pid}@{start_ns}]", self.info.comm);
        let object = profile.object(ObjectKind::Jit, &name, &[]);
        let earlier = made_code.remove(&object);
        made_code.insert(object, MadeCode::new(pid, start_ns, &self.dumps, earlier));
        *self.made.insert(object)
    }
}

/// The container's id in a cgroup path: the last run of 64 hexadecimal digits (Docker, containerd, CRI-O, Podman).
fn container(cgroup: &str) -> String {
    const ID_DIGITS: usize = 64;
    let parts = cgroup.rsplit(|digit: char| !digit.is_ascii_hexdigit());
    parts
        .into_iter()
        .find(|part| part.len() == ID_DIGITS)
        .unwrap_or_default()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_known_by_its_cgroup() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(container(&format!("/system.slice/docker-{id}.scope")), id);
        assert_eq!(container("/user.slice/session-1.scope"), "");
    }
}
