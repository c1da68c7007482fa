//! The entries of `.eh_frame` and `.debug_frame`, as LSB's and DWARF's specifications have them. gimli reads the bytes;
//! the entries are read here, because a table is built in half the time so.

use std::ops::Range;

use gimli::constants::{self as dwarf, DwEhPe};
use gimli::{LittleEndian, Reader, ReaderOffset, Register};

use super::statistics::Reason;
use crate::image::Slice;

/// Bytes of a CIE, so that reading it again and again takes bounded time: compilers write about 20.
const MAX_CIE_BYTES: usize = 1024;

/// A section of entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'f> {
    pub(super) data: Slice<'f>,
    pub(super) address: u64,
    /// `.eh_frame`, not `.debug_frame`.
    pub(super) is_eh: bool,
}

/// What many functions have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cie<'f> {
    pub(super) section: Section<'f>,
    pub(super) return_address: Register,
    pub(super) code_alignment: u64,
    pub(super) data_alignment: i64,
    pub(super) is_signal_frame: bool,
    /// Of the addresses in its functions' entries.
    encoding: DwEhPe,
    /// Whether entries have augmentation data, with its length.
    has_data: bool,
    pub(super) instructions: Slice<'f>,
}

/// What is said of one function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fde<'f> {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) instructions: Slice<'f>,
}

/// An entry, as far as all have the same parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'f> {
    /// The offset of its CIE; None for a CIE.
    pub(super) cie: Option<usize>,
    pub(super) rest: Slice<'f>,
}

impl<'f> Section<'f> {
    pub(super) fn new(data: &'f [u8], address: u64, is_eh: bool) -> Self {
        Self {
            data: Slice::new(data, LittleEndian),
            address,
            is_eh,
        }
    }

    /// The offsets of all entries.
    pub(super) fn entries(self) -> Entries<'f> {
        Entries {
            section: self.data.slice(),
            next: 0,
        }
    }

    /// The CIE at an offset.
    pub(super) fn cie(self, offset: usize) -> Result<Cie<'f>, Reason> {
        match self.entry(offset)? {
            Entry { cie: None, rest } if rest.len() <= MAX_CIE_BYTES => self.parse_cie(rest),
            _ => Err(Reason::Malformed),
        }
    }

    /// The entry at an offset.
    pub(super) fn entry(self, offset: usize) -> Result<Entry<'f>, Reason> {
        let contents = contents(self.data.slice(), offset).ok_or(Reason::Malformed)?;
        let is_long = contents.start - offset > 4;
        let mut rest = self.data.range(contents.clone());
        if self.is_eh {
            let distance = rest.read_u32()? as usize;
            let cie = contents.start.checked_sub(distance).ok_or(Reason::Malformed)?;
            let cie = (distance > 0).then_some(cie);
            return Ok(Entry { cie, rest });
        }
        let (cie, none) = if is_long {
            (rest.read_u64()?, u64::MAX)
        } else {
            (rest.read_u32()?.into(), u32::MAX.into())
        };
        let cie = (cie != none).then_some(usize::from_u64(cie)?);
        Ok(Entry { cie, rest })
    }

    fn parse_cie(self, mut rest: Slice<'f>) -> Result<Cie<'f>, Reason> {
        let version = rest.read_u8()?;
        let augmentation = rest.read_null_terminated_slice()?;
        if !matches!(version, 1 | 3 | 4)
            || (version == 4 && !self.is_eh && rest.read_u16()? != u16::from(ADDRESS_BYTES))
        {
            return Err(Reason::Malformed);
        }
        let mut cie = Cie {
            section: self,
            code_alignment: rest.read_uleb128()?,
            data_alignment: rest.read_sleb128()?,
            return_address: match version {
                1 => Register(rest.read_u8()?.into()),
                _ => Register(rest.read_uleb128_u16()?),
            },
            is_signal_frame: false,
            encoding: dwarf::DW_EH_PE_absptr,
            has_data: false,
            instructions: rest,
        };
        cie.augment(augmentation.slice())?;
        Ok(cie)
    }
}

/// Bytes of an address; no segment selector.
const ADDRESS_BYTES: u8 = 8;

