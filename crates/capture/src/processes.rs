//! Which process had what mapped where, at each moment of the recording.
//!
//! Side-band records and samples arrive here ordered by time. A process is known by its pid and its start; exec makes
//! it another program, with a row and mappings of its own.

mod instance;
mod user_path;

use std::sync::Arc;

use hashbrown::HashMap;
use stackhound_core::address::{FileOffset, ObjectAddr, ProcessAddr};
use stackhound_core::profile::Profile;
use stackhound_core::rows::{LocationId, ObjectId, ObjectKind, ThreadId};

use crate::cgroups::Cgroups;
use crate::fault_totals::ProcessStart;
use crate::files::FileStore;
use crate::lately::Lately;
use crate::made_code::MadeCode;
use crate::mappings::{Mapping, Target};
use crate::procfs::{self, ProcessInfo, ProgramInfo};
use crate::raw_sample::RawSample;
use crate::sideband::{Change, MappedFile, ProcessEvent};
use instance::{Instance, Unread};

/// An ended process is forgotten this long after its end: samples of its last moments may still be in a ring.
const FORGET_NS: u64 = 2_000_000_000;

/// All processes of the recording.
#[derive(Default)]
pub struct Processes {
    by_pid: HashMap<u32, Instance>,
    made_code: HashMap<ObjectId, MadeCode>,
    unknown: HashMap<&'static str, ObjectId>,
    reasons: HashMap<ObjectId, &'static str>,
    gone: u64,
    only_known: bool,
    /// Processes that became other programs, have samples since, and were not looked at yet.
    new_programs: Vec<(u32, Unread)>,
    cgroups: Cgroups,
    /// Processes whose mappings are not what they were when they were last asked for, and whether by an exec.
    changed: HashMap<u32, bool>,
    lately: Lately,
    /// Of the frames that are looked up, leaf first.
    known: Vec<Option<LocationId>>,
}

