//! The kernel's address space: which module, BPF program or core text an address belongs to.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use stackhound_core::address::{KernelAddr, ObjectAddr};
use stackhound_core::perfmap::Entry;
use stackhound_core::profile::Profile;
use stackhound_core::rows::{LocationId, ObjectId, ObjectKind};
use stackhound_core::symbolize::{Made, Source};

use crate::bpf::code::{self, Function, Line};
use crate::kernel_names::KernelNames;

/// Core text is smaller than this on every architecture (about 30 MiB); beyond it lie modules and BPF programs.
const CORE_TEXT_BYTES: u64 = 64 << 20;
/// Between two looks for modules and BPF programs that came later.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

struct Region {
    start: u64,
    end: u64,
    kind: ObjectKind,
    name: String,
    build_id: Vec<u8>,
    object: Option<ObjectId>,
    /// Of a BPF program.
    lines: Vec<Line>,
}

impl Region {
    /// What is at addresses of a BPF program.
    fn source(&self, addresses: &[u64]) -> Source {
        if self.lines.is_empty() {
            return Source::Named(self.name.clone());
        }
        let made = |address: &u64| {
            let after = self.lines.partition_point(|line| line.offset <= *address);
            let line = &self.lines[after.saturating_sub(1)];
            Some(Made {
                entry: Entry {
                    start: 0,
                    size: self.end - self.start,
                    name: self.name.clone(),
                },
                file: line.file.clone(),
                line: line.line,
            })
        };
        Source::Made(addresses.iter().map(made).collect(), "")
    }
}

/// What is where in the kernel.
pub struct KernelSpace {
    base: Option<u64>,
    build_id: Vec<u8>,
    core: Option<ObjectId>,
    regions: Vec<Region>,
    /// What had been where others are now.
    former: Vec<Region>,
    /// BPF programs that are or were among them.
    programs: HashSet<u32>,
    refreshed: Option<Instant>,
    /// What its functions are called.
    pub names: KernelNames,
    /// Found lately, each in the one place for its address: the same few thousand are seen again and again.
    lately: Vec<Option<(u64, LocationId)>>,
    roles: HashMap<u64, Role>,
}

/// What an address in a stack is to a program that took the stack at a tracepoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// In what runs BPF programs, or in those.
    Tracing,
    /// Where an interrupt came in: its callers know nothing of it.
    Interrupt,
    Other,
}

/// How the functions between a tracepoint and its BPF program are called.
const TRACING: [&str; 5] = [
    "bpf_prog_",
    "bpf_trace_run",
    "__bpf_trace_",
    "__traceiter_",
    "bpf_trampoline_",
];

/// How the functions begin at which an interrupt comes in: x86, arm64, each before and since it was reshaped.
const INTERRUPTS: [&str; 8] = [
    "asm_sysvec_",
    "asm_common_interrupt",
    "apic_timer_interrupt",
    "common_interrupt",
    "el1h_64_irq",
    "el0t_64_irq",
    "el1_irq",
    "el0_irq",
];

/// Places for locations found lately, a power of two.
const LATELY: usize = 4096;

impl KernelSpace {
    /// Reads where the kernel's text begins.
    pub fn read() -> Self {
        Self {
            base: text_base(),
            build_id: note_build_id(&fs::read("/sys/kernel/notes").unwrap_or_default()),
            core: None,
            regions: Vec::new(),
            former: Vec::new(),
            programs: HashSet::new(),
            refreshed: None,
            names: KernelNames::default(),
            lately: vec![None; LATELY],
            roles: HashMap::new(),
        }
    }

