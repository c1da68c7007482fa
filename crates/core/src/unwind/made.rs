//! Code that was made at run time: tables of what its maker says of it, or of what it is known to be.

use std::ops::Range;
use std::slice;

use memchr::memmem;

use super::entries::Section;
use super::frames::Frames;
use super::layers;
use super::rule::Rule;
use super::table::Table;
use super::writer::Writer;
use crate::guard::guarded;
use crate::image::Machine;

const OWN_MACHINE: Machine = if cfg!(target_arch = "x86_64") {
    Machine::X86_64
} else {
    Machine::Arm64
};

/// A piece of made code.
#[derive(Clone, Debug)]
pub struct MadeCode<'d> {
    /// Where it is, in the space of the table.
    pub addresses: Range<u64>,
    /// What is known of it.
    pub unwinding: Unwinding<'d>,
}

/// What is known of a piece of made code.
#[derive(Clone, Copy, Debug)]
pub enum Unwinding<'d> {
    /// An `.eh_frame`, and where it takes itself to be.
    EhFrame(&'d [u8], u64),
    /// CPython's, on x86-64: as [`trampolines`] finds them.
    Trampoline,
}

/// The table of these pieces, which are in increasing order and apart; None when it is not to be had.
pub fn build_made(pieces: &[MadeCode]) -> Option<Table> {
    let first = pieces.first()?.addresses.start;
    guarded(|| {
        let mut writer = Writer::new(first);
        for piece in pieces {
            write(piece, &mut writer);
            writer.set(piece.addresses.end, Rule::NONE);
        }
        writer.finish()
    })
}

fn write(piece: &MadeCode, writer: &mut Writer) {
    let addresses = piece.addresses.clone();
    match piece.unwinding {
        Unwinding::EhFrame(data, address) => {
            let section = Section::new(data, address, true);
            let frames = Frames::read(section, OWN_MACHINE, slice::from_ref(&addresses), writer);
            layers::write(&mut [Box::new(frames)], addresses, writer);
        }
        Unwinding::Trampoline => {
            let after_pop = addresses.end - RETURN_BYTES;
            writer.set(addresses.start, Rule::x86_64_frame(8));
            writer.set(after_pop - (POP_BYTES + CALL_BYTES), Rule::x86_64_frame(16));
            writer.set(after_pop, Rule::x86_64_frame(8));
        }
    }
}

/// `sub $8, %rsp; call *%rcx; add $8, %rsp; ret`, which each function of CPython 3.12 and later has a copy of under
/// `-X perf` (Python/asm_trampoline.S). On arm64 it has a frame pointer.
const TRAMPOLINE: [u8; 11] = [0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3];
const CALL_BYTES: u64 = 2;
const POP_BYTES: u64 = 4;
const RETURN_BYTES: u64 = 1;
/// `endbr64`, before it.
const LANDING_PAD: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Bytes of some memory that show whether there are trampolines in it.
pub const TRAMPOLINE_HEAD_BYTES: usize = LANDING_PAD.len() + TRAMPOLINE.len();

/// Where in some memory CPython's trampolines are: nowhere, if it does not begin with one.
pub fn trampolines(memory: &[u8]) -> Vec<Range<usize>> {
    let head = memory.strip_prefix(&LANDING_PAD).unwrap_or(memory);
    if !cfg!(target_arch = "x86_64") || !head.starts_with(&TRAMPOLINE) {
        return Vec::new();
    }
    let starts = memmem::find_iter(memory, &TRAMPOLINE);
    starts
        .map(|start| {
            let has_pad = memory[..start].ends_with(&LANDING_PAD);
            let start_with_pad = if has_pad { start - LANDING_PAD.len() } else { start };
            start_with_pad..start + TRAMPOLINE.len()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ObjectAddr;

    fn cfa_offset(table: &Table, address: u64) -> Option<i32> {
        table.rule_at(ObjectAddr(address)).map(|rule| rule.cfa_offset)
    }

    /// The call of a trampoline is made with a word on the stack, which has been taken off again before it returns.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn trampolines_have_a_word_on_the_stack_while_they_call() {
        let memory = [&LANDING_PAD[..], &TRAMPOLINE, &[0; 1], &TRAMPOLINE, &[0xcc; 5]].concat();
        assert_eq!(trampolines(&memory), [0..15, 16..27]);
        let pieces: Vec<_> = trampolines(&memory)
            .into_iter()
            .map(|range| MadeCode {
                addresses: range.start as u64..range.end as u64,
                unwinding: Unwinding::Trampoline,
            })
            .collect();
        let table = build_made(&pieces).unwrap();
        let offsets: Vec<_> = [0, 4, 7, 8, 9, 13, 14, 16, 20, 26]
            .map(|at| cfa_offset(&table, at))
            .into();
        assert_eq!(offsets, [8, 8, 8, 16, 16, 16, 8, 8, 16, 8].map(Some));
        assert_eq!([15, 27, 4096].map(|at| cfa_offset(&table, at)), [None; 3]);
    }

    #[test]
    fn other_memory_has_no_trampolines() {
        assert!(trampolines(&[&[0x90][..], &TRAMPOLINE].concat()).is_empty());
        assert!(trampolines(&[]).is_empty() && trampolines(&TRAMPOLINE[..10]).is_empty());
    }

    /// An `.eh_frame` counts for its own piece of code only, and damaged ones for none.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_a_runtime_says_of_its_code_holds_for_that_code() {
        // CIE: version 1, "zR", code 1, data -8, ra 16, R = pcrel | sdata4; def_cfa rsp 8, offset ra 1, nop, nop.
        let cie = [
            &[20, 0, 0, 0, 0, 0, 0, 0, 1][..],
            b"zR\0",
            &[1, 0x78, 16, 1, 0x1b, 12, 7, 8, 0x90, 1, 0, 0],
        ]
        .concat();
        // FDE: 16 bytes of code, 32 bytes before this .eh_frame; after 1 byte: def_cfa_offset 24.
        let start = -(32 + 24 + 8_i32);
        let head = [
            [20, 28].map(u32::to_le_bytes).concat(),
            start.to_le_bytes().into(),
            16_u32.to_le_bytes().into(),
        ];
        let fde = [&head.concat()[..], &[0, 0x41, 14, 24, 0, 0, 0, 0]].concat();
        let data = [&cie[..], &fde].concat();
        let piece = |addresses: Range<u64>, eh_frame| MadeCode {
            unwinding: Unwinding::EhFrame(eh_frame, addresses.start + 32),
            addresses,
        };
        let table = build_made(&[piece(0x100..0x110, &data), piece(0x200..0x210, &data[..40])]).unwrap();
        assert_eq!(
            [0x100, 0x101, 0x10f].map(|at| cfa_offset(&table, at)),
            [8, 24, 24].map(Some)
        );
        assert_eq!([0xff, 0x110, 0x200].map(|at| cfa_offset(&table, at)), [None; 3]);
    }
}
