//! Procedure linkage tables, which GNU's linker describes and LLVM's does not.
//!
//! x86-64: `.plt` begins with code that pushes one word and jumps to the dynamic linker; each entry of 16 bytes jumps to
//! its function, or pushes its index and jumps to that code. The entries of `.plt.sec` and `.plt.got` only jump. arm64:
//! `.plt` begins with code that pushes two words; entries only jump.

use super::pieces::Piece;
use super::rule::{Cfa, ReturnAddress, Rule};
use crate::image::{Image, Machine, Section};

/// Bytes of an entry of x86-64, and of what comes before the first.
const ENTRY_BYTES: u64 = 16;

/// `push *address`, with which `.plt` begins on x86-64.
const PUSH: [u8; 2] = [0xff, 0x35];
const PUSH_BYTES: u64 = 6;

/// `endbr64`.
const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// `stp x16, x30, [sp, #-16]!` and `bti c`.
const PUSH_PAIR: [u8; 4] = 0xa9bf_7bf0_u32.to_le_bytes();
const BRANCH_TARGET: [u8; 4] = 0xd503_245f_u32.to_le_bytes();
const ARM64_HEAD_BYTES: u64 = 32;

/// The tables of a file.
pub(super) fn pieces(image: &Image) -> Vec<Piece> {
    let pieces = image.linkage_tables().map(|section| Piece {
        addresses: section.address..section.address.saturating_add(section.data.len() as u64),
        rules: match image.machine {
            Machine::X86_64 => x86_64(section),
            Machine::Arm64 => arm64(section),
        },
    });
    pieces.collect()
}

fn x86_64(section: &Section) -> Vec<(u64, Rule)> {
    let start = section.address;
    if !section.data.starts_with(&PUSH) {
        return vec![(start, Rule::x86_64_frame(8))];
    }
    vec![
        (start, Rule::x86_64_frame(16)),
        (start.saturating_add(PUSH_BYTES), Rule::x86_64_frame(24)),
        (start.saturating_add(ENTRY_BYTES), entry(section)),
    ]
}

/// Where the entries have pushed their index shows in the first: after `push`, which comes after `jmp` or `endbr64`.
fn entry(section: &Section) -> Rule {
    let first = section.data.get(ENTRY_BYTES as usize..).unwrap_or_default();
    let pushed = match first {
        _ if first.starts_with(&LANDING_PAD) => 4 + 5,
        [0xff, 0x25, ..] => 6 + 5,
        [0x68, ..] => 5,
        _ => return Rule::x86_64_frame(8),
    };
    if !section.address.is_multiple_of(ENTRY_BYTES) {
        return Rule::UNSUPPORTED;
    }
    Rule {
        cfa: Cfa::PLT,
        cfa_register: pushed,
        ..Rule::x86_64_frame(8)
    }
}

fn arm64(section: &Section) -> Vec<(u64, Rule)> {
    let start = section.address;
    let entries = Rule::arm64_leaf(0);
    let head = section.data.strip_prefix(&BRANCH_TARGET).unwrap_or(section.data);
    if !head.starts_with(&PUSH_PAIR) {
        return vec![(start, entries)];
    }
    let pushed = Rule {
        return_address: ReturnAddress::AT_CFA,
        return_address_offset: -8,
        ..Rule::arm64_leaf(16)
    };
    let push_end = (section.data.len() - head.len()) as u64 + 4;
    vec![
        (start, entries),
        (start.saturating_add(push_end), pushed),
        (start.saturating_add(ARM64_HEAD_BYTES), entries),
    ]
}
