//! How often the walker finds what an independent unwinder finds, for benches/unwind_accuracy.py.
//!
//! ```text
//! unwind_accuracy RULES STACKS STEPS SECONDS NAME=PID…
//! ```
//!
//! Stops each thread of the processes again and again, and lets it take STEPS single steps each time, until so many
//! stacks were walked both ways, SECONDS have passed or the processes have ended. A stack is that of a thread that has moved. RULES are the
//! tables' own (`right`), or what must be found out: `shifted`, `frame-pointers`. Prints JSON.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stackhound_core::unwind::{Cfa, Rule};
use stackhound_replay::{Case, Comparison, Difference, End, Oracle, Registers, Replay, Stack, Traced, Walker, threads};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long the threads run before they are stopped again.
const RUN: Duration = Duration::from_millis(1);
/// Rounds after which new threads are looked for.
const ROUNDS: usize = 32;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rules, stacks, steps, seconds, programs @ ..] = arguments.as_slice() else {
        return Err("usage: unwind_accuracy RULES STACKS STEPS SECONDS NAME=PID…".into());
    };
    let programs = programs
        .iter()
        .map(|program| parse_program(program))
        .collect::<Result<Vec<_>>>()?;
    let mut bench = Bench {
        replay: Replay::new(change(rules)?)?,
        walker: Walker::default(),
        oracle: Oracle::default(),
        steps: steps.parse()?,
        found: BTreeMap::new(),
        differences: HashMap::new(),
    };
    bench.run(&programs, stacks.parse()?, Duration::from_secs(seconds.parse()?))?;
    println!("{}", bench.report());
    Ok(())
}

fn parse_program(argument: &str) -> Result<(String, u32)> {
    let (name, pid) = argument.split_once('=').ok_or("NAME=PID")?;
    Ok((name.to_owned(), pid.parse()?))
}

fn change(rules: &str) -> Result<fn(&mut Rule)> {
    Ok(match rules {
        "right" => |_| (),
        "shifted" => |rule| {
            rule.cfa_offset += if rule.cfa == Cfa::SP && rule.cfa_offset == 32 {
                8
            } else {
                0
            }
        },
        "frame-pointers" => |rule| {
            *rule = Rule {
                cfa: Cfa::FRAME_POINTER,
                cfa_offset: 16,
                ..Rule::NONE
            }
        },
        _ => return Err("RULES are right, shifted or frame-pointers".into()),
    })
}

/// What was found in one program.
#[derive(Default)]
struct Found {
    stacks: usize,
    equal_stacks: usize,
    rooted: usize,
    equal: usize,
    equal_by_frame_pointers: usize,
    beyond: usize,
    different: usize,
    /// By how the walker ended and how the oracle did.
    ends: BTreeMap<(End, End), usize>,
}

/// What a difference is known by: the program, and the code whose caller was found otherwise.
#[derive(PartialEq, Eq, Hash)]
struct Cause {
    program: String,
    object: String,
    function: String,
    walker: Option<End>,
    oracle: Option<End>,
}

struct Bench {
    replay: Replay,
    walker: Walker,
    oracle: Oracle,
    steps: usize,
    found: BTreeMap<String, Found>,
    /// Frames, stacks, and one of the addresses in the object.
    differences: HashMap<Cause, (usize, usize, u64)>,
}

struct Thread {
    program: String,
    traced: Traced,
    last: Option<Registers>,
}

impl Bench {
    fn run(&mut self, programs: &[(String, u32)], stacks: usize, patience: Duration) -> Result<()> {
        let begin = Instant::now();
        let mut traced: BTreeMap<u32, Thread> = BTreeMap::new();
        for round in 0.. {
            if round % ROUNDS == 0 {
                look_for_new(programs, &mut traced);
            }
            let mut ended = Vec::new();
            for (tid, thread) in &mut traced {
                if !self.visit(thread)? {
                    ended.push(*tid);
                }
            }
            ended.iter().for_each(|tid| drop(traced.remove(tid)));
            let found: usize = self.found.values().map(|found| found.stacks).sum();
            if traced.is_empty() || found >= stacks || begin.elapsed() > patience {
                break;
            }
            std::thread::sleep(RUN);
        }
        Ok(())
    }

