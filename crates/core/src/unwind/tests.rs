//! Tables of small files, written byte by byte, and of files that lie.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use zerocopy::IntoBytes;

use super::*;
use crate::address::ObjectAddr;
use crate::elf_writer::{ARM64, CODE, CODE_OFFSET, File, X86_64};
use crate::random::Random;

/// `DW_CFA_def_cfa rsp, 8; DW_CFA_offset rip, -8`: what every CIE of x86-64 says.
const CALLED: [u8; 5] = [0x0c, 7, 8, 0x90, 1];

/// `DW_CFA_def_cfa sp, 0`.
const CALLED_ARM64: [u8; 3] = [0x0c, 31, 0];

/// `DW_CFA_advance_loc 1; DW_CFA_def_cfa_offset 16`.
const PUSHED: [u8; 3] = [0x41, 0x0e, 16];

impl File {
    fn with_eh_frame(self, functions: &[(u64, u64, &[u8])]) -> Self {
        let called: &[u8] = if self.machine == X86_64 { &CALLED } else { &CALLED_ARM64 };
        self.with(".eh_frame", |address| eh_frame(address, "zR", called, functions))
    }

    fn table(&self) -> Table {
        build(&self.bytes()).unwrap()
    }
}

/// An entry: its length, and what is in it up to a multiple of 8 bytes.
fn entry(contents: &[u8]) -> Vec<u8> {
    let mut contents = contents.to_vec();
    contents.resize((contents.len() + 4).next_multiple_of(8) - 4, 0);
    [&(contents.len() as u32).to_le_bytes(), contents.as_slice()].concat()
}

/// A CIE with augmentation `zR` or `zRS`, data alignment −8, and addresses in 4 bytes relative to where they are.
fn cie(augmentation: &str, instructions: &[u8]) -> Vec<u8> {
    let return_address = if instructions == CALLED_ARM64 { 30 } else { 16 };
    let head = [
        &[0, 0, 0, 0, 1],
        augmentation.as_bytes(),
        &[0, 1, 0x78, return_address, 1, 0x1b],
    ]
    .concat();
    entry(&[&head, instructions].concat())
}

/// A section of one CIE, of functions (distance from the code's start, bytes, instructions), and of an end.
fn eh_frame(address: u64, augmentation: &str, initial: &[u8], functions: &[(u64, u64, &[u8])]) -> Vec<u8> {
    let mut section = cie(augmentation, initial);
    for (start, bytes, instructions) in functions {
        let at = section.len() as u64 + 8;
        let start = (CODE + start).wrapping_sub(address + at) as u32;
        let head = [at as u32 - 4, start, *bytes as u32].map(u32::to_le_bytes).concat();
        section.extend(entry(&[head.as_slice(), &[0], instructions].concat()));
    }
    [section, vec![0; 4]].concat()
}

/// A CIE and functions as debug information has them: addresses of 8 bytes, offsets from the section's start.
fn debug_frame(functions: &[(u64, u64, &[u8])]) -> Vec<u8> {
    let head = [&[0xff; 4], [4, 0, 8, 0].as_slice(), &[1, 0x78, 16]].concat();
    let mut section = entry(&[&head, CALLED.as_slice()].concat());
    for (start, bytes, instructions) in functions {
        let head = [&[0; 4], [CODE + start, *bytes].map(u64::to_le_bytes).as_flattened()].concat();
        section.extend(entry(&[&head, *instructions].concat()));
    }
    section
}

/// The rule so many bytes from the code's start.
fn rule_at(table: &Table, offset: u64) -> Rule {
    table.rule_at(ObjectAddr(CODE + offset)).copied().unwrap_or_default()
}

fn frame(bytes: i32) -> Rule {
    Rule::x86_64_frame(bytes)
}

/// What is written is read again.
fn assert_survives_the_disk(table: &Table) {
    let bytes = table.to_bytes();
    let mut words = vec![0_u64; bytes.len().div_ceil(8)];
    let aligned = &mut words.as_mut_bytes()[..bytes.len()];
    aligned.copy_from_slice(&bytes);
    assert_eq!(TableView::from_bytes(aligned).unwrap(), table.view());
}

