//! How fast addresses of an ELF file get their names, for benches/names.py.
//!
//! ```text
//! names FILE COUNT names|lines
//! ```
//!
//! Takes COUNT different addresses, spread over all functions of FILE, and prints one line of numbers (addresses, seconds,
//! bytes of memory that it took, rows of lines, misses), then a thousand of the addresses as
//! `address⇥function⇥line`, innermost, for whoever wants to check them.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use arrow_array::{Array, RecordBatch, StringArray, UInt16Array, UInt32Array};
use object::{Object, ObjectSymbol, SymbolKind};
use stackhound_core::address::ObjectAddr;
use stackhound_core::profile::Profile;
use stackhound_core::rows::{ObjectId, ObjectKind};
use stackhound_core::symbolize::{Source, Sources};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SHOWN: usize = 1000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, count, what] = arguments.as_slice() else {
        return Err("usage: names FILE COUNT names|lines".into());
    };
    let addresses = spread(&functions(Path::new(path))?, count.parse()?);
    let mut profile = Profile::default();
    let object = profile.object(ObjectKind::Elf, path, &[]);
    for address in &addresses {
        profile.location(object, ObjectAddr(*address));
    }
    let (before, start) = (resident_bytes()?, Instant::now());
    profile.symbolize(&mut OneFile(path.into()), what == "lines");
    let (seconds, bytes) = (start.elapsed().as_secs_f64(), peak_bytes()?.saturating_sub(before));
    let tables = profile.tables();
    let lines = table(&tables, "lines");
    let reasons = column::<StringArray>(table(&tables, "locations"), "reason");
    let misses = reasons.len() - reasons.null_count();
    println!("{} {seconds} {bytes} {} {misses}", addresses.len(), lines.num_rows());
    show(&addresses, lines, table(&tables, "functions"));
    Ok(())
}

struct OneFile(PathBuf);

impl Sources for OneFile {
    fn source(&mut self, _: ObjectId, _addresses: &[u64]) -> Source {
        Source::Elf {
            path: self.0.clone(),
            origin: None,
        }
    }
}

/// Address and size of each function, by address.
fn functions(path: &Path) -> Result<Vec<(u64, u64)>> {
    let bytes = std::fs::read(path)?;
    let file = object::File::parse(&*bytes)?;
    let is_function = |symbol: &object::Symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0;
    let mut found: Vec<_> = file
        .symbols()
        .filter(is_function)
        .map(|one| (one.address(), one.size()))
        .collect();
    found.sort_unstable();
    found.dedup_by_key(|function| function.0);
    Ok(found)
}

/// Addresses at even distances of the code that the functions have together.
fn spread(functions: &[(u64, u64)], count: u64) -> Vec<u64> {
    let total: u64 = functions.iter().map(|(_, size)| size).sum();
    let mut addresses = Vec::new();
    let mut code = 0;
    for (address, size) in functions {
        let places = (code * count).div_ceil(total)..((code + size) * count).div_ceil(total);
        addresses.extend(places.map(|place| address + place * total / count - code));
        code += size;
    }
    addresses.dedup();
    addresses
}

fn show(addresses: &[u64], lines: &RecordBatch, functions: &RecordBatch) {
    let (location, depth) = (
        column::<UInt32Array>(lines, "location"),
        column::<UInt16Array>(lines, "depth"),
    );
    let (function, line) = (
        column::<UInt32Array>(lines, "function"),
        column::<UInt32Array>(lines, "line"),
    );
    let name = column::<StringArray>(functions, "system_name");
    let step = (addresses.len() / SHOWN).max(1);
    for row in (0..lines.num_rows()).filter(|row| depth.value(*row) == 0) {
        let index = location.value(row) as usize;
        if index.is_multiple_of(step) {
            let name = name.value(function.value(row) as usize);
            println!("{:#x}\t{name}\t{}", addresses[index], line.value(row));
        }
    }
}

fn table<'t>(tables: &'t [(&'static str, RecordBatch)], name: &str) -> &'t RecordBatch {
    &tables
        .iter()
        .find(|(table, _)| *table == name)
        .expect("a table of every profile")
        .1
}

fn column<'t, A: 'static>(table: &'t RecordBatch, name: &str) -> &'t A {
    table
        .column_by_name(name)
        .and_then(|column| column.as_any().downcast_ref())
        .expect("as the schema has it")
}

fn resident_bytes() -> Result<u64> {
    status_bytes("VmRSS:")
}

fn peak_bytes() -> Result<u64> {
    status_bytes("VmHWM:")
}

fn status_bytes(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with(name))
        .ok_or("no such line in /proc/self/status")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse::<u64>()? * 1024)
}
