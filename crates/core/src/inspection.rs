//! Which of the sections that say something of its code an ELF file has.

use object::{File, FileKind, Object, ObjectSection, SectionKind};

use crate::Error;
use crate::guard::guarded;

/// Sections to look for: what unwinds code, what names it, what knows its lines.
const TELLING: [&str; 10] = [
    ".eh_frame",
    ".debug_frame",
    ".gopclntab",
    ".symtab",
    ".dynsym",
    ".gnu_debugdata",
    ".debug_info",
    ".debug_line",
    ".data.rel.ro.gopclntab",
    ".zdebug_info",
];

/// Sections to look at: linked files have some dozens.
const MAX_SECTIONS: usize = 4096;

/// What an ELF file has to say of its code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Hexadecimal; empty: none.
    pub build_id: String,
    /// Names of the telling sections that have contents.
    pub sections: Vec<&'static str>,
    /// The name of a separate debug file; empty: none.
    pub debug_link: String,
}

/// Look at a file. An error when it is no ELF file.
pub fn inspect(file: &[u8]) -> Result<Inspection, Error> {
    guarded(|| inspect_unguarded(file)).unwrap_or_else(|| Err(Error::damaged("unreadable ELF file")))
}

fn inspect_unguarded(file: &[u8]) -> Result<Inspection, Error> {
    if !matches!(FileKind::parse(file), Ok(FileKind::Elf32 | FileKind::Elf64)) {
        return Err(Error::damaged("not an ELF file"));
    }
    let elf = File::parse(file).map_err(Error::damaged)?;
    let has_contents =
        |section: &object::Section| section.size() > 0 && section.kind() != SectionKind::UninitializedData;
    let present: Vec<_> = elf.sections().take(MAX_SECTIONS).filter(has_contents).collect();
    let is_present = |name: &&str| {
        present
            .iter()
            .any(|section| section.name_bytes() == Ok(name.as_bytes()))
    };
    let link = elf
        .gnu_debuglink()
        .ok()
        .flatten()
        .map(|(name, _)| name)
        .unwrap_or_default();
    let build_id = elf.build_id().ok().flatten().unwrap_or_default();
    Ok(Inspection {
        build_id: build_id.iter().map(|byte| format!("{byte:02x}")).collect(),
        sections: TELLING.into_iter().filter(is_present).collect(),
        debug_link: String::from_utf8_lossy(link).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_program_can_be_unwound_and_named() {
        let found = inspect(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(
            [".eh_frame", ".symtab"]
                .iter()
                .all(|name| found.sections.contains(name)),
            "{found:?}"
        );
    }

    #[test]
    fn other_files_and_cut_ones_are_refused_or_have_nothing() {
        assert!(inspect(b"no ELF").is_err());
        let file = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        for end in (0..2048).chain([file.len() / 2]) {
            if let Ok(found) = inspect(&file[..end]) {
                assert_eq!(found.sections, [""; 0]);
            }
        }
    }
}
