//! Where stacks begin, and where signal handlers return to: known by how they look, where nobody describes them. So it
//! is in musl, and in the vDSO of arm64.

use std::ops::Range;

use memchr::memmem;

use super::layers::Layer;
use super::rule::Rule;
use super::writer::{MAX_PADDING_BYTES, Writer};
use crate::image::{Image, Machine};

/// Bytes of the code at a program's entry, which sets up the stack and calls: musl's and bionic's are shorter.
const ENTRY_BYTES: u64 = 64;

/// Bytes to search in a gap: musl, which describes nothing, has 600 KB.
const MAX_SEARCHED_BYTES: u64 = 1 << 20;

impl Machine {
    /// `rt_sigreturn()`, as everybody writes it, because debuggers know it by this.
    pub(super) const fn signal_return(self) -> &'static [u8] {
        match self {
            Self::X86_64 => &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
            Self::Arm64 => &[0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4],
        }
    }
}

/// Searches the gaps that others leave.
pub(super) struct Landmarks<'i, 'f> {
    image: &'i Image<'f>,
    rule: Rule,
}

impl<'i, 'f> Landmarks<'i, 'f> {
    pub(super) fn new(image: &'i Image<'f>) -> Self {
        Self {
            image,
            rule: Rule::NONE,
        }
    }

    fn entry(&self, gap: &Range<u64>) -> Option<Range<u64>> {
        let entry = self.image.entry;
        (gap.contains(&entry) && entry != 0).then(|| entry..gap.end.min(entry + ENTRY_BYTES))
    }

    /// From the byte before it on, where a walk looks when it is returned to.
    fn signal_return(&self, gap: &Range<u64>) -> Option<Range<u64>> {
        let wanted = self.image.machine.signal_return();
        let bytes = (gap.end - gap.start).min(MAX_SEARCHED_BYTES) as usize;
        let code = self.image.loaded(gap.start)?;
        let at = memmem::find(code.get(..bytes)?, wanted)? as u64;
        let start = gap.start + at;
        Some(start.saturating_sub(1).max(gap.start)..start + wanted.len() as u64)
    }
}

impl Layer for Landmarks<'_, '_> {
    fn next(&mut self, gap: &Range<u64>, _writer: &mut Writer) -> Option<Range<u64>> {
        if gap.end - gap.start <= MAX_PADDING_BYTES {
            return None;
        }
        let found = [
            self.signal_return(gap).map(|place| (place, Rule::SIGNAL)),
            self.entry(gap).map(|place| (place, Rule::END)),
        ];
        let (place, rule) = found.into_iter().flatten().min_by_key(|(place, _)| place.start)?;
        self.rule = rule;
        Some(place)
    }

    fn write(&mut self, addresses: &Range<u64>, writer: &mut Writer) {
        writer.set(addresses.start, self.rule);
    }
}