    /// False when the thread has ended.
    fn visit(&mut self, thread: &mut Thread) -> Result<bool> {
        let Thread { program, traced, last } = thread;
        let Ok(Some(mut stopped)) = traced.stop() else {
            return Ok(false);
        };
        let mut case = stopped.case(&mut self.replay)?;
        for _ in 0..=self.steps {
            if last.as_ref() == Some(&case.registers) {
                break;
            }
            *last = Some(case.registers.clone());
            self.compare(program, case);
            if stopped.is_at_system_call() {
                break;
            }
            if !stopped.step()? {
                return Ok(false);
            }
            case = stopped.same_code()?;
        }
        Ok(true)
    }

    fn compare(&mut self, program: &str, mut case: Case) {
        let (oracle, certain) = self.oracle.walk(&self.replay, &mut case);
        let walker = self.walker.walk(&self.replay, &mut case);
        let comparison = Comparison::new(&walker, &oracle, certain);
        let found = self.found.entry(program.to_owned()).or_default();
        found.stacks += 1;
        found.equal_stacks += usize::from(comparison.difference.is_none());
        found.rooted += usize::from(walker.end == End::Root);
        found.equal += comparison.equal;
        found.equal_by_frame_pointers += comparison.equal_by_frame_pointers;
        found.beyond += comparison.beyond;
        found.different += comparison.different;
        *found.ends.entry((walker.end, oracle.end)).or_default() += 1;
        if let Some(difference) = comparison.difference {
            self.note(program, &case, difference, [&walker, &oracle], comparison.different);
        }
    }

    fn note(&mut self, program: &str, case: &Case, difference: Difference, stacks: [&Stack; 2], frames: usize) {
        let callee = stacks[0].addresses[difference.frame - 1] - u64::from(difference.frame > 1);
        let (object, address, function) = self.oracle.describe(&self.replay, case, callee);
        let cause = Cause {
            program: program.to_owned(),
            object,
            function,
            walker: difference.walker.is_none().then_some(stacks[0].end),
            oracle: difference.oracle.is_none().then_some(stacks[1].end),
        };
        let noted = self.differences.entry(cause).or_insert((0, 0, address));
        noted.0 += frames;
        noted.1 += 1;
    }

    fn report(&self) -> Value {
        let programs: BTreeMap<&String, Value> = self.found.iter().map(|(name, it)| (name, it.report())).collect();
        let differences = self.differences.iter().map(|(cause, (frames, stacks, address))| {
            json!({
                "program": cause.program,
                "object": cause.object,
                "function": cause.function,
                "address": format!("{address:#x}"),
                "walker": cause.walker.map_or("another frame".into(), |end| format!("{end:?}")),
                "oracle": cause.oracle.map_or("another frame".into(), |end| format!("{end:?}")),
                "frames": frames,
                "stacks": stacks,
            })
        });
        json!({ "programs": programs, "differences": differences.collect::<Vec<_>>() })
    }
}

impl Found {
    fn report(&self) -> Value {
        let ends = self.ends.iter().map(|((walker, oracle), stacks)| {
            json!({ "walker": format!("{walker:?}"), "oracle": format!("{oracle:?}"), "stacks": stacks })
        });
        json!({
            "stacks": self.stacks,
            "equal_stacks": self.equal_stacks,
            "rooted": self.rooted,
            "equal": self.equal,
            "equal_by_frame_pointers": self.equal_by_frame_pointers,
            "beyond": self.beyond,
            "different": self.different,
            "ends": ends.collect::<Vec<_>>(),
        })
    }
}

fn look_for_new(programs: &[(String, u32)], traced: &mut BTreeMap<u32, Thread>) {
    for (program, pid) in programs {
        for tid in threads(*pid) {
            traced.entry(tid).or_insert_with(|| Thread {
                program: program.clone(),
                traced: Traced::new(*pid, tid),
                last: None,
            });
        }
    }
}
