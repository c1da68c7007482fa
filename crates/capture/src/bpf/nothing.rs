//! An object file with a program that does nothing, in a section of the caller's: libbpf attaches it where it would attach
//! any other of that section, and what it takes there is what being there takes.

use object::write::{Object, Symbol, SymbolSection};
use object::{Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope};

/// The program's name.
pub const NOTHING: &str = "stackhound_nil";

/// `return return_value`.
pub(super) fn instructions(return_value: u32) -> [libbpf_sys::bpf_insn; 2] {
    let set = libbpf_sys::bpf_insn {
        code: (libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV | libbpf_sys::BPF_K) as u8,
        imm: return_value as i32,
        ..Default::default()
    };
    let exit = libbpf_sys::bpf_insn {
        code: (libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT) as u8,
        ..Default::default()
    };
    [set, exit]
}

/// The file's bytes.
pub fn object_file(section: &str, return_value: u32) -> Vec<u8> {
    let code: Vec<u8> = instructions(return_value).iter().flat_map(encode).collect();
    let mut file = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::default());
    let text = file.add_section(Vec::new(), section.into(), SectionKind::Text);
    file.append_section_data(text, &code, size_of::<libbpf_sys::bpf_insn>() as u64);
    let license = file.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    file.append_section_data(license, b"GPL\0", 1);
    file.add_symbol(Symbol {
        name: NOTHING.into(),
        value: 0,
        size: code.len() as u64,
        kind: SymbolKind::Text,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(text),
        flags: SymbolFlags::None,
    });
    file.write().expect("an ELF file has room for two sections")
}

/// Of an instruction that names no register but r0.
fn encode(instruction: &libbpf_sys::bpf_insn) -> [u8; 8] {
    let [a, b, c, d] = instruction.imm.to_ne_bytes();
    [instruction.code, 0, 0, 0, a, b, c, d]
}
