//! Parts of a function that the compiler moved elsewhere, like `.cold` ones, found when nobody names them: they begin
//! in the middle of a frame, and jump back into the function.

use std::ops::Range;

use super::entries::{Cie, Entry, Fde, Section};
use super::frames::Cies;
use super::state::{Executor, State, Step};
use crate::image::{Image, Machine};

/// Parts of one function. Compilers make one.
const MAX_PARTS: usize = 8;

/// Bytes of code to look at in all: parts of python3 have 300 KB.
const MAX_SEARCHED_BYTES: usize = 16 << 20;

/// Where the parts of a function are, in no order.
pub(crate) fn outlined(file: &[u8], function: &Range<u64>) -> Vec<Range<u64>> {
    let Ok(image) = Image::parse(file) else {
        return Vec::new();
    };
    let Some(section) = super::eh_frame(&image) else {
        return Vec::new();
    };
    let mut budget = MAX_SEARCHED_BYTES;
    let parts = parts(section, image.machine);
    let own = parts.into_iter().filter(|part| {
        let Some(code) = code(&image, part).filter(|code| code.len() <= budget) else {
            return false;
        };
        budget -= code.len();
        let target = |(at, distance)| part.start.wrapping_add(at as u64).wrapping_add_signed(distance);
        let inside = function.start + 1..function.end; // to its beginning is a call
        jumps(code, image.machine).any(|jump| inside.contains(&target(jump)))
    });
    own.take(MAX_PARTS).collect()
}

fn code<'f>(image: &Image<'f>, part: &Range<u64>) -> Option<&'f [u8]> {
    let bytes = usize::try_from(part.end - part.start).ok()?;
    image.loaded(part.start)?.get(..bytes)
}

/// Code that begins in the middle of a frame.
fn parts(section: Section, machine: Machine) -> Vec<Range<u64>> {
    let (mut cies, mut executor) = (Cies::default(), Executor::new(machine));
    let mut part = |offset| {
        let Entry { cie: Some(cie), rest } = section.entry(offset).ok()? else {
            return None;
        };
        let index = cies.find(cie, section, &mut executor).ok()?;
        let (cie, initial) = &cies.known[index];
        let (fde, initial) = (cie.function(rest).ok()?, (*initial).ok()?);
        let end = fde.start.checked_add(fde.bytes)?;
        begins_within(&fde, cie, initial, &mut executor).then_some(fde.start..end)
    };
    section.entries().filter_map(&mut part).collect()
}

/// Whether the CFA is not where a call leaves it when the code begins.
fn begins_within<'f>(fde: &Fde<'f>, cie: &Cie<'f>, initial: State<'f>, executor: &mut Executor<'f>) -> bool {
    executor.begin(initial);
    let mut instructions = fde.instructions;
    while !instructions.is_empty() && executor.step(&mut instructions, cie) == Ok(Step::Done) {}
    executor.take_change().is_some_and(|state| state.cfa != initial.cfa)
}

/// What looks like a direct jump: where its distance is counted from, and the distance.
fn jumps(code: &[u8], machine: Machine) -> Box<dyn Iterator<Item = (usize, i64)> + '_> {
    match machine {
        Machine::X86_64 => Box::new((0..code.len()).filter_map(|at| jump_x86_64(code, at))),
        Machine::Arm64 => {
            let words = code.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
            Box::new(
                words
                    .enumerate()
                    .filter_map(|(at, word)| Some((4 * at, jump_arm64(word)?))),
            )
        }
    }
}

/// `jmp rel32`, `jcc rel32`: counted from the next instruction. Short ones do not reach as far.
fn jump_x86_64(code: &[u8], at: usize) -> Option<(usize, i64)> {
    let opcode_bytes = match code[at..] {
        [0xe9, ..] => 1,
        [0x0f, 0x80..=0x8f, ..] => 2,
        _ => return None,
    };
    let distance = code.get(at + opcode_bytes..)?.first_chunk()?;
    Some((at + opcode_bytes + 4, i32::from_le_bytes(*distance).into()))
}

/// `b`, `b.cond`, `cbz`, `cbnz`, `tbz`, `tbnz`.
fn jump_arm64(word: u32) -> Option<i64> {
    let (first_bit, bits) = match word >> 24 {
        0x14..=0x17 => (0, 26),
        0x54 | 0x34 | 0x35 | 0xb4 | 0xb5 => (5, 19),
        0x36 | 0x37 | 0xb6 | 0xb7 => (5, 14),
        _ => return None,
    };
    let signed = (word << (32 - first_bit - bits)) as i32 >> (32 - bits);
    Some(i64::from(signed) * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jumps as assemblers write them are read as disassemblers do.
    #[test]
    fn jumps_are_read() {
        let jump = |code: &[u8]| jumps(code, Machine::X86_64).next();
        assert_eq!(jump(&[0xe9, 0xfb, 0xff, 0xff, 0xff]), Some((5, -5)));
        assert_eq!(jump(&[0x90, 0x0f, 0x84, 0x10, 0, 0, 0]), Some((7, 16)));
        assert_eq!(jump(&[0xeb, 0x10, 0x0f]), None);
        assert_eq!(jump_arm64(0x17ff_ffff), Some(-4)); // b .-4
        assert_eq!(jump_arm64(0x5400_0041), Some(8)); // b.ne .+8
        assert_eq!(jump_arm64(0xb4ff_ffe0), Some(-4)); // cbz x0, .-4
        assert_eq!(jump_arm64(0x3600_0040), Some(8)); // tbz w0, #0, .+8
        assert_eq!(jump_arm64(0xd65f_03c0), None); // ret
    }
}
