//! Names of real files against what others say of them: entries of linkage tables against objdump, Go's own table
//! against the debug information of the same program.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use arrow_array::{Array, RecordBatch, StringArray, UInt32Array};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};
use stackhound_core::address::ObjectAddr;
use stackhound_core::profile::Profile;
use stackhound_core::rows::{ObjectId, ObjectKind};
use stackhound_core::symbolize::{Source, Sources};

/// On most machines, and in most packages of them.
const FILES: [&str; 8] = [
    "/bin/sh",
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/aarch64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/bin/python3",
    "/usr/bin/perf",
    "/usr/bin/gdb",
];

/// The C library alone has more.
const MIN_ENTRIES: usize = 20;

/// Of a thousand functions that have the same names and lines. Where instructions belong to several lines, Go's linker
/// may tell them apart in one place and not in the other.
const SAME_OF_A_THOUSAND: usize = 995;

/// Addresses to look at in a program.
const PLACES: u64 = 50_000;

const GO_PROGRAM: &str = r#"package main
import ("fmt"; "net/http"; "os"; "sort")
func main() {
	numbers := []int{len(os.Args), 3, 2}
	sort.Slice(numbers, func(a, b int) bool { return numbers[a] < numbers[b] })
	fmt.Println(numbers, http.ListenAndServe(os.Args[1], nil))
}
"#;

struct OneFile(PathBuf);

impl Sources for OneFile {
    fn source(&mut self, _: ObjectId, _addresses: &[u64]) -> Source {
        Source::Elf {
            path: self.0.clone(),
            origin: None,
        }
    }
}

/// The functions at each address, innermost first: name and line.
fn names(path: &Path, addresses: &[u64]) -> Vec<Vec<(String, u32)>> {
    let mut profile = Profile::default();
    let object = profile.object(ObjectKind::Elf, &path.to_string_lossy(), &[]);
    for address in addresses {
        profile.location(object, ObjectAddr(*address));
    }
    profile.symbolize(&mut OneFile(path.to_owned()), true);
    let tables: BTreeMap<_, _> = profile.tables().into_iter().collect();
    let (lines, functions) = (&tables["lines"], &tables["functions"]);
    let (location, function, line) = (
        numbers(lines, "location"),
        numbers(lines, "function"),
        numbers(lines, "line"),
    );
    let name: &StringArray = functions["name"].as_any().downcast_ref().unwrap();
    let mut found = vec![Vec::new(); addresses.len()];
    for row in 0..lines.num_rows() {
        let name = name.value(function.value(row) as usize).to_owned();
        found[location.value(row) as usize].push((name, line.value(row)));
    }
    found
}

fn numbers<'t>(table: &'t RecordBatch, name: &str) -> &'t UInt32Array {
    table[name].as_any().downcast_ref().unwrap()
}

/// `0000000000001030 <malloc@plt>:`, but for what objdump has no name for, or that comes before the first entry. What is
/// no ELF file (Ubuntu's perf is a script), or has no such section, has none.
fn entries_by_objdump(path: &Path) -> Option<Vec<(u64, String)>> {
    let sections = [".plt", ".plt.sec", ".plt.got"].map(|name| format!("--section={name}"));
    let mut objdump = Command::new("objdump");
    let shown = objdump.arg("--disassemble").args(sections).arg(path).output().ok()?;
    let entry = |line: &str| {
        let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
        let is_function = name.ends_with("@plt") && !name.starts_with("*ABS*");
        is_function.then(|| (u64::from_str_radix(address, 16).unwrap(), name.to_owned()))
    };
    let text = String::from_utf8_lossy(&shown.stdout);
    Some(text.lines().filter_map(entry).collect())
}

/// Each entry that objdump has a name for has the same one here, at its first byte and further on.
#[test]
fn linkage_tables_are_those_of_objdump() {
    let ours = std::env::current_exe().unwrap();
    let files = FILES
        .iter()
        .map(PathBuf::from)
        .chain([ours])
        .filter(|path| path.exists());
    let mut compared = 0;
    for path in files {
        let Some(entries) = entries_by_objdump(&path) else {
            eprintln!("skipped: needs objdump");
            return;
        };
        compared += entries.len();
        for inside in [0, 5] {
            let addresses: Vec<u64> = entries.iter().map(|(address, _)| address + inside).collect();
            for (found, (address, name)) in names(&path, &addresses).iter().zip(&entries) {
                let found = found.first().map(|(name, _)| demangled(name));
                assert_eq!(found, Some(demangled(name)), "{} {address:#x}", path.display());
            }
        }
    }
    assert!(compared >= MIN_ENTRIES, "only {compared} entries");
}

/// objdump shows C++ names as they are in the file.
fn demangled(name: &str) -> String {
    let plain = name.trim_end_matches("@plt");
    let symbol = plain
        .starts_with("_Z")
        .then(|| cpp_demangle::Symbol::new(plain).ok())
        .flatten();
    symbol
        .and_then(|symbol| symbol.demangle().ok())
        .unwrap_or_else(|| plain.to_owned())
}

/// A program as Go makes it, and without everything that can be stripped; None where there is no Go.
fn go_programs(directory: &Path) -> Option<[PathBuf; 2]> {
    let source = directory.join("main.go");
    fs::write(&source, GO_PROGRAM).unwrap();
    let build = |name: &str, flags: &str| {
        let program = directory.join(name);
        let mut go = Command::new("go");
        go.args(["build", flags, "-o"])
            .args([&program, &source])
            .env("CGO_ENABLED", "0");
        let built = go.output().ok()?;
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(program)
    };
    Some([build("whole", "-ldflags=")?, build("stripped", "-ldflags=-s -w")?])
}

/// Names, lines and inlined functions of a stripped Go program are those of its debug information, which it has not.
#[test]
fn stripped_go_programs_have_the_names_of_whole_ones() {
    let directory = tempfile::tempdir().unwrap();
    let Some([whole, stripped]) = go_programs(directory.path()) else {
        eprintln!("skipped: needs go");
        return;
    };
    let addresses = places(&whole);
    let (expected, found) = (names(&whole, &addresses), names(&stripped, &addresses));
    let same = |(one, other): &(&Vec<_>, &Vec<_>)| one == other;
    let differing: Vec<_> = expected.iter().zip(&found).filter(|pair| !same(pair)).collect();
    let share = 1000 - 1000 * differing.len() / addresses.len();
    let shown = &differing[..differing.len().min(10)];
    assert!(share >= SAME_OF_A_THOUSAND, "{share} of a thousand: {shown:#?}");
    let deepest = found.iter().map(Vec::len).max();
    assert!(
        deepest >= Some(3),
        "functions that are inlined into inlined ones are among them"
    );
}

/// Addresses at even distances in a Go program's functions.
fn places(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let step = (text.size() / PLACES).max(1);
    let functions = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
    let mut ranges: Vec<_> = functions.map(|one| one.address()..one.address() + one.size()).collect();
    ranges.sort_by_key(|range| range.start);
    let all = (text.address()..text.address() + text.size()).step_by(step as usize);
    all.filter(|address| {
        let after = ranges.partition_point(|range| range.start <= *address);
        after > 0 && ranges[after - 1].contains(address)
    })
    .collect()
}
