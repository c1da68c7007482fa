//! What an ELF file's headers say of its code.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use flate2::bufread::ZlibDecoder;
use gimli::{EndianSlice, LittleEndian, Register};
use object::elf::{
    CompressionHeader64, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD, EM_AARCH64, EM_X86_64, FileHeader64, PF_X,
    PT_GNU_EH_FRAME, PT_LOAD, ProgramHeader64, SHF_COMPRESSED, SHT_NOBITS,
};
use object::read::elf::{CompressionHeader, FileHeader, ProgramHeader, SectionHeader};
use object::{FileKind, pod, read};

use crate::Error;

/// Bytes of a file, for gimli.
pub(crate) type Slice<'f> = EndianSlice<'f, LittleEndian>;

/// Segments to look at: linkers make a handful, one or two of them code.
const MAX_SEGMENTS: usize = 256;

/// Bytes that a compressed section may unfold to: Kubernetes' `.debug_frame` has 3 MB.
const MAX_UNFOLDED_BYTES: u64 = 64 << 20;

/// Section headers to look at: linked files have some dozens.
const MAX_SECTIONS: usize = 4096;

/// Sections of procedure linkage tables.
const LINKAGE_TABLES: [&str; 4] = [".plt", ".iplt", ".plt.sec", ".plt.got"];

/// Sections of relocations. The last one belongs to the linkage tables of programs that no dynamic linker starts.
const RELOCATIONS: [&str; 4] = [".rela", ".rela.dyn", ".rela.plt", ".rela.iplt"];

/// Bytes of an `Elf64_Rela`.
const RELOCATION_BYTES: usize = 24;

type Header = FileHeader64<object::LittleEndian>;
const ENDIAN: object::LittleEndian = object::LittleEndian;

/// The machines whose stacks can be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    X86_64,
    Arm64,
}

impl Machine {
    pub(crate) const fn frame_pointer(self) -> Register {
        match self {
            Self::X86_64 => gimli::X86_64::RBP,
            Self::Arm64 => gimli::AArch64::X29,
        }
    }

    /// The register from which code counts that aligns its stack and has no frame pointer.
    pub(crate) const fn base_pointer(self) -> Option<Register> {
        match self {
            Self::X86_64 => Some(gimli::X86_64::RBX),
            Self::Arm64 => None,
        }
    }

    pub(crate) const fn stack_pointer(self) -> Register {
        match self {
            Self::X86_64 => gimli::X86_64::RSP,
            Self::Arm64 => gimli::AArch64::SP,
        }
    }

    /// General registers, which come first among DWARF's numbers.
    pub(crate) const fn registers(self) -> u16 {
        match self {
            Self::X86_64 => 16,
            Self::Arm64 => 31,
        }
    }
}

/// A section that has a name and contents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'f> {
    /// Up to the end of all names, because names are only ever compared.
    name: &'f [u8],
    pub(crate) address: u64,
    /// As it is in the file: after a header, when it is compressed.
    pub(crate) data: &'f [u8],
    is_compressed: bool,
}

impl<'f> Section<'f> {
    /// The contents, unfolded. None when they are damaged, or larger than reasonable.
    pub(crate) fn contents(&self) -> Option<Cow<'f, [u8]>> {
        if !self.is_compressed {
            return Some(self.data.into());
        }
        let (header, packed) = pod::from_bytes::<CompressionHeader64<_>>(self.data).ok()?;
        let unpacker: Box<dyn Read> = match header.ch_type(ENDIAN) {
            ELFCOMPRESS_ZLIB => Box::new(ZlibDecoder::new(packed)),
            ELFCOMPRESS_ZSTD => Box::new(zstd::Decoder::with_buffer(packed).ok()?),
            _ => return None,
        };
        let mut contents = Vec::new();
        let bytes = unpacker.take(MAX_UNFOLDED_BYTES + 1).read_to_end(&mut contents).ok()?;
        (bytes as u64 <= MAX_UNFOLDED_BYTES).then(|| contents.into())
    }

    /// The relocations in it, if that is what it has.
    pub(crate) fn relocations(&self) -> impl Iterator<Item = Relocation> + use<'f> {
        self.data.chunks_exact(RELOCATION_BYTES).map(Relocation::read)
    }
}

/// What is to be written at an address, once it is known where everything is (`Elf64_Rela`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relocation {
    pub(crate) address: u64,
    /// Row of `.dynsym`; 0 for none.
    pub(crate) symbol: u32,
    /// The symbol's address and this; without a symbol, an address of this object.
    pub(crate) addend: u64,
}

impl Relocation {
    fn read(entry: &[u8]) -> Self {
        let word = |at: usize| word_at(entry, at).unwrap_or(0);
        Self {
            address: word(0),
            symbol: (word(8) >> 32) as u32,
            addend: word(16),
        }
    }
}

/// The 8 bytes at an offset.
pub(crate) fn word_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// The 4 bytes at an offset.
pub(crate) fn half_word_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*data.get(at..)?.first_chunk()?))
}

