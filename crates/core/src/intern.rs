//! Objects, locations and threads, each stored once and known by its row.

use hashbrown::HashMap;

use crate::address::ObjectAddr;
use crate::hashes::hash_location;
use crate::rows::{LocationId, ObjectId, ObjectKind, ProcessId, ThreadId};

/// The table `objects`.
#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) kind: Vec<ObjectKind>,
    pub(crate) path: Vec<String>,
    /// Lower-case hex.
    pub(crate) build_id: Vec<String>,
    ids: HashMap<(ObjectKind, Content), ObjectId>,
}

/// What makes two files the same object.
#[derive(PartialEq, Eq, Hash)]
enum Content {
    BuildId(String),
    File(String, Box<[u8]>),
}

impl Objects {
    pub(crate) fn intern(&mut self, kind: ObjectKind, path: &str, build_id: &[u8], identity: &[u8]) -> ObjectId {
        let build_id = hex(build_id);
        let content = match build_id.is_empty() {
            true => Content::File(path.to_owned(), identity.into()),
            false => Content::BuildId(build_id.clone()),
        };
        let next = ObjectId(self.kind.len() as u32);
        let id = *self.ids.entry((kind, content)).or_insert(next);
        if id == next {
            self.kind.push(kind);
            self.path.push(path.to_owned());
            self.build_id.push(build_id);
        }
        id
    }

    fn hash_location(&self, object: ObjectId, address: ObjectAddr) -> u64 {
        let row = object.index();
        let identity = if self.build_id[row].is_empty() {
            &self.path[row]
        } else {
            &self.build_id[row]
        };
        hash_location(self.kind[row].name(), identity, address.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The table `locations`.
#[derive(Default)]
pub(crate) struct Locations {
    pub(crate) object: Vec<ObjectId>,
    pub(crate) address: Vec<ObjectAddr>,
    /// Why a location has no name; only for those that have none.
    pub(crate) reason: HashMap<LocationId, String>,
    /// Of what the first ones say, as far as [`Locations::grow_hashes`] was asked for.
    hash: Vec<u64>,
    ids: HashMap<(ObjectId, ObjectAddr), LocationId>,
}

impl Locations {
    pub(crate) fn intern(&mut self, object: ObjectId, address: ObjectAddr) -> LocationId {
        let next = LocationId(self.object.len() as u32);
        let id = *self.ids.entry((object, address)).or_insert(next);
        if id == next {
            self.object.push(object);
            self.address.push(address);
        }
        id
    }

    /// Hashes of what all of them say, for the stacks' hashes: not made while a recording runs.
    pub(crate) fn hashes(&self, objects: &Objects) -> Vec<u64> {
        let mut hash = self.hash.clone();
        hash.extend(self.new_hashes(objects));
        hash
    }

    /// The same, kept for the next call.
    pub(crate) fn grow_hashes(&mut self, objects: &Objects) -> &[u64] {
        let new: Vec<u64> = self.new_hashes(objects).collect();
        self.hash.extend(new);
        &self.hash
    }

    fn new_hashes(&self, objects: &Objects) -> impl Iterator<Item = u64> {
        let new = self.hash.len()..self.object.len();
        new.map(|row| objects.hash_location(self.object[row], self.address[row]))
    }
}

/// The table `threads`.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) process: Vec<ProcessId>,
    pub(crate) tid: Vec<u32>,
    pub(crate) ns_tid: Vec<u32>,
    pub(crate) comm: Vec<String>,
    /// The row under each thread's present name.
    present: HashMap<(ProcessId, u32), ThreadId>,
    /// The rows under the names that threads had before.
    former: HashMap<(ProcessId, u32, String), ThreadId>,
}

impl Threads {
    pub(crate) fn intern(&mut self, process: ProcessId, tid: u32, ns_tid: u32, comm: &[u8]) -> ThreadId {
        let next = ThreadId(self.tid.len() as u32);
        let present = self.present.entry((process, tid)).or_insert(next);
        let comm_of = |id: ThreadId| self.comm.get(id.index()).map(String::as_str);
        if comm_of(*present).is_some_and(|known| known.as_bytes() == comm) {
            return *present;
        }
        let comm = String::from_utf8_lossy(comm).into_owned();
        if let Some(before) = comm_of(*present) {
            self.former.insert((process, tid, before.to_owned()), *present);
            *present = *self.former.get(&(process, tid, comm.clone())).unwrap_or(&next);
        }
        let id = *present;
        if id == next {
            self.process.push(process);
            self.tid.push(tid);
            self.ns_tid.push(ns_tid);
            self.comm.push(comm);
        }
        id
    }
}
