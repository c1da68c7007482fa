//! Python in the processes that are recorded: which of them run it, where the walker in the kernel finds its frames, and
//! what its code objects are.
//!
//! `attach` finds an interpreter's structures in a process, `codes` reads code objects once each, `merge` puts Python's
//! frames between the native ones, `tasks` those of asyncio's tasks that await the one that runs. All reading is done by a deputy, since it may hang.

mod attach;
mod codes;
mod memory;
mod merge;
mod tasks;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use stackhound_core::address::FileOffset;
use stackhound_core::elf::Elf;
use stackhound_core::profile::Profile;
use stackhound_core::python::{Asyncio, Code, Counted, Interpreter, Refusal, Version, switches_stacks};
use stackhound_core::rows::ObjectId;

use crate::abi;
use crate::deputy::{Behind, Deputy, Late, Patience};
use crate::error::Result;
use crate::files::FileId;
use crate::mappings::{Mapping, Target};
use crate::raw_sample::{PythonPart, RawSample};
use crate::unwind::Unwinder;
use attach::Attached;
use codes::{Codes, Processes, Reading, Seen};
use merge::Loop;
pub use merge::{Fit, Frame, Parts, PythonFrame};
use tasks::Tasks;

/// Memory of one process may keep a read waiting so long; then that is left behind.
const PATIENCE: Duration = Duration::from_millis(100);
/// And all processes together may take so long in a turn: the rings are not emptied meanwhile.
const TURN: Duration = Duration::from_millis(300);
/// A process whose memory took too long is asked again after this at the earliest, then after twice as long each time.
const FIRST_ABSENCE: Duration = Duration::from_secs(1);
const LONGEST_ABSENCE: Duration = Duration::from_secs(64);
/// An interpreter that is not initialized yet is looked at again after this, then after twice as long each time.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// All processes that run Python.
pub struct Pythons {
    interpreters: HashMap<FileId, Arc<FoundInterpreter>>,
    /// None: tasks are not asked for.
    asyncios: Option<HashMap<FileId, Asyncio>>,
    /// Files whose code switches stacks.
    switchers: HashSet<FileId>,
    processes: HashMap<u32, Process>,
    programs: HashSet<FileId>,
    /// Of those the ones that nobody was told of.
    new_programs: Vec<FileId>,
    codes: Codes,
    tasks: Tasks,
    has_news: bool,
    /// When an interpreter was found last.
    attached: Option<Instant>,
    deputy: Deputy<Answer>,
    turn_ends: Instant,
    refusals: BTreeMap<String, u64>,
    /// Processes whose memory took too long, by what was read first.
    late: BTreeMap<&'static str, u64>,
    /// Versions of which it is not known who awaits their tasks.
    unlinked: BTreeMap<String, u64>,
    /// What finding interpreters in processes took.
    pub cost: Cost,
}

/// After that, new code is met in samples that are read in time, or the program lives long enough.
const YOUTH: Duration = Duration::from_secs(1);

/// What finding interpreters in processes took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Those that could be read.
    pub processes: u64,
    /// For all of them together, from the moment that each was looked at with success.
    pub attach_ns: u64,
}

/// What of Python is in a file.
pub struct Found {
    interpreter: Option<FoundInterpreter>,
    asyncio: Option<Asyncio>,
    switches_stacks: bool,
}

impl Found {
    /// What is in an ELF file, if there is anything.
    pub fn look(elf: &Elf, bytes: &[u8]) -> Option<Self> {
        let found = Self {
            interpreter: FoundInterpreter::look(elf, bytes),
            asyncio: Asyncio::find(bytes),
            switches_stacks: switches_stacks(bytes),
        };
        (found.interpreter.is_some() || found.asyncio.is_some() || found.switches_stacks).then_some(found)
    }
}

/// An interpreter in a file.
struct FoundInterpreter {
    /// What the file says of it.
    interpreter: Interpreter,
    /// Where in the file its evaluation loop begins, where that is known.
    evaluation: Option<FileOffset>,
}

impl FoundInterpreter {
    /// The interpreter that is in an ELF file, if there is one.
    fn look(elf: &Elf, bytes: &[u8]) -> Option<Self> {
        let interpreter = Interpreter::find(bytes)?;
        let evaluation = interpreter.evaluation.first();
        Some(Self {
            evaluation: evaluation.and_then(|first| elf.file_offset(first.start)),
            interpreter,
        })
    }

