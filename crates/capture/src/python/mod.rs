//! Python in the processes that are recorded: which of them run it, where the walker in the kernel finds its frames, and
//! what its code objects are.
//!
//! `attach` finds an interpreter's structures in a process, `codes` reads code objects once each, `merge` puts Python's
//! frames between the native ones. All reading is done by a deputy, since it may hang.

mod attach;
mod codes;
mod memory;
mod merge;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use stackhound_core::address::FileOffset;
use stackhound_core::elf::Elf;
use stackhound_core::profile::Profile;
use stackhound_core::python::{Code, Counted, Interpreter, Refusal, Version};
use stackhound_core::rows::ObjectId;

use crate::abi;
use crate::deputy::Deputy;
use crate::error::Result;
use crate::files::FileId;
use crate::mappings::{Mapping, Target};
use crate::raw_sample::{PythonPart, RawSample};
use crate::unwind::Unwinder;
use attach::Attached;
use codes::{Codes, Reading};
pub use merge::{Fit, Frame, Parts, PythonFrame};

/// Reading what is new of one process may take so long; then it is not waited for again.
const PATIENCE: Duration = Duration::from_millis(100);
/// An interpreter that is not initialized yet is looked at again after this, then after twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// All processes that run Python.
pub struct Pythons {
    interpreters: HashMap<FileId, Arc<Found>>,
    processes: HashMap<u32, Process>,
    codes: Codes,
    has_news: bool,
    deputy: Deputy<Answer>,
    refusals: BTreeMap<String, u64>,
    /// What finding interpreters in processes took.
    pub cost: Cost,
}

/// What finding interpreters in processes took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Those that could be read.
    pub processes: u64,
    /// For all of them together, from the moment that each was looked at with success.
    pub attach_ns: u64,
}

/// An interpreter in a file.
pub struct Found {
    /// What the file says of it.
    pub interpreter: Interpreter,
    /// Where in the file its evaluation loop begins.
    pub evaluation: FileOffset,
}

impl Found {
    /// The interpreter that is in an ELF file, if there is one.
    pub fn look(elf: &Elf, bytes: &[u8]) -> Option<Self> {
        let interpreter = Interpreter::find(bytes)?;
        let evaluation = elf.file_offset(interpreter.evaluation.first()?.start)?;
        Some(Self {
            interpreter,
            evaluation,
        })
    }

    /// From the interpreter's own addresses to those of a process that has this mapped.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let distance = self.evaluation.0.checked_sub(mapping.file_offset)?;
        let is_mapped = distance < mapping.end - mapping.start;
        let own = self.interpreter.evaluation[0].start.0;
        is_mapped.then(|| (mapping.start + distance).wrapping_sub(own))
    }
}

/// What the deputy comes back with.
enum Answer {
    Attached(std::result::Result<Arc<Attached>, Refusal>),
    Read(Vec<Reading>),
}

/// A process that has interpreters mapped. It may have more than the one that it runs: a library of them.
struct Process {
    candidates: Vec<Candidate>,
    state: State,
}

/// An interpreter's file, where a process has it.
#[derive(Clone)]
struct Candidate {
    found: Arc<Found>,
    /// From the file's own addresses to the process's.
    bias: u64,
}

impl Candidate {
    fn is(&self, other: &Self) -> bool {
        self.bias == other.bias && Arc::ptr_eq(&self.found, &other.found)
    }
}

enum State {
    /// The interpreter was not initialized yet.
    Waiting {
        pause: Duration,
        due: Instant,
    },
    Attached(Arc<Attached>),
    /// It took too long to answer: no more is read of it.
    Silent(Arc<Attached>),
    /// It cannot be read.
    Refused,
}

impl Pythons {
    /// Nothing is known yet.
    pub fn new() -> Result<Self> {
        Ok(Self {
            interpreters: HashMap::new(),
            processes: HashMap::new(),
            codes: Codes::default(),
            has_news: false,
            deputy: Deputy::new()?,
            refusals: BTreeMap::new(),
            cost: Cost::default(),
        })
    }