/// Each address has the rule of its function and instruction; a short gap is padding, a long one is not known.
#[test]
fn rules_hold_from_their_address_on() {
    let table = File::new(X86_64, 200)
        .with_eh_frame(&[(0, 20, &PUSHED), (30, 20, &[]), (100, 1, &[])])
        .table();
    assert_eq!(rule_at(&table, 0), frame(8));
    assert_eq!(rule_at(&table, 1), frame(16));
    assert_eq!(rule_at(&table, 29), frame(16));
    assert_eq!(rule_at(&table, 30), frame(8));
    assert_eq!(rule_at(&table, 49), frame(8));
    assert_eq!(rule_at(&table, 50), Rule::NONE);
    assert_eq!(rule_at(&table, 100), frame(8));
    assert_eq!(rule_at(&table, 101), Rule::NONE);
    assert_eq!(table.statistics.functions, 3);
}

/// A page begins with the rule that holds there, so that a search never leaves it; unknown pages have no rows.
#[test]
fn pages_begin_with_the_rule_that_holds() {
    let table = File::new(X86_64, 0x5000)
        .with_eh_frame(&[(0x800, 0x1900, &PUSHED), (0x4000, 1, &[])])
        .table();
    let view = table.view();
    let offsets = |page: &Page| view.rows_of(page).iter().map(|row| offset_of(*row)).collect::<Vec<_>>();
    let pages: Vec<_> = table.pages.iter().map(offsets).collect();
    assert_eq!(
        pages,
        [vec![0, 0x800, 0x801], vec![0], vec![0, 0x100], vec![], vec![0, 1]]
    );
    assert_eq!(rule_at(&table, 0x1000), frame(16));
    assert_eq!(rule_at(&table, 0x2100), Rule::NONE);
}

/// Where there are no section headers, `.eh_frame` is found as the C library finds it.
#[test]
fn stripped_section_headers_do_not_matter() {
    let mut file = File::new(X86_64, 200).with_eh_frame(&[(0, 20, &PUSHED), (30, 20, &[])]);
    let eh_frame = CODE + 200;
    let expected = file.table();
    file = file.with(".eh_frame_hdr", |address| {
        [
            &[1, 0x1b, 0xff, 0xff],
            (eh_frame.wrapping_sub(address + 4) as u32).to_le_bytes().as_slice(),
        ]
        .concat()
    });
    file.eh_frame_hdr = Some(1);
    file.has_section_headers = false;
    assert_eq!(file.table(), expected);
    assert_ne!(rule_at(&expected, 0), Rule::NONE);
}

/// `.debug_frame`, compressed or not, says what `.eh_frame` does not, and nothing where both do.
#[test]
fn debug_frame_fills_the_gaps() {
    let contents = debug_frame(&[(0, 20, &[]), (60, 20, &PUSHED)]);
    let mut packed = ZlibEncoder::new(
        [1, contents.len() as u64, 1].map(u64::to_le_bytes).concat(),
        Compression::fast(),
    );
    packed.write_all(&contents).unwrap();
    let packed = packed.finish().unwrap();
    for (flags, contents) in [(0, contents), (1 << 11, packed)] {
        let mut file = File::new(X86_64, 100).with_eh_frame(&[(0, 20, &PUSHED)]);
        file.sections.push((".debug_frame", flags, contents));
        let table = file.table();
        assert_eq!(rule_at(&table, 10), frame(16), "of .eh_frame");
        assert_eq!(rule_at(&table, 60), frame(8), "of .debug_frame");
        assert_eq!(rule_at(&table, 61), frame(16));
    }
}