    /// From the interpreter's own addresses to those of a process that has this mapped.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let Some(evaluation) = self.evaluation else {
            return Some(0); // any of the file's: it will be refused
        };
        let distance = evaluation.0.checked_sub(mapping.file_offset)?;
        let is_mapped = distance < mapping.end - mapping.start;
        let own = self.interpreter.evaluation[0].start.0;
        is_mapped.then(|| (mapping.start + distance).wrapping_sub(own))
    }
}

/// What the deputy comes back with.
enum Answer {
    Attached(std::result::Result<Arc<Attached>, Refusal>),
    Read(Vec<Reading>),
    Tasks(Vec<tasks::Reading>),
}

/// A process that has interpreters mapped. It may have more than the one that it runs: a library of them.
struct Process {
    candidates: Vec<Candidate>,
    asyncio: Option<Asyncio>,
    /// Code that switches stacks.
    switches: Vec<Range<u64>>,
    state: State,
    absence: Option<Absence>,
}

/// Nothing is read of a process whose memory took too long: until that read is over, and some time.
struct Absence {
    behind: Behind,
    pause: Duration,
    until: Instant,
}

impl Absence {
    fn after(last: Option<&Self>, behind: Behind) -> Self {
        let pause = last.map_or(FIRST_ABSENCE, |last| (last.pause * 2).min(LONGEST_ABSENCE));
        let until = Instant::now() + pause;
        Self { behind, pause, until }
    }

    fn is_over(&self) -> bool {
        self.behind.is_back() && Instant::now() >= self.until
    }
}

/// An interpreter's file, where a process has it.
#[derive(Clone)]
struct Candidate {
    found: Arc<FoundInterpreter>,
    /// From the file's own addresses to the process's.
    bias: u64,
}

impl Candidate {
    fn is(&self, other: &Self) -> bool {
        self.bias == other.bias && Arc::ptr_eq(&self.found, &other.found)
    }
}

impl Process {
    /// The interpreter that it runs, if that can be read.
    fn attached(&self) -> Option<&Arc<Attached>> {
        match &self.state {
            State::Attached(attached, _) => Some(attached),
            State::Waiting(_) | State::Refused => None,
        }
    }

    fn is_away(&self) -> bool {
        self.absence.as_ref().is_some_and(|absence| !absence.is_over())
    }

    /// The interpreter, if that can be asked now.
    fn answering(&self) -> Option<&Arc<Attached>> {
        self.attached().filter(|_| !self.is_away())
    }

    /// When it is to be looked at again.
    fn next(&self) -> Option<Next> {
        match &self.state {
            State::Waiting(next) => Some(*next),
            State::Attached(_, next) => *next,
            State::Refused => None,
        }
    }

    /// Whether threads have copies of the bytecode.
    fn has_copies(&self) -> bool {
        self.attached()
            .is_some_and(|attached| attached.python.layout.walk.copies.is_some())
    }
}

/// When it is looked at again, and how long after that once more.
#[derive(Clone, Copy)]
struct Next {
    pause: Duration,
    due: Instant,
}

impl Next {
    fn first() -> Self {
        Self {
            pause: FIRST_PAUSE,
            due: Instant::now(),
        }
    }

    fn after(self, now: Instant) -> Self {
        Self {
            pause: (self.pause * 2).min(LONGEST_PAUSE),
            due: now + self.pause,
        }
    }
}

enum State {
    /// The interpreter was not initialized yet.
    Waiting(Next),
    /// It can be read. It is looked at again where asyncio is about to be imported.
    Attached(Arc<Attached>, Option<Next>),
    /// It cannot be read.
    Refused,
}

impl Pythons {
    /// Nothing is known yet. `asyncio`: finds out who awaits the tasks that threads run.
    pub fn new(asyncio: bool) -> Result<Self> {
        Ok(Self {
            interpreters: HashMap::new(),
            asyncios: asyncio.then(HashMap::new),
            switchers: HashSet::new(),
            processes: HashMap::new(),
            programs: HashSet::new(),
            new_programs: Vec::new(),
            codes: Codes::default(),
            tasks: Tasks::default(),
            has_news: false,
            attached: None,
            deputy: Deputy::new()?,
            turn_ends: Instant::now(),
            refusals: BTreeMap::new(),
            late: BTreeMap::new(),
            unlinked: BTreeMap::new(),
            cost: Cost::default(),
        })
    }

