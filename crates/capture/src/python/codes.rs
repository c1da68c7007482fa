//! Code objects: each read once, and known by what it says, so that the same code is one object in all processes.
//!
//! A process says what it likes, so that everything has a bound: questions and bytes in a turn, and of what is kept a share
//! for each process. What is beyond it has no name, in that process alone. When processes have ended, what is not needed
//! any more of their code is let go.

use std::sync::Arc;
use std::time::{Duration, Instant};

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
/// Questions to one process in a turn: more than any program shows of its code in 100 ms.
const MAX_ASKED: usize = 4096;
/// Of answers to them, and the time that they may take; the rest is asked when samples show it again.
const MAX_READ_BYTES: usize = 8 << 20;
const MAX_READING: Duration = Duration::from_millis(50);
/// Of names and line tables of all processes. 100,000 functions have some 50 MB; a process may claim a megabyte for each.
const MAX_KEPT_BYTES: usize = 128 << 20;
/// Of those that one process was the first to show, at most; and this part of what others leave, with its own.
const MAX_PROCESS_BYTES: usize = 32 << 20;
const SHARE: usize = 4;
/// Line tables of processes that have ended are let go when there may be so much of them: it takes a look at all
/// locations.
const MANY_ENDED_BYTES: usize = 8 << 20;

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
    answer: Answer,
    bytecode: Option<Bytecode>,
}

enum Answer {
    /// It is the one that is known.
    Same,
    New(Code),
    /// There is no code object, or another one than the sample's.
    None,
    /// It was not looked at: the answers before it were too much.
    PutOff,
}

/// Asks the questions of one process, as far as that has room and time.
pub fn read(pid: u32, attached: &Attached, questions: &[Question]) -> Vec<Reading> {
    let memory = ProcessMemory { pid };
    read_within(&attached.python.codes(&memory), questions, MAX_READ_BYTES, MAX_READING)
}

fn read_within(codes: &Reader<'_>, questions: &[Question], bytes: usize, time: Duration) -> Vec<Reading> {
    let (begun, mut left) = (Instant::now(), bytes);
    let mut answer = |question: &Question| {
        let is_over = left == 0 || begun.elapsed() >= time;
        let reading = if is_over {
            question.put_off()
        } else {
            question.ask(codes)
        };
        if let Answer::New(code) = &reading.answer {
            left = left.saturating_sub(code.bytes());
        }
        reading
    };
    questions.iter().map(&mut answer).collect()
}

impl Question {
    fn ask(&self, codes: &Reader<'_>) -> Reading {
        let at = ProcessAddr(self.place & ADDRESS);
        let is_known = self.known.is_some_and(|known| is_same(codes, at, known));
        let read = || read_tagged(codes, self.place).map_or(Answer::None, Answer::New);
        Reading {
            place: self.place,
            answer: if is_known { Answer::Same } else { read() },
            bytecode: codes.bytecode(at).unwrap_or_default(), // gone, as what is read of the object will say
        }
    }

    fn put_off(&self) -> Reading {
        Reading {
            place: self.place,
            answer: Answer::PutOff,
            bytecode: None,
        }
    }
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
    /// Hashes of the objects whose line tables are there.
    whole: HashSet<u64>,
    kept_bytes: usize,
    /// Of these what each process was the first to show.
    brought: HashMap<u32, usize>,
    /// And what those have that ended since the last look at that.
    ended_bytes: usize,
    unread: Option<ObjectId>,
    /// With more code than their share.
    pub crowding: Processes,
    /// With more new code at once than is read in a turn.
    pub hurrying: Processes,
}

/// Processes that something is said of at the end.
#[derive(Default)]
pub struct Processes {
    now: HashSet<u32>,
    /// How many there were.
    pub count: u64,
}

impl Processes {
    /// One that may be among them already.
    pub fn note(&mut self, pid: u32) {
        self.count += u64::from(self.now.insert(pid));
    }
}

