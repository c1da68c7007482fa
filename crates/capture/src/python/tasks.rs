//! asyncio's tasks in samples: who awaited the one that a thread ran. Their frames are virtual: nobody executes them.
//!
//! ```text
//! …, Handle._run, [Task-1 (main), main, TaskGroup.__aexit__, Task-2 (worker)], worker, …   root first; [virtual]
//! ```

use std::time::{Duration, Instant};

use hashbrown::{HashMap, HashSet};
use stackhound_core::address::{ObjectAddr, ProcessAddr};
use stackhound_core::profile::Profile;
use stackhound_core::python::{Frame as Coroutine, NotCode, Task, Tasks as Reader};
use stackhound_core::rows::{LocationId, ObjectId, ObjectKind};

use super::ADDRESS;
use super::attach::Attached;
use super::codes::{Codes, Seen};
use super::memory::ProcessMemory;
use super::merge::{Frame, Loop};
use crate::abi;

/// Tasks of a process that are asked for in a turn.
const MAX_ASKED: usize = 512;
/// And the time that it may take; those beyond it count as missed.
const MAX_READING: Duration = Duration::from_millis(50);
/// Names of tasks in a profile: a server makes a task a request, each with a number of its own.
const MAX_NAMES: usize = 10_000;
/// What a task is called then.
const ANY: &str = "Task";

/// The tasks of a process, and what each awaits: of which there may be no answer any more.
pub struct Reading {
    task: u64,
    chain: Option<Chain>,
}

/// A task that ran, and those that awaited it, one after the other.
struct Chain(Vec<Suspended>);

/// A task, and where in their code its coroutines are, the outermost first.
struct Suspended {
    name: String,
    coroutines: Vec<Place>,
}

struct Place {
    /// Of the code object, with its tag.
    code: u64,
    /// How far in it.
    distance: u64,
}

/// Asks all questions of one process.
pub fn read(pid: u32, attached: &Attached, asked: &HashSet<u64>) -> Vec<Reading> {
    let memory = ProcessMemory { pid };
    let tasks = attached
        .asyncio
        .and_then(|asyncio| attached.python.tasks(&memory, asyncio));
    let codes = attached.python.codes(&memory);
    let tag_of = |code| codes.tag(code);
    let answer = |task: &u64| Reading {
        task: *task,
        chain: tasks.as_ref().and_then(|tasks| chain_of(tasks, tag_of, *task)),
    };
    let begun = Instant::now();
    let asked = asked.iter().take(MAX_ASKED);
    asked
        .take_while(|_| begun.elapsed() < MAX_READING)
        .map(answer)
        .collect()
}

/// Who awaits a task, unless another one has come to its place since the sample.
fn chain_of(
    tasks: &Reader<'_>,
    tag_of: impl Fn(ProcessAddr) -> Result<u16, NotCode> + Copy,
    task: u64,
) -> Option<Chain> {
    let at = ProcessAddr(task & ADDRESS);
    let chain = tasks.chain(at).ok()??;
    let is_same = tasks.tag(at).ok()? == (task >> abi::PYTHON_TAG_SHIFT) as u16;
    let chain: Option<_> = chain.into_iter().map(|task| Suspended::of(task, tag_of)).collect();
    chain.filter(|_| is_same).map(Chain)
}

impl Suspended {
    fn of(task: Task, tag_of: impl Fn(ProcessAddr) -> Result<u16, NotCode>) -> Option<Self> {
        let place = |frame: &Coroutine| {
            Some(Place {
                code: frame.code.0 | u64::from(tag_of(frame.code).ok()?) << abi::PYTHON_TAG_SHIFT,
                distance: u64::try_from(frame.instruction).unwrap_or(0), // before the first instruction
            })
        };
        Some(Self {
            coroutines: task.frames.iter().map(place).collect::<Option<_>>()?,
            name: task.name,
        })
    }
}

/// Who awaits the tasks of the samples at hand, and what their names are in the profile.
#[derive(Default)]
pub struct Tasks {
    chains: HashMap<(u32, u64), Chain>,
    names: HashMap<ObjectId, String>,
    /// Samples of tasks that had ended, or went on, before it was found out who awaited them.
    pub missed: u64,
}

