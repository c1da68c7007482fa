//! The MD5 sums that DWARF 5 has of source files.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, Unit};
use object::{Object, ObjectSection};

use crate::guard::guarded;
use crate::symbolize::SymbolFile;

type Slice<'f> = EndianSlice<'f, LittleEndian>;

/// The sum of `source`, as the debug information of what is at an address names and knows it.
pub(super) fn source_md5(file: &SymbolFile, address: u64, source: &Path) -> Option<[u8; 16]> {
    let contents = file.debug_contents()?;
    guarded(|| md5_in(&contents, address, source).ok().flatten()).flatten()
}

fn md5_in(file: &[u8], address: u64, source: &Path) -> Result<Option<[u8; 16]>, gimli::Error> {
    let Ok(file) = object::File::parse(file) else {
        return Ok(None);
    };
    let sections = DwarfSections::load(|id| {
        let section = file.section_by_name(id.name());
        let data = section.and_then(|section| section.uncompressed_data().ok());
        Ok::<Cow<[u8]>, gimli::Error>(data.unwrap_or_default())
    })?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    match unit_at(&dwarf, address)? {
        Some(unit) => md5_of(&dwarf, &unit, source),
        None => Ok(None),
    }
}

/// The unit that has the code at an address.
fn unit_at<'f>(dwarf: &Dwarf<Slice<'f>>, address: u64) -> Result<Option<Unit<Slice<'f>>>, gimli::Error> {
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        if header.version() < 5 {
            continue; // has no sums
        }
        let unit = dwarf.unit(header)?;
        let mut ranges = dwarf.unit_ranges(&unit)?;
        while let Some(range) = ranges.next()? {
            if (range.begin..range.end).contains(&address) {
                return Ok(Some(unit));
            }
        }
    }
    Ok(None)
}

fn md5_of(dwarf: &Dwarf<Slice>, unit: &Unit<Slice>, source: &Path) -> Result<Option<[u8; 16]>, gimli::Error> {
    let Some(program) = &unit.line_program else {
        return Ok(None);
    };
    let header = program.header();
    if !header.file_has_md5() {
        return Ok(None);
    }
    let mut path = unit.comp_dir.map(|dir| to_path(&dir)).unwrap_or_default();
    for file in header.file_names() {
        let base = path.clone();
        if let Some(dir) = file.directory(header) {
            path.push(to_path(&dwarf.attr_string(unit, dir)?));
        }
        path.push(to_path(&dwarf.attr_string(unit, file.path_name())?));
        if path.components().eq(source.components()) {
            return Ok(Some(*file.md5()));
        }
        path = base;
    }
    Ok(None)
}

fn to_path(text: &Slice) -> PathBuf {
    String::from_utf8_lossy(text.slice()).into_owned().into()
}
