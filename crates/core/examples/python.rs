//! What can be read of a Python process from outside, for tests and benchmarks: JSON, one object a line.
//!
//! ```text
//! python files FILE...   of each: the interpreter in it, and how long it took to find
//! python process PID     the interpreter, its lock, its threads with their frames
//! python codes PID       code objects, each a line `ADDRESS UNITS` on standard input: names, and where each of so many
//!                        units of bytecode is in the source
//! ```

use std::error::Error;
use std::ops::Range;
use std::time::Instant;

use serde_json::{Value, json};
use stackhound_core::address::{ObjectAddr, ProcessAddr};
use stackhound_core::elf::Elf;
use stackhound_core::maps::{Map, parse_maps};
use stackhound_core::python::{
    Code, Codes, Counted, Frame, Interpreter, Memory, NotCode, Position, Python, Refusal, Slot, Thread, Unreadable,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The shortest of so many tries is how long it takes.
const TRIES: u32 = 10;

/// A process that runs on meanwhile may have to be asked again.
const MAX_ATTEMPTS: usize = 100;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (what, rest) = arguments
        .split_first()
        .ok_or("usage: python files FILE... | process PID | codes PID")?;
    match (what.as_str(), rest) {
        ("files", files) => files.iter().try_for_each(|file| show_file(file)),
        ("process", [pid]) => show_process(&Process(pid.parse()?)),
        ("codes", [pid]) => show_codes(&Process(pid.parse()?)),
        _ => Err("usage: python files FILE... | process PID | codes PID".into()),
    }
}

/// Another process's memory.
struct Process(i32);

impl Memory for Process {
    fn read(&self, address: ProcessAddr, into: &mut [u8]) -> std::result::Result<(), Unreadable> {
        let local = libc::iovec {
            iov_base: into.as_mut_ptr().cast(),
            iov_len: into.len(),
        };
        let remote = libc::iovec {
            iov_base: address.0 as *mut libc::c_void,
            iov_len: into.len(),
        };
        // SAFETY: `local` is as long as `into`; the kernel checks `remote`.
        let read = unsafe { libc::process_vm_readv(self.0, &raw const local, 1, &raw const remote, 1, 0) };
        if usize::try_from(read) == Ok(into.len()) {
            Ok(())
        } else {
            Err(Unreadable(address))
        }
    }
}

impl Process {
    /// The interpreter in one of its files, and by how much its addresses differ from the file's.
    fn interpreter(&self) -> Result<(Interpreter, u64)> {
        let maps: Vec<Map> = parse_maps(&std::fs::read(format!("/proc/{}/maps", self.0))?).collect();
        for map in maps.iter().filter(|map| map.executable && map.inode != 0) {
            let path = format!("/proc/{}/map_files/{:x}-{:x}", self.0, map.start.0, map.end.0);
            let file = std::fs::read(path)?;
            if let Some(interpreter) = Interpreter::find(&file) {
                let object = Elf::parse(&file)?
                    .object_addr(map.file_offset)
                    .ok_or("code that is not loaded")?;
                return Ok((interpreter, map.start.0.wrapping_sub(object.0)));
            }
        }
        Err("no interpreter".into())
    }

    fn attach(&self) -> Result<(Interpreter, Python)> {
        let (interpreter, bias) = self.interpreter()?;
        let python = retried(|| Python::attach(&interpreter, bias, self))?;
        Ok((interpreter, python))
    }
}

fn retried<T, E>(mut attempt: impl FnMut() -> std::result::Result<T, E>) -> std::result::Result<T, E> {
    for _ in 1..MAX_ATTEMPTS {
        if let Ok(result) = attempt() {
            return Ok(result);
        }
    }
    attempt()
}

fn show_file(path: &str) -> Result<()> {
    let file = std::fs::read(path)?;
    let found = Interpreter::find(&file);
    let took = (0..TRIES).map(|_| {
        let start = Instant::now();
        std::hint::black_box(Interpreter::find(&file));
        start.elapsed().as_secs_f64() * 1e3
    });
    let ms = took.fold(f64::INFINITY, f64::min);
    println!(
        "{}",
        json!({"file": path, "ms": ms, "interpreter": found.as_ref().map(interpreter_json)})
    );
    Ok(())
}

