//! x86-64's instructions, in Intel's syntax.

use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, OpKind};

use super::listing::Decoded;

/// Decode all of `code`, which begins at an address. What is no instruction is `(bad)`, a byte each.
pub(super) fn decode(code: &[u8], address: u64) -> Vec<Decoded> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut formatter = formatter();
    let mut decoded = Vec::with_capacity(code.len() / 4); // an average instruction has 4 bytes
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        decoded.push(Decoded {
            address: instruction.ip(),
            text,
            target: target(&instruction),
        });
    }
    decoded
}

fn target(instruction: &Instruction) -> Option<u64> {
    let is_near = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    is_near.then(|| instruction.near_branch64())
}

fn formatter() -> IntelFormatter {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_space_after_operand_separator(true);
    options.set_show_branch_size(false);
    formatter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(code: &[u8]) -> Vec<(u64, String)> {
        decode(code, 0x1000)
            .into_iter()
            .map(|one| (one.address, one.text))
            .collect()
    }

    /// As objdump -M intel shows the same bytes.
    #[test]
    fn code_reads_as_in_other_disassemblers() {
        let code = [0x55, 0x48, 0x89, 0xe5, 0xe8, 0xf7, 0x0f, 0, 0, 0x5d, 0xc3];
        let expected = [
            (0x1000, "push rbp"),
            (0x1001, "mov rbp, rsp"),
            (0x1004, "call 0x2000"),
            (0x1009, "pop rbp"),
            (0x100a, "ret"),
        ];
        assert_eq!(texts(&code), expected.map(|(address, text)| (address, text.to_owned())));
        assert_eq!(decode(&code, 0x1000)[2].target, Some(0x2000));
    }

    /// Bytes that are no instruction, and one that is cut off, are shown as such, and end.
    #[test]
    fn what_is_no_code_is_said_to_be_bad() {
        for code in [[0x06, 0x06].as_slice(), &[0xe8, 0, 0]] {
            let found = texts(code);
            assert!(
                !found.is_empty() && found.iter().all(|(_, text)| text == "(bad)"),
                "{found:?}"
            );
        }
    }
}