    /// A stack, leaf first, that a program at a tracepoint has taken: without the program, and what called it.
    pub fn without_tracing<'a>(&mut self, stack: &'a [u64]) -> &'a [u64] {
        let is_tracing = |address: &&u64| self.role(**address) == Role::Tracing;
        let own = stack.iter().take_while(is_tracing).count();
        &stack[own..]
    }

    /// The part of a stack, leaf first, that an interrupt has, if it is one's.
    pub fn interrupt<'a>(&mut self, stack: &'a [u64]) -> Option<&'a [u64]> {
        let entry = stack
            .iter()
            .position(|address| self.role(*address) == Role::Interrupt)?;
        Some(&stack[..=entry])
    }

    fn role(&mut self, address: u64) -> Role {
        let names = &self.names;
        *self.roles.entry(address).or_insert_with(|| {
            let found = names.look_up(0, &[address]);
            let entry = found.and_then(|mut found| found.pop().flatten());
            let begins = |starts: &[&str]| {
                let name = entry.as_ref().map_or("", |entry| &entry.name);
                starts.iter().any(|start| name.starts_with(start))
            };
            match () {
                () if begins(&TRACING) => Role::Tracing,
                () if begins(&INTERRUPTS) => Role::Interrupt,
                () => Role::Other,
            }
        })
    }

    /// The run-time address of an object's address 0; None when kptr_restrict hides it.
    pub fn object_base(&self, object: ObjectId) -> Option<u64> {
        let region = self.regions.iter().find(|region| region.object == Some(object));
        region.map(|region| region.start).or(self.base)
    }

    /// What is at addresses of the BPF program that an object is.
    pub fn program(&self, object: ObjectId, addresses: &[u64]) -> Option<Source> {
        let is_it = |region: &&Region| region.object == Some(object) && region.kind == ObjectKind::Bpf;
        let found = self.regions.iter().chain(&self.former).find(is_it);
        found.map(|region| region.source(addresses))
    }

    /// The location of an address.
    pub fn location(&mut self, address: KernelAddr, profile: &mut Profile) -> LocationId {
        let place = (address.0 ^ address.0 >> 12) as usize % LATELY;
        if let Some((_, location)) = self.lately[place].filter(|(known, _)| *known == address.0) {
            return location;
        }
        let (object, in_object) = self.resolve(address, profile);
        let location = profile.location(object, in_object);
        self.lately[place] = Some((address.0, location));
        location
    }

    /// The object that an address belongs to, and the address in that object's own space.
    fn resolve(&mut self, address: KernelAddr, profile: &mut Profile) -> (ObjectId, ObjectAddr) {
        let base = self.base.unwrap_or(0);
        let is_core = self.base.is_some() && address.0.wrapping_sub(base) < CORE_TEXT_BYTES;
        let region = if is_core { None } else { self.find_region(address.0) };
        if let Some(index) = region {
            let region = &mut self.regions[index];
            let make = || profile.object(region.kind, &region.name, &region.build_id);
            let object = *region.object.get_or_insert_with(make);
            return (object, ObjectAddr(address.0 - region.start));
        }
        let make = || profile.object(ObjectKind::Kernel, "[kernel.kallsyms]", &self.build_id);
        (
            *self.core.get_or_insert_with(make),
            ObjectAddr(address.0.wrapping_sub(base)),
        )
    }

    fn find_region(&mut self, address: u64) -> Option<usize> {
        let found = self.position(address);
        let is_due = self.refreshed.is_none_or(|at| at.elapsed() > REFRESH_INTERVAL);
        if found.is_some() || !is_due {
            return found;
        }
        self.refresh();
        self.position(address)
    }

    fn position(&self, address: u64) -> Option<usize> {
        let after = self.regions.partition_point(|region| region.start <= address);
        let index = after.checked_sub(1)?;
        (address < self.regions[index].end).then_some(index)
    }

    /// Adds the modules and BPF programs that are new; those known keep their objects.
    fn refresh(&mut self) {
        self.refreshed = Some(Instant::now());
        self.lately.fill(None);
        let known: Vec<(u64, String)> = self
            .regions
            .iter()
            .map(|region| (region.start, region.name.clone()))
            .collect();
        let is_new = |region: &Region| {
            !known
                .iter()
                .any(|(start, name)| (*start, name) == (region.start, &region.name))
        };
        let programs = code::functions(|id| self.programs.contains(&id));
        self.programs.extend(programs.iter().map(|(id, _)| *id));
        let functions = programs.into_iter().flat_map(|(_, functions)| functions);
        let fresh: Vec<Region> = modules()
            .into_iter()
            .chain(functions.map(bpf_region))
            .filter(is_new)
            .collect();
        let is_replaced = |old: &mut Region| fresh.iter().any(|new| new.start < old.end && old.start < new.end);
        self.former.extend(self.regions.extract_if(.., is_replaced));
        self.regions.extend(fresh);
        self.regions.sort_by_key(|region| region.start);
    }
}