    /// A file turned out to have Python in it: [`Pythons::follow`] all processes again.
    pub fn add(&mut self, file: FileId, found: Found) {
        if let Some(interpreter) = found.interpreter {
            self.interpreters.insert(file, Arc::new(interpreter));
        }
        if let (Some(asyncios), Some(asyncio)) = (&mut self.asyncios, found.asyncio) {
            asyncios.insert(file, asyncio);
        }
        if found.switches_stacks {
            self.switchers.insert(file);
        }
    }

    /// What a process has mapped now.
    pub fn follow(&mut self, pid: u32, mappings: &[Mapping]) {
        if self.interpreters.is_empty() {
            return;
        }
        let (candidates, asyncio) = (self.candidates(mappings), self.asyncio(mappings));
        let switches = self.switches(mappings);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.switches.clone_from(&switches);
        }
        let is_known = |known: &Process| match &known.state {
            State::Attached(attached, _) => {
                candidates.iter().any(|one| one.is(&attached.candidate)) && known.asyncio == asyncio
            }
            _ => known.candidates.len() == candidates.len(),
        };
        if candidates.is_empty() || self.processes.get(&pid).is_some_and(is_known) {
            return;
        }
        let process = Process {
            candidates,
            asyncio,
            switches,
            state: State::Waiting(Next::first()),
            absence: self.processes.remove(&pid).and_then(|known| known.absence),
        };
        self.processes.insert(pid, process);
        let program = mappings.iter().find_map(|mapping| match mapping.target {
            Target::File(file) => Some(file), // libraries lie above their program
            _ => None,
        });
        let is_new = |program: &FileId| self.programs.insert(*program);
        self.new_programs.extend(program.filter(is_new));
    }

    /// Programs that have an interpreter in them, or load one; those that turned up since the last call.
    pub fn take_programs(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.new_programs)
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

    /// The asyncio that a process has mapped, if that is asked for.
    fn asyncio(&self, mappings: &[Mapping]) -> Option<Asyncio> {
        let asyncios = self.asyncios.as_ref()?;
        let found = mappings.iter().find_map(|mapping| match mapping.target {
            Target::File(file) => asyncios.get(&file),
            _ => None,
        });
        found.copied()
    }

    /// Where code is mapped that switches stacks.
    fn switches(&self, mappings: &[Mapping]) -> Vec<Range<u64>> {
        let is_switcher = |mapping: &&Mapping| match mapping.target {
            Target::File(file) => self.switchers.contains(&file),
            _ => false,
        };
        let switchers = mappings.iter().filter(is_switcher);
        switchers.map(|mapping| mapping.start..mapping.end).collect()
    }

    /// The process became another program, or has ended.
    pub fn forget(&mut self, pid: u32) {
        if self.processes.remove(&pid).is_some() {
            self.codes.forget(pid);
        }
    }

    /// When an interpreter is to be looked at again.
    pub fn due(&self) -> Option<Instant> {
        let next = self.processes.values().filter_map(Process::next);
        next.map(|next| next.due).min()
    }

    /// Looks at the interpreters that are due, and tells the walker of those that can be read.
    pub fn attach(&mut self, unwinder: &mut Unwinder) {
        self.begin_turn();
        let now = Instant::now();
        let is_due = |process: &Process| process.next().is_some_and(|next| next.due <= now);
        let due = self.processes.iter().filter(|(_, process)| is_due(process));
        for pid in due.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            self.attach_one(pid, unwinder);
        }
    }

    fn attach_one(&mut self, pid: u32, unwinder: &mut Unwinder) {
        let now = Instant::now();
        let process = self.processes.get(&pid).expect("one of those that are due");
        let next = process.next().unwrap_or_else(Next::first).after(now);
        let (candidates, asyncio) = (process.candidates.clone(), process.asyncio);
        let work = move || Answer::Attached(Attached::new(pid, &candidates, asyncio).map(Arc::new));
        let state = match self.ask(pid, "an interpreter", work) {
            Some(Answer::Attached(Ok(attached))) => {
                unwinder.set_python(pid, &attached.walk);
                self.cost.processes += 1;
                self.cost.attach_ns += now.elapsed().as_nanos() as u64;
                let layout = &attached.python.layout;
                if asyncio.is_some() && !layout.tells_awaiting_tasks() {
                    *self.unlinked.entry(layout.to_string()).or_default() += 1;
                }
                let next = attached.is_early.then_some(next);
                self.attached = Some(now);
                State::Attached(attached, next)
            }
            Some(Answer::Attached(Err(refusal))) if !refusal.may_pass() => {
                *self.refusals.entry(refusal.to_string()).or_default() += 1;
                State::Refused
            }
            _ => match self.processes[&pid].attached() {
                Some(attached) => State::Attached(Arc::clone(attached), Some(next)),
                None => State::Waiting(next),
            },
        };
        self.processes.get_mut(&pid).expect("as before").state = state;
    }

    /// From now on so much time may be taken as in one turn.
    pub fn begin_turn(&mut self) {
        self.turn_ends = Instant::now() + TURN;
    }

    /// What the deputy comes back with from a process; None when that took too long, now or a moment ago, or there is no
    /// time left in this turn.
    fn ask(&mut self, pid: u32, what: &'static str, work: impl FnOnce() -> Answer + Send + 'static) -> Option<Answer> {
        let computing = self.turn_ends.saturating_duration_since(Instant::now());
        if self.processes.get(&pid)?.is_away() || computing < PATIENCE {
            return None;
        }
        let patience = Patience {
            waiting: PATIENCE,
            computing,
        };
        let late = match self.deputy.within(patience, work) {
            Ok(answer) => return Some(answer),
            Err(late) => late,
        };
        if let (Late::Behind(behind), Some(process)) = (late, self.processes.get_mut(&pid)) {
            let absence = Absence::after(process.absence.as_ref(), behind);
            if process.absence.replace(absence).is_none() {
                *self.late.entry(what).or_default() += 1;
            }
        }
        None
    }

    /// Reads the code objects that these samples are the first to show, and makes sure of the others. It is called
    /// before the samples are stored, and soon after they were taken, in what is left of the turn.
    pub fn learn<'s>(&mut self, samples: impl Iterator<Item = RawSample<'s>>, profile: &mut Profile) {
        let mut seen: HashMap<u32, HashSet<Seen>> = HashMap::new();
        let mut tasks: HashMap<u32, HashSet<u64>> = HashMap::new();
        for sample in samples {
            let pid = sample.header.tgid;
            if let (Some(python), Some(process)) = (sample.python, self.processes.get(&pid)) {
                let codes = codes_of(python, process.has_copies());
                seen.entry(pid).or_default().extend(codes);
                if let Some(task) = python.task() {
                    tasks.entry(pid).or_default().insert(task);
                }
            }
        }
        self.has_news = !tasks.is_empty(); // they will await others soon
        self.learn_tasks(tasks);
        for (pid, code) in self.tasks.codes() {
            seen.entry(pid).or_default().insert(code);
        }
        for (pid, seen) in seen {
            self.learn_of(pid, &seen, profile);
        }
    }

    fn learn_tasks(&mut self, tasks: HashMap<u32, HashSet<u64>>) {
        self.tasks.clear();
        for (pid, asked) in tasks {
            let Some(attached) = self.processes.get(&pid).and_then(Process::answering) else {
                continue;
            };
            let attached = Arc::clone(attached);
            let work = move || Answer::Tasks(tasks::read(pid, &attached, &asked));
            if let Some(Answer::Tasks(readings)) = self.ask(pid, "tasks", work) {
                self.tasks.add(pid, readings);
            }
        }
    }

    fn learn_of(&mut self, pid: u32, seen: &HashSet<Seen>, profile: &mut Profile) {
        let Some(attached) = self.processes.get(&pid).and_then(Process::answering) else {
            return;
        };
        let asked = self.codes.questions(pid, seen);
        if asked.is_empty() {
            return;
        }
        let attached = Arc::clone(attached);
        let work = move || Answer::Read(codes::read(pid, &attached, &asked));
        match self.ask(pid, "code objects", work) {
            Some(Answer::Read(readings)) => self.has_news |= self.codes.add(pid, readings, profile),
            _ if self.processes.get(&pid).is_some_and(Process::is_away) => {} // and is counted as such
            _ => self.codes.hurrying.note(pid),                               // others took all the time
        }
    }

    /// Forgets that code objects were put off: whoever has the same samples still may [`Pythons::learn`] them again.
    pub fn forget_put_off(&mut self) {
        self.codes.hurrying = Processes::default();
    }

    /// Whether there was not the time, or the room, to read all code objects.
    pub fn has_put_off(&self) -> bool {
        self.codes.hurrying.count > 0
    }

    /// Whether an interpreter was found a moment ago: its program may end soon, and nothing of its code is known yet.
    pub fn is_young(&self) -> bool {
        self.attached.is_some_and(|at| at.elapsed() < YOUTH)
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
        let unknown = Loop::default();
        let (counted, evaluation, may_enter_another) = match process.attached() {
            Some(attached) => {
                let layout = &attached.python.layout;
                (layout.walk.counted, &attached.evaluation, layout.may_enter_another())
            }
            None => (Counted::Bytes, &unknown, true), // of no code object that is known
        };
        let mut locate = |(code, instruction)| self.codes.locate(pid, code, (counted, instruction), profile);
        let located: Vec<PythonFrame> = python.frames().map(&mut locate).collect();
        let parts = Parts {
            native: sample.user,
            python: &located,
            is_rooted: sample.user_end() == abi::END_ROOT,
            is_whole: python.end() == abi::PYTHON_COMPLETE,
            has_all_calls: !may_enter_another && python.holds_gil(),
            switches: &process.switches,
        };
        let fit = parts.merge(evaluation, frames);
        if let Some(task) = python.task() {
            self.tasks
                .insert((pid, task), frames, evaluation, &mut self.codes, profile);
        }
        Some(fit)
    }

    /// What is known of an object that is a code object; Err for the one that stands for those that could not be read.
    pub fn code(&self, object: ObjectId) -> Option<std::result::Result<&Arc<Code>, &'static str>> {
        self.codes.of(object)
    }

    /// The processes whose interpreters can be read, and which CPython each runs.
    pub fn versions(&self) -> impl Iterator<Item = (u32, Version)> {
        let attached = |process: &Process| process.attached().map(|attached| attached.python.layout.version);
        self.processes
            .iter()
            .filter_map(move |(pid, process)| Some((*pid, attached(process)?)))
    }

    /// What is known of an object that is an asyncio task, or code of one that awaits another one.
    pub fn task(&self, object: ObjectId) -> Option<TaskObject<'_>> {
        let name = self.tasks.name(object).map(TaskObject::Named);
        name.or_else(|| self.codes.of_awaiting(object).map(TaskObject::Awaiting))
    }

    /// Which interpreters could not be read, and whose tasks, in words.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let refusals = self.refusals.iter().map(|(why, count)| {
            let processes = counted(*count, "process", "processes");
            format!("no Python frames in {processes}: {why}")
        });
        let unlinked = self.unlinked.iter().map(|(version, count)| {
            let processes = counted(*count, "process", "processes");
            format!("not shown who awaits the tasks of {processes}: of CPython {version} that is not known")
        });
        let missed = (self.tasks.missed > 0).then(|| {
            let samples = counted(self.tasks.missed, "sample", "samples");
            format!("not shown who awaited the task of {samples}: it went on before that was read")
        });
        let late = self.late.iter().map(|(what, count)| {
            let processes = counted(*count, "process", "processes");
            format!("Python frames or their names are missing in {processes}: {what} took too long to read")
        });
        let short = |processes: &Processes, why| {
            let said = counted(processes.count, "process", "processes");
            (processes.count > 0).then(|| format!("Python functions without names in {said}: {why}"))
        };
        let crowding = short(&self.codes.crowding, "more code than one may have kept");
        let hurrying = short(&self.codes.hurrying, "more new code at once than is read in a turn");
        refusals
            .chain(unlinked)
            .chain(missed)
            .chain(late)
            .chain(crowding)
            .chain(hurrying)
    }
}

/// What an object of kind `task` stands for.
pub enum TaskObject<'a> {
    /// A task of this name.
    Named(&'a str),
    /// Code where it awaits.
    Awaiting(&'a Arc<Code>),
}

fn counted(count: u64, one: &str, several: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {several}"),
    }
}

/// The code objects of a sample. `has_copies`: of bytecode.
fn codes_of(python: PythonPart<'_>, has_copies: bool) -> impl Iterator<Item = Seen> {
    let seen = python.frames().map(move |(code, instruction)| Seen {
        place: code & !ENTRY,
        instruction: if has_copies { instruction } else { 0 },
    });
    seen.filter(|seen| seen.place != 0)
}

const ENTRY: u64 = abi::PYTHON_ENTRY as u64;
/// Of a code object's word in a sample: its address. Above it is the tag.
const ADDRESS: u64 = (1 << abi::PYTHON_TAG_SHIFT) - 1;