/// What is known of the mappings of a process now.
pub enum Known<'a> {
    /// These, ordered.
    Mappings(&'a [Mapping]),
    /// It had these, has samples, and has ended.
    Ended(&'a [Mapping]),
    /// It has ended, or was gone before it was seen.
    Gone,
}

const OUTSIDE: &str = "outside any mapping";
const GONE: &str = "process gone before its mappings were seen";
const VSYSCALL: &str = "vsyscall page";

impl Processes {
    /// `only_known`: what other processes do than those scanned, their children and sampled ones is passed over.
    pub fn new(only_known: bool) -> Self {
        Self {
            only_known,
            ..Self::default()
        }
    }

    /// Reads what only /proc says of the programs that were sampled for the first time since the last call, and have not
    /// ended: most processes of a storm live shortly, and are not worth the system calls.
    pub fn look_at_new(&mut self, profile: &mut Profile) {
        for (pid, unread) in self.new_programs.drain(..) {
            let instance = self.by_pid.get_mut(&pid);
            let Some(instance) = instance.filter(|instance| instance.ended_ns.is_none()) else {
                continue;
            };
            match unread {
                Unread::Nothing => {}
                Unread::Cgroup => instance.join(procfs::cgroup(pid)),
                Unread::Program => instance.complete(ProgramInfo::read(pid)),
            }
            instance.describe(profile);
        }
    }

    /// Reads a process that runs already.
    pub fn scan(&mut self, pid: u32, files: &mut FileStore, now_ns: u64) {
        if !self.by_pid.contains_key(&pid) {
            let instance = Instance::read(pid, None, files, now_ns);
            self.by_pid.insert(pid, instance);
            self.changed.entry(pid).or_default();
        }
    }

    /// Takes note of what a process did.
    pub fn apply(&mut self, event: ProcessEvent, files: &mut FileStore, profile: &mut Profile) {
        let ProcessEvent { time_ns, pid, change } = event;
        if !matches!(change, Change::Exit { .. } | Change::Begin { .. } | Change::Move) {
            *self.changed.entry(pid).or_default() |= matches!(change, Change::Exec { .. });
        }
        match change {
            Change::Fork { parent } => self.fork(pid, parent),
            Change::Exec { comm } => self.exec(pid, &comm, time_ns, profile),
            Change::Begin { command_line, cgroup } => self.begin(pid, &command_line, cgroup, profile),
            Change::Move => self.forget_cgroup(pid),
            Change::Exit { tid } => self.exit(pid, tid, time_ns, profile),
            Change::Map(map) => self.map(pid, &map, time_ns, files),
        }
    }

    /// The child has its parent's mappings until it makes its own. One whose parent is not known is read when it is
    /// sampled; an earlier process of that pid is not it.
    fn fork(&mut self, pid: u32, parent: u32) {
        let Some(from) = self.by_pid.get(&parent).filter(|from| !from.was_gone) else {
            self.by_pid.remove(&pid);
            return;
        };
        let info = ProcessInfo {
            parent,
            start_ticks: 0,
            ..from.info.clone()
        };
        let is_somewhere = !info.program.cgroup.is_empty();
        let child = Instance {
            unread: if is_somewhere { Unread::Nothing } else { Unread::Cgroup },
            mappings: Arc::clone(&from.mappings),
            dumps: from.dumps.clone(),
            ..Instance::empty(info)
        };
        self.by_pid.insert(pid, child);
    }

    /// The new program's path comes with its first mapping, and then what it was called with.
    fn exec(&mut self, pid: u32, comm: &[u8], time_ns: u64, profile: &mut Profile) {
        if self.only_known && !self.by_pid.contains_key(&pid) {
            return;
        }
        let before = self.by_pid.get(&pid);
        let inherited = before.map(|instance| instance.info.clone()).unwrap_or_default();
        let start_boottime_ns = before.and_then(|instance| instance.start_boottime_ns);
        let before_exec = before
            .map(|instance| Arc::clone(&instance.mappings))
            .unwrap_or_default();
        if let Some(row) = before.and_then(|instance| instance.row) {
            profile.process_mut(row).exit_boottime_ns = Some(time_ns);
        }
        let info = ProcessInfo {
            comm: String::from_utf8_lossy(comm).into_owned(),
            program: ProgramInfo {
                cgroup: inherited.program.cgroup,
                ..ProgramInfo::default()
            },
            ..inherited
        };
        let program = Instance {
            start_boottime_ns,
            before_exec,
            unread: Unread::Program,
            ..Instance::empty(info)
        };
        self.by_pid.insert(pid, program);
    }

    /// What the new program was called with. Where only control groups of version 1 are, it is in that of its parent,
    /// unless it was moved.
    fn begin(&mut self, pid: u32, command_line: &[u8], cgroup: u64, profile: &mut Profile) {
        let Some(instance) = self.by_pid.get_mut(&pid) else {
            return;
        };
        let program = &mut instance.info.program;
        program.command_line = procfs::command_line(&String::from_utf8_lossy(command_line));
        let path = self.cgroups.path(cgroup);
        let is_told = !["", "/"].contains(&path);
        if is_told {
            program.cgroup = path.into();
        }
        if instance.unread == Unread::Program {
            let is_known = !program.cgroup.is_empty();
            instance.unread = if is_known { Unread::Nothing } else { Unread::Cgroup };
        }
        instance.describe(profile);
    }

    /// It is asked of /proc when the process, or one that it begins meanwhile, is sampled.
    fn forget_cgroup(&mut self, pid: u32) {
        let Some(instance) = self.by_pid.get_mut(&pid) else {
            return;
        };
        instance.info.program.cgroup.clear();
        if instance.unread == Unread::Nothing {
            instance.unread = Unread::Cgroup;
        }
    }

    /// A process ends with its last thread: when its first one has ended, the end of each other one may be that.
    fn exit(&mut self, pid: u32, tid: u32, time_ns: u64, profile: &mut Profile) {
        let instance = self.by_pid.get_mut(&pid);
        if let Some(instance) = instance.filter(|instance| tid == pid || instance.ended_ns.is_some()) {
            instance.ended_ns = Some(time_ns);
            if let Some(row) = instance.row {
                profile.process_mut(row).exit_boottime_ns = Some(time_ns);
            }
        }
    }

    fn map(&mut self, pid: u32, map: &MappedFile, time_ns: u64, files: &mut FileStore) {
        if self.only_known && !self.by_pid.contains_key(&pid) {
            return;
        }
        let instance = self
            .by_pid
            .entry(pid)
            .or_insert_with(|| Instance::read(pid, None, files, time_ns));
        instance.add(pid, map, time_ns, files);
    }

    /// The processes whose mappings have changed since the last call, whether they became other programs, and what is
    /// known of them. Of those that have ended and have no samples nothing is told until they are forgotten: threads may be
    /// left.
    pub fn take_changed(&mut self) -> impl Iterator<Item = (u32, bool, Known<'_>)> {
        let by_pid = &self.by_pid;
        self.changed.drain().filter_map(|(pid, became_other)| {
            let known = match by_pid.get(&pid) {
                None => Known::Gone,
                Some(instance) if instance.was_gone => Known::Gone,
                Some(instance) if instance.ended_ns.is_some() => {
                    instance.row?;
                    Known::Ended(&instance.mappings)
                }
                Some(instance) => Known::Mappings(&instance.mappings),
            };
            Some((pid, became_other, known))
        })
    }

    /// What is known of a process is to be told again.
    pub fn mark_changed(&mut self, pid: u32) {
        self.changed.entry(pid).or_default();
    }

    /// Tells of each process that lives what it has mapped.
    pub fn each(&self, mut tell: impl FnMut(u32, &[Mapping])) {
        let live = self.by_pid.iter().filter(|(_, instance)| instance.ended_ns.is_none());
        live.for_each(|(pid, instance)| tell(*pid, &instance.mappings));
    }

    /// Whether a process that is not forgotten yet has a row in the profile.
    pub fn has_row(&self, (pid, start_boottime_ns): ProcessStart) -> bool {
        let instance = self.by_pid.get(&pid);
        instance.is_some_and(|instance| instance.row.is_some() && instance.start_boottime_ns == Some(start_boottime_ns))
    }

    /// Forgets processes that ended a while ago.
    pub fn forget_ended(&mut self, now_ns: u64) {
        let is_over = |pid: &u32, instance: &mut Instance| {
            let is_old = |ended_ns| ended_ns + FORGET_NS <= now_ns;
            instance.ended_ns.is_some_and(is_old) && !procfs::exists(*pid)
        };
        let forgotten = self.by_pid.extract_if(is_over).map(|(pid, _)| (pid, false));
        self.changed.extend(forgotten);
    }

    /// The sample's thread, with rows for it and its process.
    pub fn thread(&mut self, sample: &RawSample<'_>, files: &mut FileStore, profile: &mut Profile) -> ThreadId {
        let header = &sample.header;
        let instance = self.instance(sample, files);
        let comm = header.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        if header.tid == header.tgid && instance.info.comm.as_bytes() != comm {
            instance.info.comm = String::from_utf8_lossy(comm).into_owned();
        }
        let unread = std::mem::replace(&mut instance.unread, Unread::Nothing);
        let row = instance.row(header.tgid, header.ns_tgid, header.start_boottime_ns, profile);
        instance.write_mappings(row, files, profile);
        if unread != Unread::Nothing {
            self.new_programs.push((header.tgid, unread));
        }
        profile.thread(row, header.tid, header.ns_tid, comm)
    }

    /// The program that a sample ran in. A pid that was used again is told by its start.
    fn instance(&mut self, sample: &RawSample<'_>, files: &mut FileStore) -> &mut Instance {
        let header = &sample.header;
        let (pid, start_ns) = (header.tgid, header.start_boottime_ns);
        let is_same = |instance: &Instance| instance.start_boottime_ns.is_none_or(|known_ns| known_ns == start_ns);
        if !self.by_pid.get(&pid).is_some_and(is_same) {
            let instance = Instance::read(pid, Some(start_ns), files, header.boottime_ns);
            self.gone += u64::from(instance.was_gone);
            self.changed.entry(pid).or_default();
            self.by_pid.insert(pid, instance);
        }
        let instance = self.by_pid.get_mut(&pid).expect("just made sure of");
        instance.start_boottime_ns = Some(start_ns);
        instance
    }

    /// The object that an address of the sample's process belongs to, and the address in that object's own space.
    fn resolve(
        &mut self,
        pid: u32,
        address: ProcessAddr,
        files: &mut FileStore,
        profile: &mut Profile,
    ) -> (ObjectId, ObjectAddr) {
        let Some(instance) = self.by_pid.get_mut(&pid) else {
            return self.unknown(GONE, address, profile);
        };
        match instance.find(address.0) {
            Some(Mapping {
                start,
                file_offset,
                target: Target::File(file),
                ..
            }) if !files.is_made_code(file, profile) => {
                files.resolve(file, FileOffset(address.0 - start + file_offset), profile)
            }
            Some(Mapping {
                target: Target::Anonymous | Target::File(_),
                ..
            }) => {
                let object = instance.made_object(pid, profile, &mut self.made_code);
                (object, ObjectAddr(address.0))
            }
            Some(Mapping {
                target: Target::Vsyscall,
                ..
            }) => self.unknown(VSYSCALL, address, profile),
            None if instance.was_gone => self.unknown(GONE, address, profile),
            None => self.unknown(OUTSIDE, address, profile),
        }
    }

    fn unknown(&mut self, reason: &'static str, address: ProcessAddr, profile: &mut Profile) -> (ObjectId, ObjectAddr) {
        let make = || profile.object(ObjectKind::Unknown, &format!("[{reason}]"), &[]);
        let object = *self.unknown.entry(reason).or_insert_with(make);
        self.reasons.insert(object, reason);
        (object, ObjectAddr(address.0))
    }

    /// Why the addresses of an object have no names, for objects that are no files.
    pub fn reason(&self, object: ObjectId) -> Option<&'static str> {
        self.reasons.get(&object).copied()
    }

    /// What a program tells of an object that is the code that it made.
    pub fn made_code(&self, object: ObjectId) -> Option<&MadeCode> {
        self.made_code.get(&object)
    }

    /// Reads what programs have written of the code that they make, where frames in it have no names yet; and tells
    /// frames apart where code took the place of other code.
    pub fn look_at_made_code(&mut self, files: &FileStore, profile: &mut Profile) {
        let fresh = profile.unsymbolized_objects();
        for (object, code) in self.made_code.iter_mut().filter(|(object, _)| fresh.contains(*object)) {
            code.refresh(files);
            let reuse = code.reuse(&profile.addresses_of(*object));
            if !reuse.addresses.is_empty() {
                profile.tell_apart(*object, &reuse.addresses, |address, time_ns| {
                    reuse.generation_at(address, time_ns)
                });
            }
        }
    }

    /// Samples of processes that were gone before they could be looked at.
    pub fn gone(&self) -> u64 {
        self.gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_with_its_last_thread() {
        let (mut files, mut profile) = (FileStore::default(), Profile::default());
        let (mut processes, pid) = (Processes::new(false), std::process::id());
        processes.scan(pid, &mut files, 0);
        let ends = [(1, pid + 1, None), (2, pid, Some(2)), (3, pid + 2, Some(3))];
        for (time_ns, tid, expected) in ends {
            let change = Change::Exit { tid };
            processes.apply(ProcessEvent { time_ns, pid, change }, &mut files, &mut profile);
            assert_eq!(processes.by_pid[&pid].ended_ns, expected);
        }
    }
}
