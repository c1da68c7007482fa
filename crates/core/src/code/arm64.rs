//! arm64's instructions, in Arm's syntax.

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::listing::Decoded;

const INSTRUCTION_BYTES: usize = 4;

/// Decode all of `code`, which begins at an address. What is no instruction that is known here is a `.word`.
pub(super) fn decode(code: &[u8], address: u64) -> Vec<Decoded> {
    let decoder = InstDecoder::default();
    let words = code.chunks_exact(INSTRUCTION_BYTES);
    let addresses = (address..).step_by(INSTRUCTION_BYTES);
    words
        .zip(addresses)
        .map(|(bytes, address)| {
            let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            let instruction = decoder.decode(&mut U8Reader::new(bytes));
            let text = instruction.map_or_else(|_| format!(".word {word:#010x}"), |known| known.to_string());
            let target = target(word).map(|distance| address.wrapping_add_signed(distance));
            Decoded {
                address,
                text: target.map_or_else(|| text.clone(), |target| format!("{text} // {target:#x}")),
                target,
            }
        })
        .collect()
}

/// How far a branch goes, in bytes.
///
/// Source: Arm Architecture Reference Manual, "Branches, Exception Generating and System instructions".
fn target(word: u32) -> Option<i64> {
    let (low_bit, bits) = match word {
        _ if word & 0x7c00_0000 == 0x1400_0000 => (0, 26), // b, bl
        _ if word & 0xff00_0000 == 0x5400_0000 => (5, 19), // b.cond
        _ if word & 0x7e00_0000 == 0x3400_0000 => (5, 19), // cbz, cbnz
        _ if word & 0x7e00_0000 == 0x3600_0000 => (5, 14), // tbz, tbnz
        _ => return None,
    };
    let unused = 64 - bits;
    let words = ((i64::from(word) >> low_bit) << unused) >> unused;
    Some(words * INSTRUCTION_BYTES as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[u32]) -> Vec<String> {
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        decode(&code, 0x1000).into_iter().map(|one| one.text).collect()
    }

    /// As objdump shows the same words, and where branches lead to.
    #[test]
    fn code_reads_as_in_other_disassemblers() {
        let found = texts(&[0xa9bf_7bfd, 0x9400_0004, 0x97ff_ffff, 0x5400_0041, 0xd65f_03c0]);
        assert_eq!(found[0], "stp x29, x30, [sp, #-0x10]!");
        assert!(
            found[1].starts_with("bl ") && found[1].ends_with("// 0x1014"),
            "{found:?}"
        );
        assert!(found[2].ends_with("// 0x1004"), "{found:?}");
        assert!(
            found[3].starts_with("b.ne") && found[3].ends_with("// 0x1014"),
            "{found:?}"
        );
        assert_eq!(found[4], "ret");
    }

    /// What is not known, and what is cut off, does no harm.
    #[test]
    fn unknown_words_are_shown_as_such() {
        assert_eq!(texts(&[0xffff_ffff]), [".word 0xffffffff"]);
        assert!(decode(&[1, 2, 3], 0).is_empty());
    }
}