/// An expression of each shape that compilers and linkers write becomes a rule; another one is counted.
#[test]
fn expressions_become_rules() {
    let rule = |instructions: &[u8]| {
        let table = File::new(X86_64, 64).with_eh_frame(&[(0, 64, instructions)]).table();
        (rule_at(&table, 0), table.statistics)
    };
    let aligned = Rule {
        cfa: Cfa::AT_FP,
        cfa_indirect_offset: -8,
        frame_pointer: FramePointer::AT_FP,
        ..Rule {
            cfa_offset: 0,
            ..frame(0)
        }
    };
    // CFA = *(rbp − 8), rbp saved at rbp + 0: a function that aligns its stack
    assert_eq!(rule(&[0x0f, 3, 0x76, 0x78, 6, 0x10, 6, 2, 0x76, 0]).0, aligned);
    let stored = Rule {
        cfa: Cfa::AT_SP,
        cfa_indirect_offset: 40,
        ..frame(8)
    };
    assert_eq!(rule(&[0x0f, 5, 0x77, 40, 6, 0x23, 8]).0, stored, "DW_OP_plus_uconst");
    assert_eq!(
        rule(&[0x0f, 5, 0x77, 40, 6, 0x38, 0x22]).0,
        stored,
        "DW_OP_lit8, DW_OP_plus"
    );
    let plt = Rule {
        cfa: Cfa::PLT,
        cfa_register: 11,
        ..frame(8)
    };
    assert_eq!(
        rule(&[0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22]).0,
        plt
    );
    let (odd, statistics) = rule(&[0x0f, 4, 0x77, 8, 0x79, 0]);
    assert_eq!(
        (odd, statistics.count_of(Reason::CfaExpression)),
        (Rule::UNSUPPORTED, 1)
    );
    let (undefined, _) = rule(&[0x07, 16]);
    assert_eq!(undefined, Rule::END);
    let (lost, statistics) = rule(&[0x09, 6, 9]);
    assert_eq!(
        (lost.frame_pointer, statistics.count_of(Reason::FramePointer)),
        (FramePointer::UNDEFINED, 1)
    );
    let (elsewhere, _) = rule(&[0x09, 16, 5]); // vfork's, after it was popped
    assert_eq!(
        (elsewhere.return_address, elsewhere.return_address_offset),
        (ReturnAddress::IN_REGISTER, 5)
    );
    let (computed, statistics) = rule(&[0x14, 16, 1]);
    assert_eq!(
        (computed, statistics.count_of(Reason::ReturnAddress)),
        (Rule::UNSUPPORTED, 1)
    );
}

/// On arm64 the return address is in its register until it is stored.
#[test]
fn the_link_register_is_followed() {
    // after 4 bytes: def_cfa_offset 32, x29 at −32, x30 at −24; after 8: def_cfa x29, 32
    let instructions = [0x44, 0x0e, 32, 0x9d, 4, 0x9e, 3, 0x44, 0x0d, 29];
    let table = File::new(ARM64, 64).with_eh_frame(&[(0, 64, &instructions)]).table();
    assert_eq!(rule_at(&table, 0), Rule::arm64_leaf(0));
    let stored = Rule {
        return_address: ReturnAddress::AT_CFA,
        return_address_offset: -24,
        frame_pointer: FramePointer::AT_CFA,
        frame_pointer_offset: -32,
        ..Rule::arm64_leaf(32)
    };
    assert_eq!(rule_at(&table, 4), stored);
    assert_eq!(rule_at(&table, 8), Rule { cfa: Cfa::FP, ..stored });
}

/// Only the frame that the kernel pushes is a signal frame, whatever the augmentation says.
#[test]
fn signal_frames_are_what_the_kernel_pushes() {
    let stored = |register: u8, offset: u16| {
        let offset = [offset as u8 & 0x7f | 0x80, (offset >> 7) as u8];
        [&[0x10, register, 3, 0x77], offset.as_slice()].concat()
    };
    let cfa = |offset: u8| vec![0x0f, 4, 0x77, offset | 0x80, 1, 6];
    for (offset, expected) in [(160 - 128, Rule::SIGNAL), (168 - 128, Rule::UNSUPPORTED)] {
        let instructions = [cfa(offset), stored(6, 120), stored(16, 168)].concat();
        let file = File::new(X86_64, 64);
        let section = |address| eh_frame(address, "zRS", &CALLED, &[(0, 64, &instructions)]);
        assert_eq!(rule_at(&file.with(".eh_frame", section).table(), 0), expected);
    }
}

