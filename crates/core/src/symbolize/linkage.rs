//! Names of the entries of procedure linkage tables, after the functions that they jump to: `malloc@plt`.
//!
//! An entry has no symbol. It jumps to where a slot of the global offset table says, and a relocation says whose address
//! the dynamic linker writes there. Those of x86-64's `.plt` that has a `.plt.sec` beside it push the number of their
//! relocation instead.

use hashbrown::HashMap;

use super::demangle::LINKAGE;
use super::symbols::Named;
use crate::image::{Image, Machine, Relocation, Section, half_word_at, word_at};

/// Bytes of an entry of x86-64; in `.plt.got` without landing pads they are half as long.
const ENTRY_BYTES: u64 = 16;
const SHORT_ENTRY_BYTES: u64 = 8;

/// `jmp *slot(%rip)`, and `push $number` after `endbr64` or at the beginning.
const JUMP: [u8; 2] = [0xff, 0x25];
const JUMP_BYTES: usize = 6;
const PUSH: u8 = 0x68;
const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// arm64: `bti c`, `adrp x16, page`, `ldr x17, [x16, #offset]`, `br x17`.
const BRANCH_TARGET: u32 = 0xd503_245f;
const PAGE: (u32, u32) = (0x9f00_001f, 0x9000_0010);
const LOAD: (u32, u32) = (0xffc0_03ff, 0xf940_0211);
const BRANCH: u32 = 0xd61f_0220;

/// Bytes of an instruction of arm64, and instructions of the longest entry.
const INSTRUCTION_BYTES: u64 = 4;
const MAX_INSTRUCTIONS: u64 = 6;

/// Bytes of an `Elf64_Sym`, and its type `STT_GNU_IFUNC`.
const SYMBOL_BYTES: usize = 24;
const INDIRECT_FUNCTION: u8 = 10;

/// Bytes of a name to look at.
const MAX_NAME_BYTES: usize = 8 << 10;

/// What is known of an entry by its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start: u64,
    size: u64,
    target: Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// What is stored at this address.
    Slot(u64),
    /// That of this relocation of the table.
    Number(u32),
}

/// For each address its entry's name, where it lies in an entry that jumps to something known. Nothing at all where none
/// of them does: most files' functions are asked for by the thousand, and none of them is here.
pub(super) fn names_at(image: &Image, addresses: &[u64]) -> Vec<Vec<Named>> {
    let tables: Vec<_> = image.linkage_tables().collect();
    let entry_at = |&address: &u64| entry_at(image.machine, &tables, address);
    let entries: Vec<_> = addresses.iter().map(entry_at).collect();
    if entries.iter().all(Option::is_none) {
        return Vec::new();
    }
    let targets = Targets::of(image, entries.iter().flatten().map(|entry| entry.target));
    let named = |entry: &Entry| {
        Some(Named {
            name: targets.name(image, entry.target)? + LINKAGE,
            start: entry.start,
            size: entry.size,
            ..Named::default()
        })
    };
    let names = entries.iter().map(|entry| entry.as_ref().and_then(named));
    names.map(|name| name.into_iter().collect()).collect()
}

fn entry_at(machine: Machine, tables: &[&Section], address: u64) -> Option<Entry> {
    let section = tables.iter().find(|section| {
        let distance = address.checked_sub(section.address);
        distance.is_some_and(|distance| distance < section.data.len() as u64)
    })?;
    match machine {
        Machine::X86_64 => x86_64_entry(section, address),
        Machine::Arm64 => arm64_entry(section, address),
    }
}

fn x86_64_entry(section: &Section, address: u64) -> Option<Entry> {
    let is_short = [0, SHORT_ENTRY_BYTES as usize].map(|at| section.data.get(at..at + 2) == Some(&JUMP[..]));
    let size = if is_short == [true; 2] {
        SHORT_ENTRY_BYTES
    } else {
        ENTRY_BYTES
    };
    let offset = (address - section.address) / size * size;
    let start = section.address.checked_add(offset)?;
    let code = section.data.get(offset as usize..)?;
    let code = &code[..code.len().min(size as usize)];
    let target = slot_of_jump(code, start).or_else(|| number_of_push(code))?;
    Some(Entry { start, size, target })
}

/// The jump may come after a landing pad, and after what tells the dynamic linker which entry it was.
fn slot_of_jump(code: &[u8], start: u64) -> Option<Target> {
    if code.first() == Some(&JUMP[0]) && code.get(1) != Some(&JUMP[1]) {
        return None; // the first entry pushes something else
    }
    let at = code.windows(JUMP_BYTES).position(|window| window.starts_with(&JUMP))?;
    let distance = half_word_at(code, at + JUMP.len())? as i32;
    let next = start.checked_add((at + JUMP_BYTES) as u64)?;
    Some(Target::Slot(next.wrapping_add_signed(distance.into())))
}