/// A segment that is loaded.
#[derive(Clone, Copy, Debug)]
struct Segment<'f> {
    address: u64,
    data: &'f [u8],
    is_code: bool,
}

impl Segment<'_> {
    fn range(&self) -> Range<u64> {
        self.address..self.address + self.data.len() as u64
    }
}

/// An ELF file of a machine that is known here.
#[derive(Debug)]
pub(crate) struct Image<'f> {
    pub(crate) machine: Machine,
    /// Where a program begins; 0 for a library.
    pub(crate) entry: u64,
    /// Address of `.eh_frame_hdr`.
    pub(crate) eh_frame_hdr: Option<u64>,
    segments: Vec<Segment<'f>>,
    sections: Vec<Section<'f>>,
}

impl<'f> Image<'f> {
    pub(crate) fn parse(file: &'f [u8]) -> Result<Self, Error> {
        if !matches!(FileKind::parse(file), Ok(FileKind::Elf64)) {
            return Err(Error::damaged("not a 64-bit ELF file"));
        }
        let header = Header::parse(file).map_err(Error::damaged)?;
        header.endian().map_err(Error::damaged)?;
        let machine = match header.e_machine(ENDIAN) {
            EM_X86_64 => Machine::X86_64,
            EM_AARCH64 => Machine::Arm64,
            _ => return Err(Error::damaged("code of a machine other than x86-64 and arm64")),
        };
        let programs = header.program_headers(ENDIAN, file).map_err(Error::damaged)?;
        let eh_frame_hdr = programs.iter().find(|one| one.p_type(ENDIAN) == PT_GNU_EH_FRAME);
        Ok(Self {
            machine,
            entry: header.e_entry(ENDIAN),
            eh_frame_hdr: eh_frame_hdr.map(|program| program.p_vaddr(ENDIAN)),
            segments: segments(programs, file),
            sections: sections(header, file).unwrap_or_default(),
        })
    }

    /// Where there is code: by address, apart from each other.
    pub(crate) fn code(&self) -> Vec<Range<u64>> {
        let code = self.segments.iter().filter(|segment| segment.is_code);
        let mut ranges: Vec<_> = code.map(Segment::range).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut end = 0;
        for range in &mut ranges {
            range.start = range.start.max(end);
            end = end.max(range.end);
        }
        ranges.retain(|range| !range.is_empty());
        ranges
    }

    /// The section of this name.
    pub(crate) fn section(&self, name: &str) -> Option<&Section<'f>> {
        let is_named = |section: &&Section| {
            section
                .name
                .strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&0))
        };
        self.sections.iter().find(is_named)
    }

    /// Procedure linkage tables.
    pub(crate) fn linkage_tables(&self) -> impl Iterator<Item = &Section<'f>> {
        LINKAGE_TABLES.iter().filter_map(|name| self.section(name))
    }

    /// What the dynamic linker writes into this object, and where.
    pub(crate) fn relocations(&self) -> impl Iterator<Item = Relocation> {
        let sections = RELOCATIONS.iter().filter_map(|name| self.section(name));
        sections.flat_map(Section::relocations)
    }

    /// What is loaded from an address on, up to the end of its segment.
    pub(crate) fn loaded(&self, address: u64) -> Option<&'f [u8]> {
        let segment = self
            .segments
            .iter()
            .find(|segment| segment.range().contains(&address))?;
        segment.data.get((address - segment.address) as usize..)
    }
}

fn segments<'f>(programs: &[ProgramHeader64<object::LittleEndian>], file: &'f [u8]) -> Vec<Segment<'f>> {
    let loaded = programs.iter().filter(|program| program.p_type(ENDIAN) == PT_LOAD);
    let segments = loaded.filter_map(|program| {
        let (address, data) = (program.p_vaddr(ENDIAN), program.data(ENDIAN, file).ok()?);
        address.checked_add(data.len() as u64)?;
        let is_code = program.p_flags(ENDIAN).contains(PF_X);
        Some(Segment { address, data, is_code })
    });
    segments.take(MAX_SEGMENTS).collect()
}

fn sections<'f>(header: &Header, file: &'f [u8]) -> read::Result<Vec<Section<'f>>> {
    let headers = header.section_headers(ENDIAN, file)?;
    let strings = header.section_strings_index(ENDIAN, file)?.0;
    let names = headers
        .get(strings)
        .and_then(|strings| strings.data(ENDIAN, file).ok())
        .unwrap_or_default();
    let present = headers.iter().filter(|section| section.sh_type(ENDIAN) != SHT_NOBITS);
    let sections = present.take(MAX_SECTIONS).filter_map(|section| {
        Some(Section {
            name: names.get(section.sh_name(ENDIAN) as usize..)?,
            address: section.sh_addr(ENDIAN),
            data: section.data(ENDIAN, file).ok()?,
            is_compressed: section.sh_flags(ENDIAN).contains(SHF_COMPRESSED),
        })
    });
    Ok(sections.collect())
}