/// Procedure linkage tables as LLVM's linker writes them, without a description, with and without landing pads.
#[test]
fn linkage_tables_are_known_by_their_code() {
    let head = [&[0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0], [0x90; 4].as_slice()].concat();
    let jump = [&[0xff, 0x25, 0, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9], [0; 4].as_slice()].concat();
    let landing = [&[0xf3, 0x0f, 0x1e, 0xfa, 0x68, 0, 0, 0, 0, 0xe9], [0; 6].as_slice()].concat();
    for (entry, pushed) in [(jump, 11), (landing, 9)] {
        let mut file = File::new(X86_64, 64);
        file.code = [head.as_slice(), &entry, &entry].concat();
        let table = with_section_over_code(file, ".plt");
        let plt = Rule {
            cfa: Cfa::PLT,
            cfa_register: pushed,
            ..frame(8)
        };
        assert_eq!(
            [0, 6, 16, 47].map(|offset| rule_at(&table, offset)),
            [frame(16), frame(24), plt, plt]
        );
    }
    let table = with_section_over_code(File::new(X86_64, 64), ".plt.sec");
    assert_eq!(rule_at(&table, 40), frame(8));
    let mut file = File::new(ARM64, 64);
    file.code[..4].copy_from_slice(&0xa9bf_7bf0_u32.to_le_bytes());
    let table = with_section_over_code(file, ".plt");
    assert_eq!([0, 40].map(|offset| rule_at(&table, offset)), [Rule::arm64_leaf(0); 2]);
    assert_eq!(rule_at(&table, 4).return_address_offset, -8);
}

/// The table of a file with one section, whose header is made to say that the code is in it.
fn with_section_over_code(file: File, name: &'static str) -> Table {
    let (code, file) = (file.code.len(), file.with(name, |_| vec![0; 1]));
    let mut bytes = file.bytes();
    let headers = bytes.len() - 2 * 64;
    let words = [CODE, CODE_OFFSET, code as u64].map(u64::to_le_bytes).concat();
    bytes[headers + 16..headers + 40].copy_from_slice(&words);
    build(&bytes).unwrap()
}

/// musl describes neither where programs begin nor where signal handlers return to.
#[test]
fn landmarks_are_known_by_their_looks() {
    let mut file = File::new(X86_64, 400).with_eh_frame(&[(0, 20, &[])]);
    file.entry = CODE + 100;
    file.code[300..309].copy_from_slice(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]);
    let table = file.table();
    assert_eq!(rule_at(&table, 99), Rule::NONE);
    assert_eq!(rule_at(&table, 100), Rule::END);
    assert_eq!(rule_at(&table, 298), Rule::NONE);
    assert_eq!(
        [299, 308].map(|offset| rule_at(&table, offset)),
        [Rule::SIGNAL; 2],
        "also just before it"
    );
    assert_eq!(rule_at(&table, 309), Rule::NONE);
}

/// A Go function: start, flags, and (bytes on the stack, for how many bytes of code).
type GoFunction<'t> = (u32, u8, &'t [(i32, u8)]);

/// Go's table of functions, as Go 1.20 writes it.
fn pclntab(functions: &[GoFunction], end: u32) -> Vec<u8> {
    let mut pc_tables = vec![0];
    let mut said = Vec::new();
    let mut entries = Vec::new();
    let entries_bytes = 8 * functions.len() as u32 + 4;
    for (start, flags, frames) in functions {
        entries.extend([*start, entries_bytes + said.len() as u32]);
        said.extend(
            [*start, 0, 0, 0, pc_tables.len() as u32, 0, 0, 0, 0, 0]
                .map(u32::to_le_bytes)
                .concat(),
        );
        said.extend([0, *flags, 0, 0]);
        let mut value = -1;
        for (bytes, code_bytes) in *frames {
            let change: i32 = bytes - value;
            let zigzag = (change << 1 ^ change >> 31) as u8;
            pc_tables.extend([zigzag, *code_bytes]);
            value = *bytes;
        }
        pc_tables.push(0);
    }
    entries.push(end);
    let entries: Vec<u8> = entries.into_iter().flat_map(u32::to_le_bytes).collect();
    let offsets = [0, 0, 0, 72, 72 + pc_tables.len() as u64];
    let words = [&[functions.len() as u64, 0, CODE][..], &offsets].concat();
    let header = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8]
        .into_iter()
        .chain(words.into_iter().flat_map(u64::to_le_bytes));
    [header.collect(), pc_tables, entries, said].concat()
}