fn number_of_push(code: &[u8]) -> Option<Target> {
    let code = code.strip_prefix(&LANDING_PAD).unwrap_or(code);
    let number = code.strip_prefix(&[PUSH])?;
    half_word_at(number, 0).map(Target::Number)
}

/// From the instruction on that is at the address, upwards to where its entry says the slot's page.
fn arm64_entry(section: &Section, address: u64) -> Option<Entry> {
    let instruction = |place: u64| half_word_at(section.data, place.checked_sub(section.address)? as usize);
    let is = |place: u64, what: u32| instruction(place) == Some(what);
    let next = |place: u64, count: u64| place.checked_add(count * INSTRUCTION_BYTES);
    let address = address / INSTRUCTION_BYTES * INSTRUCTION_BYTES;
    let skipped = u64::from(is(address, BRANCH_TARGET));
    let last = next(address, skipped)?;
    let mut places = (0..MAX_INSTRUCTIONS).map_while(|distance| last.checked_sub(distance * INSTRUCTION_BYTES));
    let (page_at, slot) = places.find_map(|place| {
        let slot = slot_of_load(place, instruction(place)?, instruction(next(place, 1)?)?)?;
        Some((place, slot))
    })?;
    let before = page_at.checked_sub(INSTRUCTION_BYTES)?;
    let start = if is(before, BRANCH_TARGET) { before } else { page_at };
    let mut behind = (1..=MAX_INSTRUCTIONS).map_while(|count| next(page_at, count));
    let branch = behind.find(|&place| is(place, BRANCH))?;
    Some(Entry {
        start,
        size: next(branch, 1)? - start,
        target: Target::Slot(slot),
    })
}

/// The slot that these two instructions load, if they are such.
fn slot_of_load(address: u64, page: u32, load: u32) -> Option<u64> {
    let is = |instruction: u32, (mask, value): (u32, u32)| instruction & mask == value;
    if !is(page, PAGE) || !is(load, LOAD) {
        return None;
    }
    let pages = (page >> 3 & 0x1f_fffc) | (page >> 29 & 3);
    let pages = i64::from((pages << 11) as i32 >> 11); // 21 bits, with a sign
    let offset = u64::from(load >> 10 & 0xfff) * 8;
    Some((address & !0xfff).wrapping_add_signed(pages << 12).wrapping_add(offset))
}

/// What slots and numbers stand for.
#[derive(Default)]
struct Targets {
    by_slot: HashMap<u64, Option<Relocation>>,
    /// Functions of this object that choose, when it starts, which function to use; by their addresses.
    choosers: HashMap<u64, Option<String>>,
}

impl Targets {
    /// In one pass over the relocations, and over the symbols where a relocation has none.
    fn of(image: &Image, wanted: impl Iterator<Item = Target>) -> Self {
        let slots = wanted.filter_map(|target| match target {
            Target::Slot(slot) => Some((slot, None)),
            Target::Number(_) => None,
        });
        let mut targets = Self {
            by_slot: slots.collect(),
            choosers: HashMap::new(),
        };
        if targets.by_slot.is_empty() {
            return targets;
        }
        for relocation in image.relocations() {
            if let Some(found) = targets.by_slot.get_mut(&relocation.address) {
                *found = Some(relocation);
            }
        }
        let nameless = targets.by_slot.values().flatten().filter(|found| found.symbol == 0);
        targets.choosers = nameless.map(|found| (found.addend, None)).collect();
        targets.find_choosers(image);
        targets
    }

    fn find_choosers(&mut self, image: &Image) {
        if self.choosers.is_empty() {
            return;
        }
        for (symbols, names) in [(".dynsym", ".dynstr"), (".symtab", ".strtab")] {
            let symbols = image.section(symbols).map_or(&[][..], |section| section.data);
            for symbol in symbols.chunks_exact(SYMBOL_BYTES) {
                let address = word_at(symbol, 8).unwrap_or(0);
                let found = self.choosers.get_mut(&address).filter(|name| name.is_none());
                if let Some(found) = found.filter(|_| symbol[4] & 0xf == INDIRECT_FUNCTION) {
                    *found = name_of(image, symbol, names);
                }
            }
        }
    }