impl Codes {
    /// What has to be asked before these can be believed; then also what would have to be asked soon.
    pub fn questions(&mut self, pid: u32, seen: &HashSet<Seen>) -> Vec<Question> {
        let all_known = self.by_place.get(&pid);
        let known = |place: u64| all_known.and_then(|known| known.get(&place));
        let tells = |seen: &Seen| known(seen.place).is_some_and(|known| known.tells(seen.instruction));
        if seen.iter().all(tells) {
            return Vec::new();
        }
        let is_old = |seen: &Seen| known(seen.place).is_some_and(Known::is_old);
        let open = seen.iter().filter(|seen| !tells(seen) || is_old(seen));
        let mut urgent: HashMap<u64, bool> = HashMap::new();
        open.for_each(|seen| *urgent.entry(seen.place).or_default() |= !tells(seen));
        let mut places: Vec<_> = urgent.into_iter().collect();
        places.sort_unstable_by_key(|(_, is_urgent)| !is_urgent);
        let beyond = places.split_off(places.len().min(MAX_ASKED));
        let question = |(place, _)| Question {
            place,
            known: known(place).map(Known::expected),
        };
        let questions = places.into_iter().map(question).collect();
        let beyond = beyond.into_iter().filter(|(_, is_urgent)| *is_urgent);
        beyond.for_each(|(place, _)| self.put_off(pid, place));
        questions
    }

    /// What had to be asked and could not be is not believed.
    fn put_off(&mut self, pid: u32, place: u64) {
        let known = self.by_place.get(&pid).and_then(|known| known.get(&place));
        if !known.is_some_and(|known| known.tells(0)) {
            self.hurrying.note(pid);
            self.disbelieve(pid, place);
        }
    }

    fn disbelieve(&mut self, pid: u32, place: u64) {
        if let Some(known) = self.by_place.get_mut(&pid) {
            known.remove(&place);
        }
    }

    /// Takes note of the answers; tells whether any was new.
    pub fn add(&mut self, pid: u32, readings: Vec<Reading>, profile: &mut Profile) -> bool {
        if self.ended_bytes >= MANY_ENDED_BYTES {
            self.settle(profile);
        }
        let mut is_new = false;
        for Reading {
            place,
            answer,
            bytecode,
        } in readings
        {
            match answer {
                Answer::Same => {
                    if let Some(known) = self.by_place.get_mut(&pid).and_then(|known| known.get_mut(&place)) {
                        known.confirm(bytecode);
                    } // unless all were dropped meanwhile
                }
                Answer::New(code) if self.has_room(pid, &code) => {
                    is_new = true;
                    self.know(pid, place, code, bytecode, profile);
                }
                Answer::New(_) => {
                    self.crowding.note(pid);
                    self.disbelieve(pid, place);
                }
                Answer::None => self.disbelieve(pid, place),
                Answer::PutOff => self.put_off(pid, place),
            }
        }
        is_new
    }

    fn know(&mut self, pid: u32, place: u64, code: Code, bytecode: Option<Bytecode>, profile: &mut Profile) {
        let known = self.by_place.entry(pid).or_default();
        let is_ambiguous = known.remove(&place).is_some();
        if known.len() >= MAX_CODES {
            known.clear();
        }
        let now = Instant::now();
        let new = Known {
            fingerprint: code.fingerprint,
            hash: code.hash,
            object: self.intern(pid, code, profile),
            first_read: now,
            checked: now,
            trusted: Duration::ZERO,
            is_ambiguous,
            bytecode,
        };
        self.by_place.entry(pid).or_default().insert(place, new);
    }

    /// Whether the process may add this to what is kept; what is there already costs nobody anything.
    fn has_room(&self, pid: u32, code: &Code) -> bool {
        let brought = self.brought.get(&pid).copied().unwrap_or(0);
        let left = MAX_KEPT_BYTES.saturating_sub(self.kept_bytes);
        let share = MAX_PROCESS_BYTES.min((brought + left) / SHARE);
        self.whole.contains(&code.hash) || brought + code.bytes() <= share
    }

    fn intern(&mut self, pid: u32, code: Code, profile: &mut Profile) -> ObjectId {
        let object = profile.object(ObjectKind::Python, &code.file, &code.hash.to_be_bytes());
        if self.whole.insert(code.hash) {
            let bytes = code.bytes();
            *self.brought.entry(pid).or_default() += bytes;
            let settled = self.by_object.insert(object, Arc::new(code));
            self.kept_bytes = self.kept_bytes + bytes - settled.map_or(0, |code| code.bytes());
        }
        object
    }

