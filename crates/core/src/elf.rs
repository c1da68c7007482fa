//! What the head of an ELF file says: its segments and its build-id.

use object::elf::{ELF_NOTE_GNU, ET_DYN, ET_EXEC, ET_REL, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};
use object::{Endianness, FileKind};

use crate::Error;
use crate::address::{FileOffset, ObjectAddr};

/// The longest build-id to believe: a SHA-512. Linkers write 8 to 32 bytes.
const MAX_BUILD_ID_BYTES: usize = 64;

/// What kind of ELF file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElfType {
    /// At fixed addresses.
    Executable,
    /// A library, or an executable that may be loaded anywhere.
    Dynamic,
    /// Not linked yet: an object file, or a kernel module.
    Relocatable,
    /// A core dump, or something unheard of.
    Other,
}

/// One part of the file that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins in the file.
    pub file_offset: FileOffset,
    /// Where it begins in the object's own space.
    pub address: ObjectAddr,
    /// Its length in the file, in bytes.
    pub size: u64,
    /// Whether it is code.
    pub executable: bool,
}

/// An ELF file's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// What kind it is.
    pub elf_type: ElfType,
    /// What is loaded, in the file's order.
    pub segments: Vec<Segment>,
    /// Empty: none, or beyond the bytes that were given.
    pub build_id: Vec<u8>,
    /// Where it is in the file; 0 where there is none.
    pub build_id_offset: FileOffset,
}

impl Elf {
    /// Read the first bytes of a file: its headers must be among them, as linkers put them.
    pub fn parse(head: &[u8]) -> Result<Self, Error> {
        match FileKind::parse(head) {
            Ok(FileKind::Elf32) => parse::<FileHeader32<Endianness>>(head),
            Ok(FileKind::Elf64) => parse::<FileHeader64<Endianness>>(head),
            _ => Err(Error::damaged("not an ELF file")),
        }
    }

    /// Where this byte of the file is in the object's own space. None when it is not loaded.
    pub fn object_addr(&self, offset: FileOffset) -> Option<ObjectAddr> {
        self.segments.iter().find_map(|segment| {
            let distance = offset
                .0
                .checked_sub(segment.file_offset.0)
                .filter(|&distance| distance < segment.size)?;
            segment.address.0.checked_add(distance).map(ObjectAddr)
        })
    }

    /// Where this address is in the file. None when the file does not have it.
    pub fn file_offset(&self, address: ObjectAddr) -> Option<FileOffset> {
        self.segments.iter().find_map(|segment| {
            let distance = address
                .0
                .checked_sub(segment.address.0)
                .filter(|&distance| distance < segment.size)?;
            segment.file_offset.0.checked_add(distance).map(FileOffset)
        })
    }
}

fn parse<H: FileHeader<Endian = Endianness>>(head: &[u8]) -> Result<Elf, Error> {
    let header = H::parse(head).map_err(Error::damaged)?;
    let endian = header.endian().map_err(Error::damaged)?;
    let programs = header.program_headers(endian, head).map_err(Error::damaged)?;
    let elf_type = match header.e_type(endian) {
        ET_EXEC => ElfType::Executable,
        ET_DYN => ElfType::Dynamic,
        ET_REL => ElfType::Relocatable,
        _ => ElfType::Other,
    };
    let loaded = programs.iter().filter(|program| program.p_type(endian) == PT_LOAD);
    let segments = loaded
        .map(|program| Segment {
            file_offset: FileOffset(program.p_offset(endian).into()),
            address: ObjectAddr(program.p_vaddr(endian).into()),
            size: program.p_filesz(endian).into(),
            executable: program.p_flags(endian).contains(PF_X),
        })
        .collect();
    let build_id = build_id::<H>(programs, endian, head);
    let build_id_offset = build_id.map_or(0, |found| found.as_ptr().addr() - head.as_ptr().addr());
    Ok(Elf {
        elf_type,
        segments,
        build_id: build_id.unwrap_or_default().to_vec(),
        build_id_offset: FileOffset(build_id_offset as u64),
    })
}

/// The first build-id in the notes; what cannot be read there is as good as not there.
fn build_id<'d, H: FileHeader<Endian = Endianness>>(
    programs: &[H::ProgramHeader],
    endian: Endianness,
    head: &'d [u8],
) -> Option<&'d [u8]> {
    let notes = programs
        .iter()
        .filter_map(|program| program.notes(endian, head).ok().flatten());
    notes.flat_map(|notes| build_id_in::<H>(notes, endian)).next()
}

