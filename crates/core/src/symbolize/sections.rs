//! What an ELF file's section headers say, before anybody reads the sections.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, copy, sink};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flate2::CrcWriter;
use object::elf::{FileHeader32, FileHeader64, PF_X, PT_LOAD, SHF_COMPRESSED, SHT_NOBITS};
use object::read::elf::{CompressionHeader, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

use super::compressed::{Compressed, Format};
use crate::elf::build_id_in;

/// Bytes of a file that nobody vouches for: Chromium's debug file has 5 GB, and is not built as a user often.
pub(super) const MAX_UNTRUSTED_BYTES: u64 = 2 << 30;

/// Bytes that such a file may unfold to: its own size, times what zlib and zstd reach on debug information.
const MAX_UNFOLDED_RATIO: u64 = 16;

/// Bytes of a compressed symbol table (`.gnu_debugdata`), unfolded. Fedora's largest have 20 MB.
pub(super) const MAX_DEBUGDATA_BYTES: u64 = 128 << 20;

/// Bytes of a note section or a debug link: a path and a checksum.
const MAX_SMALL_SECTION_BYTES: u64 = 8 << 10;

/// What a file's section headers say.
#[derive(Debug, Default)]
pub(super) struct Sections {
    pub(super) build_id: Vec<u8>,
    /// Address of the first executable segment.
    pub(super) first_code: u64,
    pub(super) has_symbols: bool,
    pub(super) has_debug_info: bool,
    /// Whether Go's own table of functions is in it.
    pub(super) has_go_table: bool,
    /// Whether other files are named in it.
    pub(super) has_links: bool,
    /// Name and checksum of the file with the debug information.
    pub(super) debug_link: Option<(PathBuf, u32)>,
    /// Bytes that the compressed sections claim to have.
    claimed_bytes: u64,
    compressed: Vec<Compressed>,
    /// A compressed symbol table, which claims nothing.
    debugdata: Option<Compressed>,
}

impl Sections {
    pub(super) fn read(file: &File) -> Result<Self, &'static str> {
        let data = ReadCache::new(file);
        match FileKind::parse(&data) {
            Ok(FileKind::Elf32) => Self::parse::<FileHeader32<Endianness>, _>(&data),
            Ok(FileKind::Elf64) => Self::parse::<FileHeader64<Endianness>, _>(&data),
            _ => return Err("not an ELF file"),
        }
        .map_err(|_| "damaged ELF file")
    }

    fn parse<'d, H: FileHeader<Endian = Endianness>, R: ReadRef<'d>>(data: R) -> object::Result<Self> {
        let header = H::parse(data)?;
        let endian = header.endian()?;
        let table = header.sections(endian, data)?;
        let programs = header.program_headers(endian, data)?.iter();
        let code =
            programs.filter(|program| program.p_type(endian) == PT_LOAD && program.p_flags(endian).contains(PF_X));
        let first_code = code.map(|program| program.p_vaddr(endian).into()).min().unwrap_or(0);
        let mut sections = Self {
            first_code,
            ..Self::default()
        };
        for section in table.iter().filter(|section| section.sh_type(endian) != SHT_NOBITS) {
            let size: u64 = section.sh_size(endian).into();
            if section.sh_flags(endian).contains(SHF_COMPRESSED) {
                sections.note_compressed::<H, R>(endian, data, section)?;
            }
            match table.section_name(endian, section)? {
                b".symtab" => sections.has_symbols |= size > 0,
                b".debug_info" => sections.has_debug_info |= size > 0,
                b".gopclntab" | b".data.rel.ro.gopclntab" => sections.has_go_table |= size > 0,
                b".gnu_debugaltlink" | b".debug_sup" => sections.has_links = true,
                b".gnu_debuglink" if size <= MAX_SMALL_SECTION_BYTES => {
                    sections.has_links = true;
                    sections.debug_link = parse_link(endian, section.data(endian, data)?);
                }
                b".gnu_debuglink" => sections.has_links = true,
                b".note.gnu.build-id" if size <= MAX_SMALL_SECTION_BYTES => {
                    let notes = section.notes(endian, data)?;
                    sections.build_id = notes
                        .and_then(|notes| build_id_in::<H>(notes, endian))
                        .unwrap_or_default()
                        .to_vec();
                }
                b".gnu_debugdata" if sections.debugdata.is_none() => {
                    let start: u64 = section.sh_offset(endian).into();
                    let place = start..start.saturating_add(size);
                    sections.debugdata = Some(Compressed {
                        format: Format::Xz,
                        place,
                    });
                }
                _ => {}
            }
        }
        Ok(sections)
    }

    fn note_compressed<'d, H: FileHeader<Endian = Endianness>, R: ReadRef<'d>>(
        &mut self,
        endian: Endianness,
        data: R,
        section: &H::SectionHeader,
    ) -> object::Result<()> {
        if let Some((header, start, bytes)) = section.compression(endian, data)? {
            self.claimed_bytes = self.claimed_bytes.saturating_add(header.ch_size(endian).into());
            let format = Format::of_section(header.ch_type(endian));
            self.compressed.extend(format.map(|format| Compressed {
                format,
                place: start..start.saturating_add(bytes),
            }));
        }
        Ok(())
    }

    /// An error when reading this file of `bytes` bytes could take unreasonable memory.
    pub(super) fn check_size(&self, file: &File, bytes: u64) -> Result<(), &'static str> {
        let limit = bytes.saturating_mul(MAX_UNFOLDED_RATIO);
        let is_large = bytes > MAX_UNTRUSTED_BYTES || self.claimed_bytes > limit;
        if is_large || self.unfolds_beyond(file, limit) || self.has_large_debugdata(file) {
            return Err("too large");
        }
        Ok(())
    }

    fn unfolds_beyond(&self, file: &File, limit: u64) -> bool {
        let mut left = limit;
        self.compressed.iter().any(|part| {
            // A damaged part is let go again as soon as that shows.
            let unfolded = part.unfolded_bytes(file, left).unwrap_or(0);
            let is_beyond = unfolded > left;
            left = left.saturating_sub(unfolded);
            is_beyond
        })
    }

    /// Where there is another symbol table it is not read.
    fn has_large_debugdata(&self, file: &File) -> bool {
        let debugdata = self.debugdata.as_ref().filter(|_| !self.has_symbols);
        debugdata.is_some_and(|part| {
            let unfolded = part.unfolded_bytes(file, MAX_DEBUGDATA_BYTES);
            unfolded.map_or(true, |bytes| bytes > MAX_DEBUGDATA_BYTES)
        })
    }

    /// Whether this is the debug file of an object: by the build-id, or by the link's checksum.
    pub(super) fn belongs_to(&self, object: &Self, path: &Path) -> bool {
        if !object.build_id.is_empty() && !self.build_id.is_empty() {
            return self.build_id == object.build_id;
        }
        object
            .debug_link
            .as_ref()
            .is_some_and(|(_, checksum)| crc32(path).is_ok_and(|crc| crc == *checksum))
    }
}

/// A name that ends in 0, padding, and a checksum. The name has no directory.
fn parse_link(endian: Endianness, data: &[u8]) -> Option<(PathBuf, u32)> {
    let end = data.iter().position(|&byte| byte == 0)?;
    let name = Path::new(OsStr::from_bytes(&data[..end])).file_name()?;
    let checksum = data.get((end + 1).next_multiple_of(4)..)?.first_chunk::<4>()?;
    let checksum = if endian == Endianness::Little {
        u32::from_le_bytes(*checksum)
    } else {
        u32::from_be_bytes(*checksum)
    };
    Some((name.into(), checksum))
}

fn crc32(path: &Path) -> io::Result<u32> {
    let mut writer = CrcWriter::new(sink());
    copy(&mut File::open(path)?, &mut writer)?;
    Ok(writer.crc().sum())
}
