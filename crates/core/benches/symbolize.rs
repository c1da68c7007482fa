//! Names and lines of random addresses in this program: `cargo bench -p stackhound-core --bench symbolize`.
//!
//! Counts everything from interning the addresses to the finished tables' rows, with cold caches each round.

mod common;

use std::fs::{read_to_string, write};
use std::io::Read;

use common::{Random, report};
use stackhound_core::address::ObjectAddr;
use stackhound_core::elf::Elf;
use stackhound_core::profile::Profile;
use stackhound_core::rows::{ObjectId, ObjectKind};
use stackhound_core::symbolize::{Source, Sources};

const NAMES: usize = 1_000_000;
const LINES: usize = 300_000;
const ROUNDS: usize = 5;

struct Ourselves;

impl Sources for Ourselves {
    fn source(&mut self, _object: ObjectId, _addresses: &[u64]) -> Source {
        Source::Elf {
            path: std::env::current_exe().unwrap(),
            origin: None,
        }
    }
}

fn main() {
    let code = Code::of_this_program();
    report("unique addresses to names", NAMES, ROUNDS, || {
        code.symbolize(NAMES, false)
    });
    report_memory("peak after names");
    report("unique addresses to lines and inlines", LINES, ROUNDS, || {
        code.symbolize(LINES, true)
    });
    report_memory("peak after lines");
}

/// This program's largest executable segment.
struct Code {
    start: u64,
    size: u64,
}

impl Code {
    fn of_this_program() -> Self {
        let mut head = vec![0; 4096];
        std::fs::File::open(std::env::current_exe().unwrap())
            .unwrap()
            .read_exact(&mut head)
            .unwrap();
        let segments = Elf::parse(&head)
            .unwrap()
            .segments
            .into_iter()
            .filter(|segment| segment.executable);
        let code = segments.max_by_key(|segment| segment.size).unwrap();
        Self {
            start: code.address.0,
            size: code.size,
        }
    }

    fn symbolize(&self, addresses: usize, lines: bool) {
        let mut random = Random(88_172_645_463_325_252);
        let mut profile = Profile::default();
        let object = profile.object(ObjectKind::Elf, "/this", &[]);
        let mut unique = 0;
        while unique < addresses {
            let address = ObjectAddr(self.start + u64::from(random.below(self.size as u32)));
            unique = unique.max(profile.location(object, address).index() + 1);
        }
        profile.symbolize(&mut Ourselves, lines);
        std::hint::black_box(&profile);
    }
}

/// Print the highest memory use since the last time.
fn report_memory(what: &str) {
    let status = read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or_default()
        .trim();
    println!("{what:44} {peak:>9}");
    write("/proc/self/clear_refs", "5").unwrap(); // resets the peak
}
