//! Code that nobody describes, but that is known: the same few instructions in every program.

use std::ops::Range;

use super::layers::Layer;
use super::rule::Rule;
use super::writer::Writer;

/// Some code, and its rules.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) addresses: Range<u64>,
    /// By address; the first is where the code begins.
    pub(super) rules: Vec<(u64, Rule)>,
}

/// Pieces that are found before any is written.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// By address.
    pieces: Vec<Piece>,
    next: usize,
}

impl Pieces {
    pub(super) fn new(mut pieces: Vec<Piece>) -> Self {
        pieces.sort_by_key(|piece| piece.addresses.start);
        Self { pieces, next: 0 }
    }
}

impl Layer for Pieces {
    fn next(&mut self, gap: &Range<u64>, _writer: &mut Writer) -> Option<Range<u64>> {
        while let Some(piece) = self
            .pieces
            .get(self.next)
            .filter(|piece| piece.addresses.start < gap.end)
        {
            self.next += 1;
            let addresses = piece.addresses.start.max(gap.start)..piece.addresses.end.min(gap.end);
            if !addresses.is_empty() {
                return Some(addresses);
            }
        }
        None
    }

    fn write(&mut self, addresses: &Range<u64>, writer: &mut Writer) {
        let rules = self
            .next
            .checked_sub(1)
            .and_then(|last| self.pieces.get(last))
            .map(|piece| &piece.rules);
        for (address, rule) in rules
            .into_iter()
            .flatten()
            .filter(|(address, _)| *address < addresses.end)
        {
            writer.set(*address.max(&addresses.start), *rule);
        }
    }
}