impl<'f> Cie<'f> {
    /// Read what the letters of the augmentation string stand for.
    fn augment(&mut self, mut letters: &[u8]) -> Result<(), Reason> {
        let mut data = Slice::default();
        if let Some(rest) = letters.strip_prefix(b"z") {
            let data_bytes = self.instructions.read_uleb128()?;
            data = self.instructions.split(usize::from_u64(data_bytes)?)?;
            self.has_data = true;
            letters = rest;
        }
        for letter in letters {
            match letter {
                b'R' => self.encoding = DwEhPe(data.read_u8()?),
                b'L' => data.skip(1)?,
                b'P' => {
                    let encoding = DwEhPe(data.read_u8()?);
                    read_encoded(&mut data, encoding)?;
                }
                b'S' => self.is_signal_frame = true,
                b'B' | b'G' => {} // arm64: return addresses signed by the other key, tagged memory
                _ => return Err(Reason::Malformed),
            }
        }
        Ok(())
    }

    /// What an entry says of a function, after the offset of this CIE.
    pub(super) fn function(&self, mut entry: Slice<'f>) -> Result<Fde<'f>, Reason> {
        let start = self.read_address(&mut entry)?;
        let bytes = read_encoded(&mut entry, self.encoding)?;
        if self.has_data {
            let data_bytes = read_uleb(&mut entry)?;
            entry.skip(usize::from_u64(data_bytes)?)?;
        }
        Ok(Fde {
            start,
            bytes,
            instructions: entry,
        })
    }

    /// An address, in the functions' encoding.
    pub(super) fn read_address(&self, input: &mut Slice<'f>) -> Result<u64, Reason> {
        let at = input.offset_from(self.section.data) as u64;
        let value = read_encoded(input, self.encoding)?;
        match self.encoding.application() {
            dwarf::DW_EH_PE_absptr => Ok(value),
            dwarf::DW_EH_PE_pcrel => Ok(value.wrapping_add(self.section.address).wrapping_add(at)),
            _ => Err(Reason::Malformed),
        }
    }
}

/// An unsigned LEB128 number. Almost all take one byte.
#[inline]
pub(super) fn read_uleb(input: &mut Slice) -> Result<u64, Reason> {
    match input.slice().split_first() {
        Some((byte, rest)) if *byte < 0x80 => {
            *input = Slice::new(rest, LittleEndian);
            Ok((*byte).into())
        }
        _ => Ok(input.read_uleb128()?),
    }
}

/// A value, without what it is relative to. Signed ones wrap around when they are added.
fn read_encoded(input: &mut Slice, encoding: DwEhPe) -> Result<u64, Reason> {
    Ok(match encoding.format() {
        dwarf::DW_EH_PE_absptr | dwarf::DW_EH_PE_udata8 | dwarf::DW_EH_PE_sdata8 => input.read_u64()?,
        dwarf::DW_EH_PE_sdata4 => input.read_i32()? as u64,
        dwarf::DW_EH_PE_udata4 => input.read_u32()?.into(),
        dwarf::DW_EH_PE_sdata2 => input.read_i16()? as u64,
        dwarf::DW_EH_PE_udata2 => input.read_u16()?.into(),
        dwarf::DW_EH_PE_uleb128 => input.read_uleb128()?,
        dwarf::DW_EH_PE_sleb128 => input.read_sleb128()? as u64,
        _ => return Err(Reason::Malformed),
    })
}

/// The offsets of a section's entries.
pub(super) struct Entries<'f> {
    section: &'f [u8],
    next: usize,
}

impl Entries<'_> {
    /// Whether what follows is no whole entry.
    pub(super) fn is_cut(&self) -> bool {
        self.next < self.section.len()
    }
}

impl Iterator for Entries<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        loop {
            let offset = self.next;
            let contents = contents(self.section, offset)?;
            self.next = contents.end;
            if !contents.is_empty() {
                return Some(offset);
            }
        }
    }
}

/// Where the contents of an entry are: all but its length. None when the section does not have all of them.
fn contents(section: &[u8], offset: usize) -> Option<Range<usize>> {
    let rest = section.get(offset..)?;
    let (bytes, head) = match u32::from_le_bytes(*rest.first_chunk()?) {
        u32::MAX => (u64::from_le_bytes(*rest.get(4..)?.first_chunk()?), 12),
        bytes => (bytes.into(), 4),
    };
    let start = offset + head;
    let end = start.checked_add(usize::try_from(bytes).ok()?)?;
    (end <= section.len()).then_some(start..end)
}

/// Up to the entry of length 0 that ends an `.eh_frame` whose length nobody says.
pub(super) fn until_terminator(data: &[u8]) -> &[u8] {
    let mut end = 0;
    while let Some(contents) = contents(data, end).filter(|contents| !contents.is_empty()) {
        end = contents.end;
    }
    &data[..end]
}