/// The build-id among these notes.
pub(crate) fn build_id_in<'d, H: FileHeader>(mut notes: NoteIterator<'d, H>, endian: H::Endian) -> Option<&'d [u8]> {
    while let Ok(Some(note)) = notes.next() {
        let is_build_id = note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID;
        if is_build_id && note.desc().len() <= MAX_BUILD_ID_BYTES {
            return Some(note.desc());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const CODE: Segment = Segment {
        file_offset: FileOffset(0x1000),
        address: ObjectAddr(0x40_2000),
        size: 0x500,
        executable: true,
    };

    fn our_own_head() -> Vec<u8> {
        let mut head = vec![0; 4096];
        let mut file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        std::io::Read::read_exact(&mut file, &mut head).unwrap();
        head
    }

    /// A file of one segment and one note, written byte by byte as the specification says.
    fn small_file() -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        let words = |file: &mut Vec<u8>, values: &[(u64, usize)]| {
            values
                .iter()
                .for_each(|(value, bytes)| file.extend_from_slice(&value.to_le_bytes()[..*bytes]));
        };
        // e_type, e_machine, e_version, e_entry, e_phoff, e_shoff, e_flags, e_ehsize, e_phentsize, e_phnum, …
        words(
            &mut file,
            &[
                (2, 2),
                (62, 2),
                (1, 4),
                (0, 8),
                (64, 8),
                (0, 8),
                (0, 4),
                (64, 2),
                (56, 2),
                (2, 2),
            ],
        );
        words(&mut file, &[(64, 2), (0, 2), (0, 2)]);
        // p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align
        words(
            &mut file,
            &[
                (1, 4),
                (5, 4),
                (0x1000, 8),
                (0x40_2000, 8),
                (0, 8),
                (0x500, 8),
                (0x500, 8),
                (4096, 8),
            ],
        );
        words(
            &mut file,
            &[(4, 4), (4, 4), (176, 8), (0, 8), (0, 8), (20, 8), (20, 8), (4, 8)],
        );
        // namesz, descsz, type NT_GNU_BUILD_ID
        words(&mut file, &[(4, 4), (4, 4), (3, 4)]);
        file.extend(b"GNU\0\xde\xad\xbe\xef");
        file
    }

    /// Type, segments and build-id are what was written.
    #[test]
    fn a_head_says_what_is_loaded() {
        let elf = Elf::parse(&small_file()).unwrap();
        let expected = Elf {
            elf_type: ElfType::Executable,
            segments: vec![CODE],
            build_id: vec![0xde, 0xad, 0xbe, 0xef],
            build_id_offset: FileOffset(192),
        };
        assert_eq!(elf, expected);
    }

    /// Offsets and addresses are translated within a segment, and nowhere else.
    #[test]
    fn offsets_and_addresses_translate() {
        let elf = Elf::parse(&small_file()).unwrap();
        assert_eq!(elf.object_addr(FileOffset(0x1000)), Some(ObjectAddr(0x40_2000)));
        assert_eq!(elf.object_addr(FileOffset(0x14ff)), Some(ObjectAddr(0x40_24ff)));
        assert_eq!(elf.object_addr(FileOffset(0x1500)), None);
        assert_eq!(elf.object_addr(FileOffset(0xfff)), None);
        assert_eq!(elf.file_offset(ObjectAddr(0x40_24ff)), Some(FileOffset(0x14ff)));
        assert_eq!(elf.file_offset(ObjectAddr(0x40_2500)), None);
    }

    /// The test program itself: its code is found, and the linker gave it a build-id.
    #[test]
    fn our_own_program_is_read() {
        let elf = Elf::parse(&our_own_head()).unwrap();
        assert_eq!(elf.elf_type, ElfType::Dynamic);
        assert!(elf.segments.iter().any(|segment| segment.executable));
    }

    /// A file cut anywhere is an error or lacks its build-id.
    #[test]
    fn truncated_files_do_no_harm() {
        let whole = small_file();
        for end in 0..whole.len() {
            match Elf::parse(&whole[..end]) {
                Ok(elf) => assert!(end >= 176 && elf.build_id.is_empty()),
                Err(_) => assert!(end < 176),
            }
        }
        let ours = our_own_head();
        for end in 0..ours.len() {
            let _ = Elf::parse(&ours[..end]);
        }
    }

    /// Bytes that were tampered with give an error or other numbers, never a panic.
    #[test]
    fn corrupted_files_do_no_harm() {
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let mut file = small_file();
            for _ in 0..4 {
                let at = random.below(file.len() as u32) as usize;
                file[at] = random.next() as u8;
            }
            if let Ok(elf) = Elf::parse(&file) {
                let _ = (
                    elf.object_addr(FileOffset(u64::MAX)),
                    elf.file_offset(ObjectAddr(u64::MAX)),
                );
                assert!(elf.build_id.len() <= MAX_BUILD_ID_BYTES);
            }
        }
    }
}
