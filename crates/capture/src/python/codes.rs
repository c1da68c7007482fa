//! Code objects: each read once, and known by what it says, so that the same code is one object in all processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use stackhound_core::address::{ObjectAddr, ProcessAddr};
use stackhound_core::profile::Profile;
use stackhound_core::python::{Bytecode, Code, Codes as Reader, Counted, Fingerprint, NotCode};
use stackhound_core::rows::{ObjectId, ObjectKind};

use super::attach::Attached;
use super::memory::ProcessMemory;
use super::merge::{Frame, PythonFrame};
use super::{ADDRESS, ENTRY};
use crate::abi;

/// A code object that was found to be the same is believed for as long as it has been known to be, from this on, up to
/// [`TRUSTED`].
const TRUSTED_FIRST: Duration = Duration::from_millis(20);
const TRUSTED: Duration = Duration::from_secs(8);
/// One that is trusted less is compared as a whole: memory that was given back is soon another object's, with the same
/// pointers in it.
const COMPARED_BELOW: Duration = Duration::from_millis(320);
/// Objects of one process that are remembered; beyond it all are read again.
const MAX_CODES: usize = 65_536;
/// Of names and line tables. 100,000 functions have some 50 MB; a process may claim a megabyte for each.
const MAX_KEPT_BYTES: usize = 256 << 20;

const UNREAD: &str = "Python code that could not be read: it was gone, other code was there, or there was too much";

/// A code object in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Its address, and its tag.
    pub place: u64,
    /// Where in it a frame was; 0 where threads have no copies of its bytecode.
    pub instruction: u64,
}

/// What is asked of the object that a sample had at an address: what it is, or whether it is the one that is known.
pub struct Question {
    /// Its address, and its tag.
    place: u64,
    known: Option<Expected>,
}

/// What it should be.
#[derive(Clone, Copy)]
struct Expected {
    fingerprint: Fingerprint,
    hash: u64,
    is_compared: bool,
}

/// The answer.
pub struct Reading {
    place: u64,
    /// None: it is the one that is known.
    code: Option<Result<Code, NotCode>>,
    bytecode: Option<Bytecode>,
}

/// Asks all questions of one process.
pub fn read(pid: u32, attached: &Attached, questions: &[Question]) -> Vec<Reading> {
    let memory = ProcessMemory { pid };
    let codes = attached.python.codes(&memory);
    let answer = |question: &Question| {
        let at = ProcessAddr(question.place & ADDRESS);
        let is_known = question.known.is_some_and(|known| is_same(&codes, at, known));
        Reading {
            place: question.place,
            code: (!is_known).then(|| read_tagged(&codes, question.place)),
            bytecode: codes.bytecode(at).unwrap_or_default(), // gone, as what is read of the object will say
        }
    };
    questions.iter().map(answer).collect()
}

/// The object at a place, unless another one has come there since the sample.
fn read_tagged(codes: &Reader<'_>, place: u64) -> Result<Code, NotCode> {
    let code = codes.read(ProcessAddr(place & ADDRESS))?;
    match u64::from(code.tag) == place >> abi::PYTHON_TAG_SHIFT {
        true => Ok(code),
        false => Err(NotCode::Other),
    }
}

/// Where another object is now, or none, the sample's was the one that is known: they had the same tag.
fn is_same(codes: &Reader<'_>, at: ProcessAddr, known: Expected) -> bool {
    match codes.fingerprint(at) {
        Ok(fingerprint) if fingerprint == known.fingerprint && known.is_compared => {
            codes.read(at).map_or(true, |code| code.hash == known.hash)
        }
        _ => true,
    }
}

/// An object at an address of a process.
struct Known {
    object: ObjectId,
    fingerprint: Fingerprint,
    hash: u64,
    first_read: Instant,
    checked: Instant,
    trusted: Duration,
    /// It took another's place since the last samples, which may be of either.
    is_ambiguous: bool,
    /// Where threads have copies of it.
    bytecode: Option<Bytecode>,
}

impl Known {
    fn expected(&self) -> Expected {
        Expected {
            fingerprint: self.fingerprint,
            hash: self.hash,
            is_compared: self.trusted < COMPARED_BELOW,
        }
    }

    fn confirm(&mut self, bytecode: Option<Bytecode>) {
        self.checked = Instant::now();
        self.trusted = self.first_read.elapsed().clamp(TRUSTED_FIRST, TRUSTED);
        self.is_ambiguous = false;
        self.bytecode = bytecode.or(self.bytecode.take());
    }

    /// Whether nothing has to be asked before a frame at this instruction is believed.
    fn tells(&self, instruction: u64) -> bool {
        self.checked.elapsed() < self.trusted && (instruction == 0 || self.own(instruction).is_some())
    }

    /// Whether it will not be believed much longer.
    fn is_old(&self) -> bool {
        self.checked.elapsed() >= self.trusted / 2
    }

    /// The instruction in the object's own bytecode; None when it is in a copy that is not known.
    fn own(&self, instruction: u64) -> Option<u64> {
        self.bytecode
            .as_ref()
            .map_or(Some(instruction), |bytecode| bytecode.own(instruction))
    }
}

/// All code objects.
#[derive(Default)]
pub struct Codes {
    by_place: HashMap<u32, HashMap<u64, Known>>,
    by_object: HashMap<ObjectId, Arc<Code>>,
    /// The same code where it awaits.
    awaiting: HashMap<ObjectId, Arc<Code>>,
    kept_bytes: usize,
    unread: Option<ObjectId>,
}

