//! Unwinding without frame pointers: from what an ELF file says of its code to a table that the kernel can search.
//!
//! [`build`] reads the file's call frame information into a [`Table`], in the object's own addresses:
//!
//! ```text
//! pages   one for each 4 KiB of code: first row, number of rows
//! rows    u32: offset in the page (12 bits), index of a rule (20 bits); sorted, each holds up to the next
//! rules   16 bytes, each once a file
//! ```
//!
//! x86-64 and arm64, whatever this machine is.

mod builtins;
mod conversion;
mod entries;
mod expression;
mod frames;
mod go;
mod landmarks;
mod layers;
mod made;
mod outlined;
mod pieces;
mod plt;
mod rule;
mod state;
mod statistics;
mod stored;
mod table;
#[cfg(test)]
mod tests;
mod writer;

use std::ops::Range;

use gimli::{BaseAddresses, EhFrameHdr, LittleEndian};

pub use made::{MadeCode, TRAMPOLINE_HEAD_BYTES, Unwinding, build_made, trampolines};
pub(crate) use outlined::outlined;
pub use rule::{Cfa, FramePointer, ReturnAddress, Rule};
pub use statistics::{Reason, Statistics};
pub use table::{MAX_PAGES, MAX_RULES, PAGE_BITS, Page, RULE_BITS, Table, TableView, offset_of, rule_of};

use crate::Error;
use crate::guard::guarded;
use crate::image::{self, Image};
use builtins::Builtins;
use entries::Section;
use frames::Frames;
use go::Go;
use landmarks::Landmarks;
use layers::Layer;
use pieces::Pieces;
use table::LAST_PAGE;
use writer::Writer;

/// The table of an ELF file's code.
///
/// Takes time in proportion to what the file says of its code, and memory for the rows and 8 bytes a function. What
/// cannot be read or said is counted in the table's statistics. An error when it is no ELF file of a machine known
/// here, or has no code.
pub fn build(file: &[u8]) -> Result<Table, Error> {
    guarded(|| build_unguarded(file)).unwrap_or_else(|| Err(Error::damaged("unreadable call frame information")))
}

fn build_unguarded(file: &[u8]) -> Result<Table, Error> {
    let image = Image::parse(file)?;
    let code = within_a_table(image.code());
    let first = code.first().ok_or_else(|| Error::damaged("no code"))?;
    let debug_frame = image
        .section(".debug_frame")
        .and_then(image::Section::contents)
        .unwrap_or_default();
    let debug_frame = Section::new(&debug_frame, 0, false);
    let mut writer = Writer::new(first.start);
    let mut layers = layers(&image, debug_frame, &code, &mut writer);
    for range in &code {
        layers::write(&mut layers, range.clone(), &mut writer);
        writer.set(range.end, Rule::NONE);
    }
    Ok(writer.finish())
}

/// What of the code is no further from its beginning than a table spans.
fn within_a_table(mut code: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let first = code.first().map_or(0, |range| range.start >> PAGE_BITS);
    let limit = (first + MAX_PAGES as u64 - 1).min(LAST_PAGE) << PAGE_BITS;
    for range in &mut code {
        range.end = range.end.min(limit);
    }
    code.retain(|range| !range.is_empty());
    code
}

/// Who knows the file's code, best first.
fn layers<'i>(
    image: &'i Image,
    debug_frame: Section<'i>,
    code: &[Range<u64>],
    writer: &mut Writer,
) -> Vec<Box<dyn Layer + 'i>> {
    let mut frames = |section| Box::new(Frames::read(section, image.machine, code, writer)) as Box<dyn Layer>;
    let eh_frame = eh_frame(image).map(&mut frames);
    let go = Go::find(image).map(|go| Box::new(go) as Box<dyn Layer>);
    let debug_frame = frames(debug_frame);
    let mut layers: Vec<_> = eh_frame.into_iter().chain(go).chain([debug_frame]).collect();
    layers.push(Box::new(Pieces::new(plt::pieces(image))));
    layers.push(Box::new(Builtins::new(image)));
    layers.push(Box::new(Landmarks::new(image)));
    layers
}

/// By the section headers, or else by where the program headers say that it is.
fn eh_frame<'f>(image: &Image<'f>) -> Option<Section<'f>> {
    let (address, data) = match image.section(".eh_frame") {
        Some(section) => (section.address, section.data),
        None => loaded_eh_frame(image)?,
    };
    Some(Section::new(data, address, true))
}

fn loaded_eh_frame<'f>(image: &Image<'f>) -> Option<(u64, &'f [u8])> {
    let address = image.eh_frame_hdr?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let header = EhFrameHdr::new(image.loaded(address)?, LittleEndian);
    let address = header.parse(&bases, 8).ok()?.eh_frame_ptr().direct().ok()?;
    Some((address, entries::until_terminator(image.loaded(address)?)))
}
