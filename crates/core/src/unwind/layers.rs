//! What is known of a file's code comes from several places, some better than others: where the best says nothing the
//! next is asked.

use std::ops::Range;

use super::writer::Writer;

/// A place that knows functions.
pub(super) trait Layer {
    /// The next function, or what of it lies within `gap`; not empty. Gaps only ever grow, and a function is given once.
    fn next(&mut self, gap: &Range<u64>, writer: &mut Writer) -> Option<Range<u64>>;

    /// Write the rules of the function that was given last, for these of its addresses.
    fn write(&mut self, addresses: &Range<u64>, writer: &mut Writer);
}

/// Write all that is known of these addresses, by the best layer that knows it. The best comes first.
pub(super) fn write(layers: &mut [Box<dyn Layer + '_>], addresses: Range<u64>, writer: &mut Writer) {
    if addresses.is_empty() {
        return;
    }
    let Some((best, others)) = layers.split_first_mut() else {
        return writer.leave(&addresses);
    };
    let mut gap = addresses;
    while let Some(function) = best.next(&gap, writer) {
        write(others, gap.start..function.start, writer);
        writer.note_function();
        best.write(&function, writer);
        gap.start = function.end;
    }
    write(others, gap, writer);
}
