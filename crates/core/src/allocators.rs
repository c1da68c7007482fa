//! The functions by which programs ask for memory, found in the symbol tables of a file.

use std::collections::BTreeMap;

use object::elf::{FileHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC};
use object::read::elf::{FileHeader, Sym};

use crate::address::{FileOffset, ObjectAddr};
use crate::elf::Elf;

type Header = FileHeader64<object::LittleEndian>;
const ENDIAN: object::LittleEndian = object::LittleEndian;

/// What a function of an allocator is asked, by its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// (bytes)
    Malloc,
    /// (number, bytes)
    Calloc,
    /// (address, bytes)
    Realloc,
    /// (address, number, bytes)
    ReallocArray,
    /// (alignment, bytes)
    Aligned,
    /// (where to put the address, alignment, bytes)
    PosixMemalign,
    /// (address)
    Free,
    /// (address, bytes, protection, flags)
    Mmap,
    /// (address, bytes, new bytes)
    Mremap,
}

/// Of the C library, and behind the prefixes of `PREFIXES`.
const FUNCTIONS: [(&str, Call); 20] = [
    ("malloc", Call::Malloc),
    ("calloc", Call::Calloc),
    ("realloc", Call::Realloc),
    ("reallocarray", Call::ReallocArray),
    ("memalign", Call::Aligned),
    ("aligned_alloc", Call::Aligned),
    ("posix_memalign", Call::PosixMemalign),
    ("valloc", Call::Malloc),
    ("pvalloc", Call::Malloc),
    ("zalloc", Call::Malloc),
    ("free", Call::Free),
    ("cfree", Call::Free),
    ("mallocx", Call::Malloc),
    ("rallocx", Call::Realloc),
    ("dallocx", Call::Free),
    ("sdallocx", Call::Free),
    ("mmap", Call::Mmap),
    ("mmap64", Call::Mmap),
    ("mremap", Call::Mremap),
    ("munmap", Call::Free),
];
/// Of jemalloc, mimalloc and tcmalloc, where they do not take the C library's names.
const PREFIXES: [&str; 4] = ["", "je_", "mi_", "tc_"];
/// C++: operator new and delete. Those of libstdc++ call malloc and free, and need no look of their own.
const OPERATORS: [(&str, Call); 8] = [
    ("_Znwm", Call::Malloc),
    ("_Znam", Call::Malloc),
    ("_ZnwmRKSt9nothrow_t", Call::Malloc),
    ("_ZnamRKSt9nothrow_t", Call::Malloc),
    ("_ZdlPv", Call::Free),
    ("_ZdaPv", Call::Free),
    ("_ZdlPvm", Call::Free),
    ("_ZdaPvm", Call::Free),
];

/// Where a file has such functions. Empty for what is no 64-bit ELF file.
pub fn find_allocators(file: &[u8]) -> Vec<(FileOffset, Call)> {
    let Ok(elf) = Elf::parse(file) else { return Vec::new() };
    let mut found = BTreeMap::new();
    let mut operators = BTreeMap::new();
    for (name, address) in functions(file).unwrap_or_default() {
        let Some(offset) = elf.file_offset(ObjectAddr(address)) else {
            continue;
        };
        if let Some(call) = function(name) {
            found.insert(offset.0, call);
        } else if let Some((_, call)) = OPERATORS.iter().find(|(operator, _)| operator.as_bytes() == name) {
            operators.insert(offset.0, *call);
        }
    }
    if !found.is_empty() {
        operators.into_iter().for_each(|(offset, call)| {
            found.entry(offset).or_insert(call);
        });
    }
    found
        .into_iter()
        .map(|(offset, call)| (FileOffset(offset), call))
        .collect()
}

fn function(name: &[u8]) -> Option<Call> {
    let plain = |prefix: &&str| name.strip_prefix(prefix.as_bytes());
    let known = |name| FUNCTIONS.iter().find(|(function, _)| function.as_bytes() == name);
    PREFIXES.iter().filter_map(plain).find_map(known).map(|(_, call)| *call)
}

/// (name, address) of the functions that a file defines.
fn functions(file: &[u8]) -> Option<Vec<(&[u8], u64)>> {
    let header = Header::parse(file).ok()?;
    header.endian().ok()?;
    let sections = header.sections(ENDIAN, file).ok()?;
    let mut functions = Vec::new();
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let table = sections.symbols(ENDIAN, file, kind).ok()?;
        let defined = table.symbols().iter().filter(|symbol| {
            symbol.st_type() == STT_FUNC && symbol.st_shndx(ENDIAN) != SHN_UNDEF && symbol.st_value(ENDIAN) != 0
        });
        let named = defined.filter_map(|symbol| Some((symbol.name(ENDIAN, table.strings()).ok()?, symbol)));
        functions.extend(named.map(|(name, symbol)| (name, symbol.st_value(ENDIAN))));
    }
    Some(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of all allocators are known, and nothing that only looks like them.
    #[test]
    fn functions_of_allocators_are_known_by_their_names() {
        assert_eq!(function(b"malloc"), Some(Call::Malloc));
        assert_eq!(function(b"je_calloc"), Some(Call::Calloc));
        assert_eq!(function(b"mi_free"), Some(Call::Free));
        assert_eq!(function(b"posix_memalign"), Some(Call::PosixMemalign));
        assert_eq!(function(b"mmap64"), Some(Call::Mmap));
        assert_eq!(function(b"xmalloc"), None);
        assert_eq!(function(b"malloc_usable_size"), None);
    }

    /// What is no ELF file has none.
    #[test]
    fn other_files_have_no_allocators() {
        assert!(find_allocators(b"#!/bin/sh\n").is_empty());
        assert!(find_allocators(b"").is_empty());
    }
}