    /// A file turned out to have an interpreter in it: [`Pythons::follow`] all processes again.
    pub fn add_interpreter(&mut self, file: FileId, found: Found) {
        self.interpreters.insert(file, Arc::new(found));
    }

    /// What a process has mapped now.
    pub fn follow(&mut self, pid: u32, mappings: &[Mapping]) {
        if self.interpreters.is_empty() {
            return;
        }
        let candidates = self.candidates(mappings);
        let is_known = |known: &Process| match &known.state {
            State::Attached(attached) | State::Silent(attached) => {
                candidates.iter().any(|one| one.is(&attached.candidate))
            }
            _ => known.candidates.len() == candidates.len(),
        };
        if candidates.is_empty() || self.processes.get(&pid).is_some_and(is_known) {
            return;
        }
        let process = Process {
            candidates,
            state: State::Waiting {
                pause: FIRST_PAUSE,
                due: Instant::now(),
            },
        };
        self.processes.insert(pid, process);
    }

    fn candidates(&self, mappings: &[Mapping]) -> Vec<Candidate> {
        let candidate = |mapping: &Mapping| {
            let Target::File(file) = mapping.target else {
                return None;
            };
            let found = self.interpreters.get(&file)?;
            let bias = found.bias(mapping)?;
            Some(Candidate {
                found: Arc::clone(found),
                bias,
            })
        };
        mappings.iter().filter_map(candidate).collect()
    }

    /// The process became another program, or has ended.
    pub fn forget(&mut self, pid: u32) {
        if self.processes.remove(&pid).is_some() {
            self.codes.forget(pid);
        }
    }

    /// When an interpreter is to be looked at again.
    pub fn due(&self) -> Option<Instant> {
        let waiting = self.processes.values().filter_map(|process| match process.state {
            State::Waiting { due, .. } => Some(due),
            _ => None,
        });
        waiting.min()
    }