/// A Go program of a plain function, the root of all stacks, one that changes stacks, assembly that keeps no frame
/// pointer, and what signal handlers return to.
fn go_program() -> File {
    let mut file = File::new(X86_64, 160);
    file.code[128..137].copy_from_slice(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]);
    let functions: [GoFunction; 5] = [
        (0, 0, &[(0, 1), (8, 3), (40, 20), (0, 8)]),
        (32, 5, &[(0, 32)]),
        (64, 6, &[(0, 1), (8, 30), (0, 1)]),
        (96, 4, &[(0, 4), (16, 28)]),
        (128, 4, &[(0, 32)]),
    ];
    file.with(".gopclntab", |_| pclntab(&functions, 160))
}

/// Go's functions have the frames that Go's own table says, and those that its runtime treats apart are treated apart.
#[test]
fn go_says_what_its_functions_have_on_the_stack() {
    let table = go_program().table();
    let framed = |bytes| Rule {
        frame_pointer: FramePointer::AT_CFA,
        frame_pointer_offset: -16,
        ..frame(bytes)
    };
    assert_eq!(
        [0, 1, 4, 24].map(|at| rule_at(&table, at)),
        [frame(8), framed(16), framed(48), frame(8)]
    );
    assert_eq!(rule_at(&table, 32), Rule::END);
    assert_eq!(
        [64, 65, 95].map(|at| rule_at(&table, at)),
        [frame(8), Rule::FRAME_POINTER, frame(8)]
    );
    assert_eq!(rule_at(&table, 100), frame(24));
    assert_eq!(
        [126, 127, 128].map(|at| rule_at(&table, at)),
        [frame(24), Rule::SIGNAL, Rule::SIGNAL]
    );
    assert_eq!(table.statistics.functions, 5);
}

/// A Go table with any bytes changed gives rows in order.
#[test]
fn damaged_go_tables_do_no_harm() {
    for machine in [X86_64, ARM64] {
        let mut file = go_program();
        file.machine = machine;
        file.sections[0].2[6] = if machine == ARM64 { 4 } else { 1 };
        let whole = file.sections[0].2.clone();
        let mut random = Random::new(5);
        for _ in 0..10_000 {
            file.sections[0].2.clone_from(&whole);
            for _ in 0..3 {
                let at = random.below(whole.len() as u32) as usize;
                file.sections[0].2[at] = random.next() as u8;
            }
            assert_survives_the_disk(&file.table());
        }
    }
}

/// V8's built-in functions keep frame pointers; whatever else lies in a large gap is not known.
#[test]
fn built_in_functions_are_known_by_their_names() {
    let symbol = |name: u32, start: u64, bytes: u64| {
        [
            &name.to_le_bytes()[..],
            &[0; 4],
            [CODE + start, bytes].map(u64::to_le_bytes).as_flattened(),
        ]
        .concat()
    };
    let symbols = [symbol(1, 0x1000, 64), symbol(1, 0x8000, 64), symbol(14, 0x9000, 64)].concat();
    let file = File::new(X86_64, 512 << 10).with(".symtab", |_| symbols);
    let table = file.with(".strtab", |_| b"\0Builtins_Add\0other\0".to_vec()).table();
    assert_eq!([0, 0xfff].map(|offset| rule_at(&table, offset)), [Rule::NONE; 2]);
    assert_eq!(
        [0x1000, 0x803f].map(|offset| rule_at(&table, offset)),
        [Rule::FRAME_POINTER; 2]
    );
    assert_eq!([0x8040, 0x9000].map(|offset| rule_at(&table, offset)), [Rule::NONE; 2]);
}

/// What a function claims beyond its file, beyond the next function, or for nothing at all, does not count.
#[test]
fn claims_are_cut() {
    let table = File::new(X86_64, 0x3000)
        .with_eh_frame(&[(0, u64::MAX >> 33, &PUSHED), (0x10, 0, &[])])
        .table();
    assert_eq!(table.pages.len(), 4, "the last one only says where the code ends");
    let end = table.view().rows_of(&table.pages[3]);
    assert_eq!(end.len(), 1);
    let outside = File::new(X86_64, 64).with_eh_frame(&[(0x10_0000, 8, &[])]).table();
    assert_eq!(outside.statistics.count_of(Reason::OutsideCode), 1);
    let mut file = File::new(X86_64, 64);
    file.sections
        .push((".debug_frame", 0, debug_frame(&[(0, 1 << 60, &PUSHED)])));
    assert_eq!(rule_at(&file.table(), 63), frame(16));
}