    /// As objdump writes them, where nobody has a name for what is chosen.
    fn name(&self, image: &Image, target: Target) -> Option<String> {
        let relocation = match target {
            Target::Slot(slot) => (*self.by_slot.get(&slot)?)?,
            Target::Number(number) => image.section(".rela.plt")?.relocations().nth(number as usize)?,
        };
        if relocation.symbol != 0 {
            let start = (relocation.symbol as usize).checked_mul(SYMBOL_BYTES)?;
            let symbol = image.section(".dynsym")?.data.get(start..)?;
            return name_of(image, symbol, ".dynstr");
        }
        let chosen = self.choosers.get(&relocation.addend)?.clone();
        Some(chosen.unwrap_or_else(|| format!("*ABS*+{:#x}", relocation.addend)))
    }
}

/// The name of a symbol.
fn name_of(image: &Image, symbol: &[u8], names: &str) -> Option<String> {
    let name = image.section(names)?.data.get(half_word_at(symbol, 0)? as usize..)?;
    let name = &name[..name.len().min(MAX_NAME_BYTES)];
    let end = memchr::memchr(0, name).filter(|&end| end > 0)?;
    Some(String::from_utf8_lossy(&name[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{BRANCH, BRANCH_TARGET, Image, JUMP, LANDING_PAD, LOAD, Named, PAGE, PUSH, names_at};
    use crate::elf_writer::{ARM64, CODE, File, X86_64};
    use crate::random::Random;

    /// Where the dynamic linker writes; nothing reads it here.
    const SLOTS: u64 = 0x50_0000;

    /// A section's name, and what it has when it is at an address.
    type Section = (&'static str, fn(u64) -> Vec<u8>);

    /// A file with these linkage tables, whose slots belong to `malloc`, C++'s `delete`, a function that is chosen and
    /// has a name, one that has none, and again the first two.
    fn file(machine: u16, tables: &[Section]) -> File {
        let symbol = |name: u32, kind: u8, address: u64| {
            let head = [&name.to_le_bytes()[..], &[kind, 0, 0, 0]].concat();
            [head, [address, 8].map(u64::to_le_bytes).concat()].concat()
        };
        let relocation = |slot: u64, symbol: u64, addend: u64| {
            let words = [SLOTS + 8 * slot, symbol << 32 | 7, addend];
            words.map(u64::to_le_bytes).concat()
        };
        let symbols = [
            symbol(0, 0, 0),
            symbol(1, 2, 0),
            symbol(8, 2, 0),
            symbol(15, 10, CODE + 16),
        ]
        .concat();
        let lazy = [
            relocation(0, 1, 0),
            relocation(1, 2, 0),
            relocation(2, 0, CODE + 16),
            relocation(3, 0, CODE),
        ];
        let eager = [relocation(4, 1, 0), relocation(5, 2, 0)];
        let file = File::new(machine, 64)
            .with(".dynsym", |_| symbols)
            .with(".dynstr", |_| b"\0malloc\0_ZdlPv\0memcpy\0\0\0".to_vec()) // of whole instructions
            .with(".rela.plt", |_| lazy.concat())
            .with(".rela.dyn", |_| eager.concat());
        tables
            .iter()
            .fold(file, |file, (name, contents)| file.with(name, contents))
    }

    fn jump(at: u64, slot: u64) -> Vec<u8> {
        let distance = (SLOTS + 8 * slot).wrapping_sub(at + 6) as u32;
        [&JUMP[..], &distance.to_le_bytes()].concat()
    }

    fn padded(mut code: Vec<u8>, bytes: usize) -> Vec<u8> {
        code.resize(bytes, 0x90);
        code
    }

    /// (name, start, size) at each of these offsets of the file's last section.
    fn found(file: &File, offsets: &[u64]) -> Vec<Option<(String, u64, u64)>> {
        let start = file.next_address() - file.sections.last().unwrap().2.len() as u64;
        let bytes = file.bytes();
        let addresses: Vec<u64> = offsets.iter().map(|offset| start + offset).collect();
        let mut names = names_at(&Image::parse(&bytes).unwrap(), &addresses);
        names.resize_with(addresses.len(), Vec::new);
        let only = |mut names: Vec<Named>| names.pop().map(|one| (one.name, one.start - start, one.size));
        names.into_iter().map(only).collect()
    }

    fn entry(name: &str, start: u64, size: u64) -> Option<(String, u64, u64)> {
        Some((name.to_owned(), start, size))
    }

    /// Each entry has the name of what it jumps to, from its first byte to its last; the code before the first has none.
    #[test]
    fn entries_are_named_after_what_they_jump_to() {
        let plt = |start: u64| {
            let mut table = padded(vec![0xff, 0x35, 1, 0, 0, 0, 0xff, 0x25, 1, 0, 0, 0], 16);
            for slot in 0..4 {
                let pushed = [jump(start + 16 + 16 * slot, slot), vec![PUSH, slot as u8, 0, 0, 0]].concat();
                table.extend(padded(pushed, 16));
            }
            table
        };
        let file = file(X86_64, &[(".plt", plt)]);
        let delete = entry("_ZdlPv@plt", 32, 16);
        assert_eq!(
            found(&file, &[0, 15, 16, 31, 32, 47, 48, 64, 80]),
            [
                None,
                None,
                entry("malloc@plt", 16, 16),
                entry("malloc@plt", 16, 16),
                delete.clone(),
                delete,
                entry("memcpy@plt", 48, 16),
                entry("*ABS*+0x401000@plt", 64, 16),
                None
            ]
        );
    }

    /// With landing pads one table jumps, and the other says the number of the relocation.
    #[test]
    fn entries_with_landing_pads_have_names_in_both_tables() {
        let pushing = |_: u64| {
            let number = |number: u8| padded([&LANDING_PAD[..], &[PUSH, number, 0, 0, 0, 0xf2]].concat(), 16);
            [
                padded(vec![0xff, 0x35, 1, 0, 0, 0, 0xf2, 0xff, 0x25], 16),
                number(1),
                number(9),
            ]
            .concat()
        };
        let jumping = |start: u64| {
            let entry = |slot: u64| {
                let at = start + 16 * slot;
                padded([&LANDING_PAD[..], &[0xf2], &jump(at + 5, slot)].concat(), 16)
            };
            [entry(0), entry(1)].concat()
        };
        let plt = file(X86_64, &[(".plt", pushing)]);
        assert_eq!(found(&plt, &[16, 32]), [entry("_ZdlPv@plt", 16, 16), None]);
        let plt = file(X86_64, &[(".plt", pushing), (".plt.sec", jumping)]);
        assert_eq!(
            found(&plt, &[0, 31]),
            [entry("malloc@plt", 0, 16), entry("_ZdlPv@plt", 16, 16)]
        );
    }

    /// `.plt.got` has entries of 8 bytes, which jump to what was found when the program began.
    #[test]
    fn short_entries_are_told_apart() {
        let got = |start: u64| [padded(jump(start, 4), 8), padded(jump(start + 8, 5), 8)].concat();
        let file = file(X86_64, &[(".plt.got", got)]);
        assert_eq!(
            found(&file, &[7, 8]),
            [entry("malloc@plt", 0, 8), entry("_ZdlPv@plt", 8, 8)]
        );
    }

    /// arm64 says slots in two instructions, with and without a landing pad before them.
    #[test]
    fn entries_of_arm64_have_names() {
        fn load(at: u64, slot: u64) -> [u32; 4] {
            let slot = SLOTS + 8 * slot;
            let pages = (slot >> 12).wrapping_sub(at >> 12) as u32;
            let page = PAGE.1 | (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5;
            let offset = (slot & 0xfff) as u32 / 8;
            [page, LOAD.1 | offset << 10, 0x9100_0210, BRANCH]
        }
        fn code(instructions: &[u32]) -> Vec<u8> {
            instructions.iter().flat_map(|one| one.to_le_bytes()).collect()
        }
        let plt = |start: u64| {
            let head = [&[0xa9bf_7bf0][..], &load(start + 4, 100), &[0xd503_201f; 3]].concat();
            let plain = load(start + 32, 0);
            let guarded = [&[BRANCH_TARGET][..], &load(start + 52, 1), &[0xd503_201f]].concat();
            code(&[&head[..], &plain, &guarded].concat())
        };
        let file = file(ARM64, &[(".plt", plt)]);
        let (plain, guarded) = (entry("malloc@plt", 32, 16), entry("_ZdlPv@plt", 48, 20));
        assert_eq!(
            found(&file, &[0, 28, 32, 44, 48, 52, 68]),
            [
                None,
                None,
                plain.clone(),
                plain,
                guarded.clone(),
                guarded.clone(),
                guarded
            ]
        );
    }

    /// A table with any bytes changed names something, or nothing.
    #[test]
    fn damaged_tables_do_no_harm() {
        let got = |start: u64| [padded(jump(start, 4), 8), padded(jump(start + 8, 5), 8)].concat();
        let whole = file(X86_64, &[(".plt.got", got)]).bytes();
        let mut random = Random::new(11);
        for _ in 0..5_000 {
            let mut bytes = whole.clone();
            for _ in 0..4 {
                let at = random.below(bytes.len() as u32) as usize;
                bytes[at] = random.next() as u8;
            }
            if let Ok(image) = Image::parse(&bytes) {
                let section = image.linkage_tables().next().map_or(0, |section| section.address);
                names_at(&image, &[section, section.wrapping_add(9), u64::MAX]);
            }
        }
    }
}