/// `_stext` of /proc/kallsyms, which stands near its top; addresses are 0 where kptr_restrict hides them.
fn text_base() -> Option<u64> {
    let symbols = BufReader::new(File::open("/proc/kallsyms").ok()?);
    for line in symbols.lines().map_while(Result::ok) {
        let mut words = line.split_whitespace();
        if let (Some(address), Some(_), Some("_stext")) = (words.next(), words.next(), words.next()) {
            return u64::from_str_radix(address, 16).ok().filter(|address| *address != 0);
        }
    }
    None
}

/// /proc/modules: `name size references users state 0xaddress`.
fn modules() -> Vec<Region> {
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    text.lines().filter_map(module).collect()
}

fn module(line: &str) -> Option<Region> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let start = u64::from_str_radix(words.get(5)?.trim_start_matches("0x"), 16)
        .ok()
        .filter(|start| *start != 0)?;
    let notes = fs::read(format!("/sys/module/{}/notes/.note.gnu.build-id", words[0])).unwrap_or_default();
    Some(Region {
        start,
        end: start + words.get(1)?.parse::<u64>().ok()?,
        kind: ObjectKind::Module,
        name: format!("[{}]", words[0]),
        build_id: note_build_id(&notes),
        object: None,
        lines: Vec::new(),
    })
}

fn bpf_region(function: Function) -> Region {
    Region {
        start: function.start,
        end: function.start + u64::from(function.bytes),
        kind: ObjectKind::Bpf,
        name: function.name,
        build_id: Vec::new(),
        object: None,
        lines: function.lines,
    }
}

/// The build-id in a run of ELF notes: each is name size, description size, type, then both padded to 4 bytes.
fn note_build_id(notes: &[u8]) -> Vec<u8> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut rest = notes;
    while let Some((header, after)) = rest.split_at_checked(12) {
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().expect("4 bytes"));
        let padded = |bytes: u32| bytes.next_multiple_of(4) as usize;
        let Some((name, after)) = after.split_at_checked(padded(word(0).min(1 << 16))) else {
            break;
        };
        let Some((description, after)) = after.split_at_checked(padded(word(4).min(1 << 16))) else {
            break;
        };
        if word(8) == NT_GNU_BUILD_ID && name.starts_with(b"GNU\0") {
            return description[..word(4) as usize].to_vec();
        }
        rest = after;
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_is_found_behind_other_notes() {
        let note = |kind: u32, description: &[u8]| {
            let mut note = 4u32.to_ne_bytes().to_vec();
            note.extend((description.len() as u32).to_ne_bytes());
            note.extend(kind.to_ne_bytes());
            note.extend(b"GNU\0");
            note.extend(description);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let notes = [note(1, b"abc"), note(3, b"12345")].concat();
        assert_eq!(note_build_id(&notes), b"12345");
        for length in 0..notes.len() {
            note_build_id(&notes[..length]);
        }
    }

    #[test]
    fn a_module_line_gives_its_range() {
        let region = module("nf_nat 49152 2 - Live 0xffffffffc0a00000").unwrap();
        assert_eq!(
            (region.start, region.end),
            (0xffffffffc0a00000, 0xffffffffc0a00000 + 49152)
        );
        assert_eq!(region.name, "[nf_nat]");
        assert!(module("nf_nat 49152 2 - Live 0x0000000000000000").is_none());
    }
}