/// Code at the very end of all addresses gives a table like any other, from a file that is written and read again.
#[test]
fn the_last_addresses_are_addresses() {
    for start in [0xffff_fffe_ffff_f000, 0xffff_ffff_0000_0000, 0xffff_ffff_ffff_e000_u64] {
        let mut file = File::new(X86_64, 0xfff).bytes();
        file[64 + 16..64 + 24].copy_from_slice(&start.to_le_bytes());
        let entry = start + 8;
        file[24..32].copy_from_slice(&entry.to_le_bytes());
        let table = build(&file).unwrap();
        assert_eq!(table.rule_at(ObjectAddr(entry)), Some(&Rule::END), "{start:#x}");
        assert_survives_the_disk(&table);
    }
}

/// A million functions at one address, a million remembered states, a CIE that is its own: each ends soon, and counts.
#[test]
fn excess_is_bounded() {
    let many = vec![(0, 64, PUSHED.as_slice()); 1_000_000];
    let table = File::new(X86_64, 64).with_eh_frame(&many).table();
    assert_eq!((table.statistics.functions, rule_at(&table, 1)), (1, frame(16)));
    let overlapping: Vec<_> = (0..1_000_000)
        .map(|start| (start, 1 << 30, PUSHED.as_slice()))
        .collect();
    let table = File::new(X86_64, 1_000_000).with_eh_frame(&overlapping).table();
    assert_eq!(table.statistics.functions, 1_000_000);
    assert_eq!(rule_at(&table, 500_000), frame(8), "up to the next");
    let remembered = [PUSHED.as_slice(), &[0x0a; 1_000_000]].concat();
    let table = File::new(X86_64, 64).with_eh_frame(&[(0, 64, &remembered)]).table();
    assert_eq!(table.statistics.count_of(Reason::TooMany), 1);
    assert_eq!(rule_at(&table, 1), Rule::UNSUPPORTED);
    let own = |_| entry(&[4, 0, 0, 0, 1, 0, 0, 0]);
    let table = File::new(X86_64, 64).with(".eh_frame", own).table();
    assert_eq!(table.statistics.count_of(Reason::Malformed), 1);
}

/// A file cut anywhere, or with any bytes changed, gives a table that can be searched, or an error.
#[test]
fn damaged_files_do_no_harm() {
    let instructions = [
        PUSHED.as_slice(),
        &[0x0a, 0x41, 0x0f, 3, 0x76, 0x78, 6, 0x0b, 0x41, 0x10, 6, 2, 0x76, 0],
    ]
    .concat();
    let whole = File::new(X86_64, 300)
        .with_eh_frame(&[(0, 20, &instructions), (60, 200, &PUSHED)])
        .bytes();
    for end in 0..whole.len() {
        let _ = build(&whole[..end]);
    }
    let mut random = Random::new(11);
    for _ in 0..20_000 {
        let mut file = whole.clone();
        for _ in 0..3 {
            let at = random.below(file.len() as u32 * 2) as usize;
            let at = if at < file.len() { at } else { at % 256 }; // half of them in the headers
            file[at] = random.next() as u8;
        }
        if let Ok(table) = build(&file) {
            assert_eq!(
                table.pages.iter().map(|page| page.count as usize).sum::<usize>(),
                table.rows.len()
            );
            assert!(
                table
                    .rows
                    .iter()
                    .all(|row| (rule_of(*row) as usize) < table.rules.len())
            );
        }
    }
}

/// Other machines, other word sizes, and files without code are refused with a reason.
#[test]
fn what_cannot_be_unwound_is_refused() {
    assert!(build(b"").is_err());
    assert!(build(&File::new(40, 64).bytes()).is_err(), "32-bit arm");
    assert!(build(&File::new(X86_64, 0).bytes()).is_err(), "no code");
}
