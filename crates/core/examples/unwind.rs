//! How fast the table of unwind rules of an ELF file is built, for benches/unwind.py.
//!
//! ```text
//! unwind FILE build|load|gimli [ADDRESS...]
//! ```
//!
//! Prints one line of numbers (seconds, bytes of memory that it took at most, rows, rules, functions, bytes of the
//! table), then of each address (hexadecimal) where its CFA is, as `address⇥register+offset`. `load` takes the table from
//! its bytes, as from the cache; `gimli` evaluates the same `.eh_frame` with gimli, and keeps nothing.

use std::error::Error;
use std::time::Instant;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use object::{Object, ObjectSection};
use stackhound_core::address::ObjectAddr;
use stackhound_core::unwind::{Cfa, Table, TableView, build};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, what, addresses @ ..] = arguments.as_slice() else {
        return Err("usage: unwind FILE build|load|gimli [ADDRESS...]".into());
    };
    let file = std::fs::read(path)?;
    let stored = if what == "load" {
        build(&file)?.to_bytes()
    } else {
        Vec::new()
    };
    let words: Vec<u64> = stored.chunks(8).map(word).collect();
    std::fs::write("/proc/self/clear_refs", "5")?; // resets the peak
    let (before, start) = (status_bytes("VmRSS:")?, Instant::now());
    match what.as_str() {
        "build" => {
            let table = build(&file)?;
            let seconds = start.elapsed().as_secs_f64();
            report(seconds, before, &table.view())?;
            show(&table, addresses)?;
        }
        "load" => {
            let bytes = zerocopy::IntoBytes::as_bytes(words.as_slice());
            let table = TableView::from_bytes(&bytes[..stored.len()])?;
            report(start.elapsed().as_secs_f64(), before, &table)?;
        }
        "gimli" => {
            let rows = evaluate(&file)?;
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{seconds} {} {rows} 0 0 0",
                status_bytes("VmHWM:")?.saturating_sub(before)
            );
        }
        _ => return Err("neither build, load nor gimli".into()),
    }
    Ok(())
}

fn report(seconds: f64, before: u64, table: &TableView) -> Result<()> {
    let memory = status_bytes("VmHWM:")?.saturating_sub(before);
    let (rows, rules, functions) = (table.rows.len(), table.rules.len(), table.statistics.functions);
    println!("{seconds} {memory} {rows} {rules} {functions} {}", table.bytes());
    Ok(())
}

fn show(table: &Table, addresses: &[String]) -> Result<()> {
    for address in addresses {
        let number = u64::from_str_radix(address, 16)?;
        let place = match table.rule_at(ObjectAddr(number)) {
            Some(rule) if rule.cfa == Cfa::SP => format!("rsp+{}", rule.cfa_offset),
            Some(rule) if rule.cfa == Cfa::FP => format!("rbp+{}", rule.cfa_offset),
            _ => "other".into(),
        };
        println!("{address}\t{place}");
    }
    Ok(())
}

/// How many rows gimli finds.
fn evaluate(file: &[u8]) -> Result<usize> {
    let object = object::File::parse(file)?;
    let section = object.section_by_name(".eh_frame").ok_or("no .eh_frame")?;
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let section = EhFrame::new(section.data()?, LittleEndian);
    let (mut rows, mut context) = (0, UnwindContext::new());
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next()? {
        if let CieOrFde::Fde(partial) = entry {
            let function = partial.parse(EhFrame::cie_from_offset)?;
            let mut table = function.rows(&section, &bases, &mut context)?;
            while table.next_row()?.is_some() {
                rows += 1;
            }
        }
    }
    Ok(rows)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn status_bytes(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with(name))
        .ok_or("no such line in /proc/self/status")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse::<u64>()? * 1024)
}