    /// Looks at the interpreters that are due, and tells the walker of those that can be read.
    pub fn attach(&mut self, unwinder: &mut Unwinder) {
        let now = Instant::now();
        let is_due = |process: &Process| matches!(process.state, State::Waiting { due, .. } if due <= now);
        let due = self.processes.iter().filter(|(_, process)| is_due(process));
        for pid in due.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            self.attach_one(pid, unwinder);
        }
    }

    fn attach_one(&mut self, pid: u32, unwinder: &mut Unwinder) {
        let now = Instant::now();
        let process = self.processes.get_mut(&pid).expect("one of those that wait");
        let candidates = process.candidates.clone();
        let work = move || Answer::Attached(Attached::new(pid, &candidates).map(Arc::new));
        process.state = match (self.deputy.within(PATIENCE, work), &process.state) {
            (Some(Answer::Attached(Ok(attached))), _) => {
                unwinder.set_python(pid, &attached.walk);
                self.cost.processes += 1;
                self.cost.attach_ns += now.elapsed().as_nanos() as u64;
                State::Attached(attached)
            }
            (Some(Answer::Attached(Err(Refusal::NotYet | Refusal::Unreadable(_)))), State::Waiting { pause, .. }) => {
                State::Waiting {
                    pause: (*pause * 2).min(LONGEST_PAUSE),
                    due: now + *pause,
                }
            }
            (answer, _) => {
                let why = match answer {
                    Some(Answer::Attached(Err(refusal))) => refusal.to_string(),
                    _ => "an interpreter cannot be read in time".into(),
                };
                *self.refusals.entry(why).or_default() += 1;
                State::Refused
            }
        };
    }

    /// Reads the code objects that these samples are the first to show, and makes sure of the others. It is called
    /// before the samples are stored, and soon after they were taken.
    pub fn learn<'s>(&mut self, samples: impl Iterator<Item = RawSample<'s>>, profile: &mut Profile) {
        let mut seen: HashMap<u32, HashSet<u64>> = HashMap::new();
        self.has_news = false;
        for sample in samples {
            if let Some(python) = sample.python
                && self.processes.contains_key(&sample.header.tgid)
            {
                seen.entry(sample.header.tgid).or_default().extend(codes_of(python));
            }
        }
        for (pid, codes) in seen {
            self.learn_of(pid, codes, profile);
        }
    }

    fn learn_of(&mut self, pid: u32, codes: HashSet<u64>, profile: &mut Profile) {
        let Some(State::Attached(attached)) = self.processes.get(&pid).map(|process| &process.state) else {
            return;
        };
        let asked = self.codes.to_ask(pid, codes);
        if asked.is_empty() {
            return;
        }
        let (attached, silent) = (Arc::clone(attached), Arc::clone(attached));
        match self
            .deputy
            .within(PATIENCE, move || Answer::Read(codes::read(pid, &attached, &asked)))
        {
            Some(Answer::Read(readings)) => self.has_news |= self.codes.add(pid, readings, profile),
            _ => {
                self.refuse("code objects cannot be read in time".into());
                let process = self.processes.get_mut(&pid).expect("looked at above");
                process.state = State::Silent(silent);
            }
        }
    }

    fn refuse(&mut self, why: String) {
        *self.refusals.entry(why).or_default() += 1;
    }

    /// Whether the last samples had code objects that were not known: others may follow, of a program that ends soon.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// A sample's user frames, leaf first: the native ones with Python's between them.
    pub fn merge(&mut self, sample: &RawSample<'_>, profile: &mut Profile, frames: &mut Vec<Frame>) -> Option<Fit> {
        let process = self.processes.get(&sample.header.tgid);
        let (Some(process), Some(python)) = (process, sample.python) else {
            frames.extend(sample.user.iter().map(|address| Frame::Native(*address)));
            return None;
        };
        let pid = sample.header.tgid;
        let (counted, evaluation) = match &process.state {
            State::Attached(attached) | State::Silent(attached) => {
                (attached.python.layout.walk.counted, &attached.evaluation[..])
            }
            State::Waiting { .. } | State::Refused => (Counted::Bytes, &[][..]), // of no code object that is known
        };
        let mut locate = |(code, instruction)| self.codes.locate(pid, code, (counted, instruction), profile);
        let located: Vec<PythonFrame> = python.frames().map(&mut locate).collect();
        let parts = Parts {
            native: sample.user,
            python: &located,
            is_rooted: sample.user_end() == abi::END_ROOT,
            is_whole: python.end() == abi::PYTHON_COMPLETE,
        };
        Some(parts.merge(evaluation, frames))
    }

    /// What is known of an object that is a code object; Err for the one that stands for those that could not be read.
    pub fn code(&self, object: ObjectId) -> Option<std::result::Result<&Arc<Code>, &'static str>> {
        self.codes.of(object)
    }

    /// The processes whose interpreters can be read, and which CPython each runs.
    pub fn versions(&self) -> impl Iterator<Item = (u32, Version)> {
        self.processes.iter().filter_map(|(pid, process)| match &process.state {
            State::Attached(attached) | State::Silent(attached) => Some((*pid, attached.python.layout.version)),
            State::Waiting { .. } | State::Refused => None,
        })
    }

    /// Which interpreters could not be read, in words.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.refusals.iter().map(|(why, processes)| match processes {
            1 => format!("no Python frames in 1 process: {why}"),
            _ => format!("no Python frames in {processes} processes: {why}"),
        })
    }
}

/// The code objects of a sample: addresses with tags.
fn codes_of(python: PythonPart<'_>) -> impl Iterator<Item = u64> {
    python.frames().map(|(code, _)| code & !ENTRY).filter(|code| *code != 0)
}

const ENTRY: u64 = abi::PYTHON_ENTRY as u64;
/// Of a code object's word in a sample: its address. Above it is the tag.
const ADDRESS: u64 = (1 << abi::PYTHON_TAG_SHIFT) - 1;