    /// Of code that no process runs any more only the places are kept that are in the profile.
    fn settle(&mut self, profile: &Profile) {
        self.ended_bytes = 0;
        let of_processes = self.by_place.values().flat_map(HashMap::values);
        let living: HashSet<u64> = of_processes.map(|known| known.hash).collect();
        let kept = || self.by_object.iter().chain(&self.awaiting);
        let is_over = |code: &Code| code.is_whole() && !living.contains(&code.hash);
        let over = kept().filter(|(_, code)| is_over(code)).map(|(object, _)| *object);
        let over: HashSet<ObjectId> = over.collect();
        let mut addresses = profile.addresses_in(&over);
        for (object, code) in self.by_object.iter_mut().chain(&mut self.awaiting) {
            if over.contains(object) {
                let of_object = addresses.remove(object).unwrap_or_default();
                let instructions = of_object.into_iter().map(|at| i64::try_from(at.0).unwrap_or(0));
                *code = Arc::new(code.settled(instructions));
            }
        }
        self.whole.retain(|hash| living.contains(hash));
        self.kept_bytes = self.by_object.values().map(|code| code.bytes()).sum();
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
        self.awaiting.insert(object, code); // the one there may have been settled
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
        self.ended_bytes += self.brought.remove(&pid).unwrap_or(0);
        self.crowding.now.remove(&pid);
        self.hurrying.now.remove(&pid);
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

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use stackhound_core::python::{Interpreter, Memory, Python, Unreadable, Version};

    use super::*;

    const PID: u32 = 7;
    const OTHER: u32 = 8;
    const MEGABYTE: usize = 1 << 20;
    const LONG: Duration = Duration::from_secs(60);

    const RUNTIME: u64 = 0x10_0000;
    const INTERPRETER: u64 = 0x20_0000;
    const THREAD: u64 = 0x30_0000;
    const NAME: u64 = 0x40_0000;
    const TABLE: u64 = 0x100_0000;
    /// Where code objects are, one a page.
    const CODES: u64 = 0x1000_0000;
    const PAGE: u64 = 4096;

    /// A process with CPython 3.11 whose code objects are without number: they differ in their first line alone, and
    /// have one name and one line table.
    struct Liar {
        table_bytes: usize,
    }

    impl Liar {
        fn word(&self, address: u64) -> u64 {
            let at = |object: u64, offset| object + offset == address;
            match address {
                _ if at(RUNTIME, 40) => INTERPRETER,
                _ if at(INTERPRETER, 16) => THREAD,
                _ if at(NAME, 16) => 4,                        // characters
                _ if at(NAME, 32) => 1 << 2 | 1 << 5 | 1 << 6, // of one byte each, ASCII
                _ if at(NAME, 48) => u64::from_le_bytes(*b"name\0\0\0\0"),
                _ if at(TABLE, 16) => self.table_bytes as u64,
                CODES.. => match (address - CODES) % PAGE {
                    112 | 120 | 128 => NAME,
                    136 => TABLE,
                    72 => (address - CODES) / PAGE + 1,
                    _ => 0,
                },
                _ => 0,
            }
        }
    }

    impl Memory for Liar {
        fn read(&self, address: ProcessAddr, into: &mut [u8]) -> Result<(), Unreadable> {
            if (TABLE + PAGE..CODES).contains(&address.0) || into.len() > PAGE as usize {
                return Ok(()); // of a table: zeros
            }
            for (offset, byte) in into.iter_mut().enumerate() {
                let at = address.0 + offset as u64;
                *byte = self.word(at & !7).to_le_bytes()[(at % 8) as usize];
            }
            Ok(())
        }
    }

    fn python(memory: &Liar) -> Python {
        let interpreter = Interpreter {
            version: Version::of_minor(11),
            runtime: ObjectAddr(RUNTIME),
            code_type: None,
            is_debug_build: false,
            evaluation: Vec::new(),
            has_tail_calls: false,
        };
        Python::attach(&interpreter, 0, memory).unwrap()
    }

    fn place(codes: &Reader<'_>, number: u64) -> u64 {
        let at = CODES + number * PAGE;
        at | u64::from(codes.tag(ProcessAddr(at)).unwrap()) << abi::PYTHON_TAG_SHIFT
    }

    /// What comes of asking for these for the first time.
    fn read_all(table_bytes: usize, numbers: Range<u64>, bytes: usize, time: Duration) -> Vec<Reading> {
        let memory = Liar { table_bytes };
        let python = python(&memory);
        let codes = python.codes(&memory);
        let questions: Vec<_> = numbers
            .map(|number| Question {
                place: place(&codes, number),
                known: None,
            })
            .collect();
        read_within(&codes, &questions, bytes, time)
    }

    fn added(codes: &mut Codes, pid: u32, numbers: Range<u64>, profile: &mut Profile) {
        codes.add(pid, read_all(MEGABYTE, numbers, usize::MAX, LONG), profile);
    }

    fn known(codes: &Codes, pid: u32) -> usize {
        codes.by_place.get(&pid).map_or(0, HashMap::len)
    }

    /// A turn reads some megabytes, or for some time, and leaves the rest to the next one.
    #[test]
    fn what_is_read_in_a_turn_is_bounded() {
        let new = |readings: &[Reading]| {
            let is_new = |reading: &&Reading| matches!(reading.answer, Answer::New(_));
            readings.iter().filter(is_new).count()
        };
        assert_eq!(new(&read_all(MEGABYTE, 0..20, 4 * MEGABYTE, LONG)), 4);
        assert_eq!(new(&read_all(100, 0..20, 4 * MEGABYTE, LONG)), 20);
        assert_eq!(new(&read_all(100, 0..20, 4 * MEGABYTE, Duration::ZERO)), 0);
    }

    /// Questions beyond the bound wait, and those that do not have to be asked yet wait first.
    #[test]
    fn what_is_asked_in_a_turn_is_bounded() {
        let seen = |places: Range<u64>| places.map(|place| Seen { place, instruction: 0 }).collect();
        let mut codes = Codes::default();
        assert_eq!(codes.questions(PID, &seen(1..101)).len(), 100);
        assert_eq!(codes.hurrying.count, 0);
        assert_eq!(codes.questions(PID, &seen(1..MAX_ASKED as u64 + 100)).len(), MAX_ASKED);
        assert_eq!(codes.hurrying.count, 1);
    }

    /// A process with too much code is the only one that goes without names.
    #[test]
    fn one_process_takes_no_room_from_another() {
        let (mut codes, mut profile) = (Codes::default(), Profile::default());
        added(&mut codes, PID, 0..40, &mut profile);
        assert_eq!(known(&codes, PID), MAX_PROCESS_BYTES / MEGABYTE - 1);
        added(&mut codes, OTHER, 0..50, &mut profile);
        assert_eq!((codes.crowding.count, codes.hurrying.count), (1, 0));
        assert_eq!(known(&codes, OTHER), 50); // what is there costs nothing
        assert!(codes.kept_bytes < 2 * MAX_PROCESS_BYTES);
    }

    /// Whatever many do, a part is left.
    #[test]
    fn all_processes_together_leave_something() {
        let (mut codes, mut profile) = (Codes::default(), Profile::default());
        for process in 0..12 {
            added(
                &mut codes,
                process,
                u64::from(process) * 40..u64::from(process + 1) * 40,
                &mut profile,
            );
        }
        assert!(codes.kept_bytes < MAX_KEPT_BYTES);
        codes.add(OTHER + 12, read_all(1000, 5000..5100, usize::MAX, LONG), &mut profile);
        assert_eq!(known(&codes, OTHER + 12), 100);
    }

    /// What ended processes took is there again, and what the profile has of them keeps its lines.
    #[test]
    fn room_is_given_back_when_processes_end() {
        let (mut codes, mut profile) = (Codes::default(), Profile::default());
        let readings = read_all(MEGABYTE, 0..20, usize::MAX, LONG);
        let shown = readings[0].place;
        codes.add(PID, readings, &mut profile);
        let frame = (shown & ADDRESS) + 184;
        codes.locate(PID, shown, (Counted::Pointer { bytecode: 184 }, frame), &mut profile);
        let object = codes.by_place[&PID][&shown].object;
        let position = codes.by_object[&object].position(184);
        codes.forget(PID);
        codes.add(OTHER, read_all(MEGABYTE, 19..20, usize::MAX, LONG), &mut profile);
        assert!(codes.kept_bytes < 2 * MEGABYTE);
        let code = codes.of(object).unwrap().unwrap();
        assert_eq!(
            (code.position(184), code.first_line, code.is_whole()),
            (position, 1, false)
        );
        added(&mut codes, OTHER, 0..1, &mut profile);
        assert!(codes.of(object).unwrap().unwrap().is_whole());
        assert!(codes.kept_bytes > 2 * MEGABYTE);
    }
}