impl Tasks {
    /// Other samples are at hand.
    pub fn clear(&mut self) {
        self.chains.clear();
    }

    /// Takes note of the answers.
    pub fn add(&mut self, pid: u32, readings: Vec<Reading>) {
        let known = readings
            .into_iter()
            .filter_map(|reading| Some(((pid, reading.task), reading.chain?)));
        self.chains.extend(known);
    }

    /// The code objects that are in chains, by process.
    pub fn codes(&self) -> impl Iterator<Item = (u32, Seen)> {
        let tasks = self
            .chains
            .iter()
            .flat_map(|((pid, _), chain)| chain.0.iter().map(move |task| (*pid, task)));
        tasks.flat_map(|(pid, task)| {
            task.coroutines.iter().map(move |place| {
                let seen = Seen {
                    place: place.code,
                    instruction: 0,
                };
                (pid, seen)
            })
        })
    }

    /// Puts those that await a task between its frames and the event loop's. `frames`: leaf first.
    pub fn insert(
        &mut self,
        (pid, task): (u32, u64),
        frames: &mut Vec<Frame>,
        evaluation: &Loop,
        codes: &mut Codes,
        profile: &mut Profile,
    ) {
        let Some(chain) = self.chains.get(&(pid, task)) else {
            self.missed += 1;
            return;
        };
        let place = chain.place(frames, evaluation);
        let awaiting = chain.locations(pid, codes, profile, &mut self.names);
        match (place, awaiting) {
            (Some(place), Some(locations)) => {
                let awaiting = locations
                    .into_iter()
                    .map(|location| Frame::Python(location, task & ADDRESS));
                drop(frames.splice(place..place, awaiting));
            }
            _ => self.missed += 1,
        }
    }

    /// What an object is called that stands for a task.
    pub fn name(&self, object: ObjectId) -> Option<&str> {
        self.names.get(&object).map(String::as_str)
    }
}

impl Chain {
    /// Behind which frame those go that await the task: the call that runs its outermost coroutine. None where that is
    /// not among the frames, so that the task went on with something else.
    fn place(&self, frames: &[Frame], evaluation: &Loop) -> Option<usize> {
        let outermost = self.0.first()?.coroutines.first()?.code & ADDRESS;
        let is_outermost = |frame: &Frame| matches!(frame, Frame::Python(_, code) if *code == outermost);
        let at = frames.iter().rposition(is_outermost)?;
        let is_call =
            |frame: &Frame| matches!(frame, Frame::Native(address) if evaluation.has(address.wrapping_sub(1)));
        let call = frames[at..].iter().position(is_call);
        Some(at + 1 + call.unwrap_or(0))
    }

    /// The frames of those that await it and its name, leaf first.
    fn locations(
        &self,
        pid: u32,
        codes: &mut Codes,
        profile: &mut Profile,
        names: &mut HashMap<ObjectId, String>,
    ) -> Option<Vec<LocationId>> {
        let mut locations = Vec::new();
        for (at, task) in self.0.iter().enumerate() {
            let awaiting = if at == 0 { &[][..] } else { &task.coroutines };
            for place in awaiting.iter().rev() {
                let object = codes.awaiting(pid, place.code, profile)?;
                locations.push(profile.location(object, ObjectAddr(place.distance)));
            }
            let function = codes.function(pid, task.coroutines.first()?.code)?;
            let object = named(&task.name, &function, profile, names);
            locations.push(profile.location(object, ObjectAddr(0)));
        }
        Some(locations)
    }
}

/// The object that stands for the tasks of a name that run a function.
fn named(name: &str, function: &str, profile: &mut Profile, names: &mut HashMap<ObjectId, String>) -> ObjectId {
    let name = if names.len() < MAX_NAMES { name } else { ANY };
    let shown = format!("{name} ({function})");
    let object = profile.object(ObjectKind::Task, &shown, &[]);
    names.entry(object).or_insert(shown);
    object
}
