//! What each stage of the core asks the heap for, exactly: a benchmark of `make bench-gate`.
//!
//! ```text
//! allocations FILE
//! ```
//!
//! Interns stacks in FILE (an ELF file with debug information), keeps samples of them, makes tables, looks up names and
//! lines of FILE's functions, and builds its unwind table. Prints how many blocks, and of how many bytes, each stage asked for, as
//! Bencher's Metric Format.

use std::error::Error;
use std::path::Path;

use object::{Object, ObjectSymbol, SymbolKind};
use stackhound_core::address::ObjectAddr;
use stackhound_core::allocations::{Counting, Totals};
use stackhound_core::profile::Profile;
use stackhound_core::rows::{LocationId, ObjectId, ObjectKind, SampleRow, StackId};
use stackhound_core::symbolize::{DebugDirs, SymbolFile, build_id};
use stackhound_core::unwind;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Where Rust's hash maps have their seeds from, in place of the C library's: with others in each run searches take other
/// numbers of instructions.
#[unsafe(no_mangle)]
extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: the caller's buffer has so many bytes.
    unsafe { buffer.write_bytes(1, length) };
    length as isize
}

const STACKS: u64 = 500;
const DEPTH: u64 = 30;
const SAMPLES: u64 = 10_000;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).ok_or("usage: allocations FILE")?;
    let file = std::fs::read(&path)?;
    let addresses = functions(&file)?;
    let mut profile = Profile::default();
    let object = profile.object(ObjectKind::Elf, &path, &[1]);
    let mut stacks = Vec::with_capacity(STACKS as usize);
    let stages = [
        (
            "intern",
            Totals::of(|| stacks.extend((0..STACKS).map(|number| intern(&mut profile, object, &addresses, number)))),
        ),
        ("samples", Totals::of(|| keep(&mut profile, &stacks))),
        ("tables", Totals::of(|| drop(profile.tables()))),
        ("symbolize", Totals::of(|| look_up(&path, &addresses))),
        ("unwind", Totals::of(|| drop(unwind::build(&file)))),
    ];
    println!("{}", as_bmf(&stages));
    Ok(())
}

/// Where the functions of a file begin, by address.
fn functions(file: &[u8]) -> Result<Vec<u64>> {
    let object = object::File::parse(file)?;
    let is_function = |symbol: &object::Symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0;
    let mut found: Vec<_> = object.symbols().filter(is_function).map(|one| one.address()).collect();
    found.sort_unstable();
    found.dedup();
    if found.is_empty() {
        return Err("no function in this file".into());
    }
    Ok(found)
}

/// Stacks that share their outer half with every 20th other one.
fn intern(profile: &mut Profile, object: ObjectId, addresses: &[u64], number: u64) -> StackId {
    let location = |depth| {
        let path = if depth < DEPTH / 2 { number % 20 } else { number };
        let address = addresses[((path * 31 + depth * 7) % addresses.len() as u64) as usize];
        profile.location(object, ObjectAddr(address + depth % 4))
    };
    let path: Vec<LocationId> = (0..DEPTH).map(location).collect();
    profile.stack(&path)
}

fn keep(profile: &mut Profile, stacks: &[StackId]) {
    for sample in 0..SAMPLES {
        profile.sample(SampleRow {
            boottime_ns: sample * 1_000,
            last_ns: sample * 1_000,
            stack: stacks[(sample % STACKS) as usize],
            value: 10_101_010,
            count: 1,
            ..SampleRow::default()
        });
    }
}

/// In this thread alone: how two of them take turns would show in the counts.
fn look_up(path: &str, addresses: &[u64]) {
    let path = Path::new(path);
    let build_id = build_id(path).unwrap_or_default();
    let symbols = SymbolFile::open(path, &build_id, &DebugDirs::new(&[], None));
    drop(
        symbols
            .expect("a file that was read before")
            .functions_at(addresses, true),
    );
}

fn as_bmf(stages: &[(&str, Totals)]) -> String {
    let stages: Vec<_> = stages
        .iter()
        .map(|(name, totals)| {
            let (blocks, bytes) = (totals.blocks, totals.bytes);
            format!(r#""{name}": {{"allocations": {{"value": {blocks}}}, "allocated": {{"value": {bytes}}}}}"#)
        })
        .collect();
    format!("{{{}}}", stages.join(", "))
}