fn interpreter_json(interpreter: &Interpreter) -> Value {
    let range = |range: &Range<ObjectAddr>| json!([range.start.0, range.end.0]);
    json!({
        "version": interpreter.version.to_string(),
        "runtime": interpreter.runtime.0,
        "code_type": interpreter.code_type.map(|address| address.0),
        "is_debug_build": interpreter.is_debug_build,
        "evaluation": interpreter.evaluation.iter().map(range).collect::<Vec<_>>(),
    })
}

fn show_process(process: &Process) -> Result<()> {
    let (interpreter, bias) = process.interpreter()?;
    let python = match retried(|| Python::attach(&interpreter, bias, process)) {
        Err(Refusal::NotYet) => return say(&json!({"refused": "not yet"})),
        Err(Refusal::Unsupported(why)) => return say(&json!({"refused": why})),
        other => other?,
    };
    let threads = retried(|| python.threads(process))?;
    let slot = retried(|| Slot::find(process, &threads))?;
    let threads: Result<Vec<_>> = threads
        .iter()
        .map(|thread| thread_json(process, &python, thread))
        .collect();
    say(&json!({
        "version": python.layout.version.to_string(),
        "is_free_threaded": python.layout.is_free_threaded,
        "layout": format!("{:?}", python.layout),
        "slot": slot.map(slot_json),
        "threads": threads?,
    }))
}

fn say(value: &Value) -> Result<()> {
    println!("{value}");
    Ok(())
}

fn slot_json(slot: Slot) -> Value {
    match slot {
        Slot::Direct { offset } => json!([offset]),
        Slot::Indirect { block, offset } => json!([block, offset]),
    }
}

fn thread_json(process: &Process, python: &Python, thread: &Thread) -> Result<Value> {
    let gil = python.gil(process, thread.interpreter)?;
    let holder = gil.map(|gil| gil.held_by(process)).transpose()?.flatten();
    let codes = python.codes(process);
    let stack = python.frames(process, thread.state)?;
    let frames: Vec<_> = stack.frames.iter().map(|frame| frame_json(&codes, frame)).collect();
    Ok(json!({
        "state": thread.state.0,
        "pthread": thread.pthread.0,
        "native_id": thread.native_id,
        "has_gil": gil.is_some(),
        "holds_gil": holder == Some(thread.state),
        "is_truncated": stack.is_truncated,
        "frames": frames,
    }))
}

fn frame_json(codes: &Codes, frame: &Frame) -> Value {
    match codes.read(frame.code) {
        Ok(code) => json!({
            "code": frame.code.0,
            "name": code.name,
            "shown_name": code.shown_name(),
            "file": code.file,
            "position": position_json(code.position(frame.instruction)),
            "is_entry": frame.is_entry,
        }),
        Err(why) => json!({"code": frame.code.0, "error": why.to_string()}),
    }
}

fn position_json(position: Position) -> Value {
    json!([position.line, position.end_line, position.column, position.end_column])
}

fn show_codes(process: &Process) -> Result<()> {
    let (_, python) = process.attach()?;
    let codes = python.codes(process);
    for line in std::io::stdin().lines() {
        let line = line?;
        let (address, units) = line.split_once(' ').ok_or("neither an address nor a number")?;
        let (address, units) = (ProcessAddr(address.parse()?), units.parse()?);
        let start = Instant::now();
        let read = codes.read(address);
        let us = start.elapsed().as_secs_f64() * 1e6;
        println!("{}", code_json(&python, read, units, us));
    }
    Ok(())
}

fn code_json(python: &Python, read: std::result::Result<Code, NotCode>, units: i64, us: f64) -> Value {
    let code = match read {
        Ok(code) => code,
        Err(why) => return json!({"error": why.to_string()}),
    };
    let instruction = |unit| match python.layout.walk.counted {
        Counted::Bytes => 2 * unit,
        Counted::Units => unit,
        Counted::Pointer { bytecode } => i64::from(bytecode) + 2 * unit,
    };
    let positions: Vec<_> = (-1..units)
        .map(|unit| position_json(code.position(instruction(unit))))
        .collect();
    json!({
        "name": code.name,
        "qualified_name": code.qualified_name,
        "shown_name": code.shown_name(),
        "file": code.file,
        "first_line": code.first_line,
        "hash": code.hash,
        "positions": positions,
        "us": us,
    })
}