impl Codes {
    /// What has to be asked before these can be believed; then also what would have to be asked soon.
    pub fn to_ask(&self, pid: u32, seen: &HashSet<Seen>) -> Vec<Question> {
        let all_known = self.by_place.get(&pid);
        let known = |place: u64| all_known.and_then(|known| known.get(&place));
        let tells = |seen: &Seen| known(seen.place).is_some_and(|known| known.tells(seen.instruction));
        if seen.iter().all(tells) {
            return Vec::new();
        }
        let is_old = |seen: &Seen| known(seen.place).is_some_and(Known::is_old);
        let open = seen.iter().filter(|seen| !tells(seen) || is_old(seen));
        let places: HashSet<u64> = open.map(|seen| seen.place).collect();
        let question = |place| Question {
            place,
            known: known(place).map(Known::expected),
        };
        places.into_iter().map(question).collect()
    }

    /// Takes note of the answers; tells whether any was new.
    pub fn add(&mut self, pid: u32, readings: Vec<Reading>, profile: &mut Profile) -> bool {
        let mut is_new = false;
        for Reading { place, code, bytecode } in readings {
            let known = self.by_place.entry(pid).or_default();
            match code {
                None => {
                    if let Some(known) = known.get_mut(&place) {
                        known.confirm(bytecode);
                    } // unless all were dropped meanwhile
                }
                Some(Ok(code)) if self.kept_bytes + code.bytes() <= MAX_KEPT_BYTES => {
                    is_new = true;
                    let is_ambiguous = known.remove(&place).is_some();
                    if known.len() >= MAX_CODES {
                        known.clear();
                    }
                    let now = Instant::now();
                    let new = Known {
                        fingerprint: code.fingerprint,
                        hash: code.hash,
                        object: self.intern(code, profile),
                        first_read: now,
                        checked: now,
                        trusted: Duration::ZERO,
                        is_ambiguous,
                        bytecode,
                    };
                    self.by_place.entry(pid).or_default().insert(place, new);
                }
                Some(_) => drop(known.remove(&place)),
            }
        }
        is_new
    }

    fn intern(&mut self, code: Code, profile: &mut Profile) -> ObjectId {
        let object = profile.object(ObjectKind::Python, &code.file, &code.hash.to_be_bytes());
        if let Entry::Vacant(entry) = self.by_object.entry(object) {
            self.kept_bytes += code.bytes();
            entry.insert(Arc::new(code));
        }
        object
    }

    /// The place of a frame, as the walker has written it.
    pub fn locate(&mut self, pid: u32, code: u64, instruction: (Counted, u64), profile: &mut Profile) -> PythonFrame {
        let (place, is_entry) = (code & !ENTRY, code & ENTRY != 0);
        let address = place & ADDRESS;
        let frame = (address != 0).then(|| {
            let known = self.by_place.get(&pid).and_then(|known| known.get(&place));
            let (object, at) = match known.filter(|known| !known.is_ambiguous) {
                Some(known) => {
                    let (counted, at) = instruction;
                    (
                        known.object,
                        known.own(at).map_or(0, |own| distance(address, (counted, own))),
                    )
                }
                None => (self.unread(profile), address),
            };
            Frame::Python(profile.location(object, ObjectAddr(at)), address)
        });
        PythonFrame { frame, is_entry }
    }

    /// What stands for the code at a place where it awaits; None when it is not known.
    pub fn awaiting(&mut self, pid: u32, place: u64, profile: &mut Profile) -> Option<ObjectId> {
        let code = Arc::clone(self.at(pid, place)?);
        let object = profile.object(ObjectKind::Task, &code.file, &code.hash.to_be_bytes());
        self.awaiting.entry(object).or_insert(code);
        Some(object)
    }

    /// What the function at a place is called; None when it is not known.
    pub fn function(&self, pid: u32, place: u64) -> Option<String> {
        let code = self.at(pid, place)?;
        Some(code.qualified_name.as_ref().unwrap_or(&code.name).clone())
    }

    fn at(&self, pid: u32, place: u64) -> Option<&Arc<Code>> {
        let known = self.by_place.get(&pid)?.get(&place)?;
        self.by_object.get(&known.object).filter(|_| !known.is_ambiguous)
    }

    fn unread(&mut self, profile: &mut Profile) -> ObjectId {
        *self
            .unread
            .get_or_insert_with(|| profile.object(ObjectKind::Python, "[Python]", &[]))
    }

    /// A process has ended, or become another program.
    pub fn forget(&mut self, pid: u32) {
        self.by_place.remove(&pid);
    }

    /// What an object is; Err with the reason for the one that stands for those that could not be read.
    pub fn of(&self, object: ObjectId) -> Option<Result<&Arc<Code>, &'static str>> {
        if self.unread == Some(object) {
            return Some(Err(UNREAD));
        }
        self.by_object.get(&object).map(Ok)
    }

    /// What an object is that stands for code where it awaits.
    pub fn of_awaiting(&self, object: ObjectId) -> Option<&Arc<Code>> {
        self.awaiting.get(&object)
    }
}

/// How far into a code object a frame has come: as its version counts, or in bytes from its address. 0 is before the
/// first instruction.
fn distance(code: u64, (counted, instruction): (Counted, u64)) -> u64 {
    let distance = match counted {
        Counted::Pointer { .. } => instruction.wrapping_sub(code) as i64,
        Counted::Bytes | Counted::Units => i64::from(instruction as i32),
    };
    u64::try_from(distance).unwrap_or(0) // before the first instruction
}
