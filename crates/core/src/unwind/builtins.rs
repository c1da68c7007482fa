//! V8's built-in functions, which Node.js and Chromium have compiled into the program without a description. All keep
//! frame pointers, or run in the frame of one that does; known by the names of their symbols.

use std::ops::Range;

use super::layers::Layer;
use super::rule::Rule;
use super::writer::Writer;
use crate::image::Image;

const PREFIX: &[u8] = b"Builtins_";

/// Bytes of a gap that may be V8's: its functions take 1.4 MB. In most files no gap is as large, and no symbol is read.
const MIN_GAP_BYTES: u64 = 256 << 10;

/// Bytes of an `Elf64_Sym`.
const SYMBOL_BYTES: usize = 24;

/// Times to look at all symbols.
const MAX_SEARCHES: u32 = 4;

/// Looks at the symbols where a gap is large.
pub(super) struct Builtins<'i, 'f> {
    image: &'i Image<'f>,
    searches: u32,
}

impl<'i, 'f> Builtins<'i, 'f> {
    pub(super) fn new(image: &'i Image<'f>) -> Self {
        Self { image, searches: 0 }
    }

    /// From the first function to the last that lie in the gap.
    fn search(&self, gap: &Range<u64>) -> Option<Range<u64>> {
        let symbols = self.image.section(".symtab")?.data.chunks_exact(SYMBOL_BYTES);
        let names = self.image.section(".strtab")?.data;
        let functions = symbols.filter_map(|symbol| {
            let start = u64::from_le_bytes(*symbol[8..].first_chunk()?);
            let bytes = u64::from_le_bytes(*symbol[16..].first_chunk()?);
            let name = || names.get(u32::from_le_bytes(*symbol.first_chunk()?) as usize..);
            let is_ours = gap.contains(&start) && name().is_some_and(|name| name.starts_with(PREFIX));
            is_ours.then(|| start..start.saturating_add(bytes).min(gap.end))
        });
        functions.reduce(|all, function| all.start.min(function.start)..all.end.max(function.end))
    }
}

impl Layer for Builtins<'_, '_> {
    fn next(&mut self, gap: &Range<u64>, _writer: &mut Writer) -> Option<Range<u64>> {
        if self.searches == MAX_SEARCHES || gap.end - gap.start < MIN_GAP_BYTES {
            return None;
        }
        self.searches += 1;
        self.search(gap).filter(|found| !found.is_empty())
    }

    fn write(&mut self, addresses: &Range<u64>, writer: &mut Writer) {
        writer.set(addresses.start, Rule::FRAME_POINTER);
    }
}
