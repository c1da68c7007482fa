//! Writes a table, upwards from the first address.

use std::ops::Range;

use hashbrown::HashMap;
use zerocopy::transmute;

use super::rule::Rule;
use super::statistics::{Reason, Statistics};
use super::table::{MAX_RULES, PAGE_BITS, Page, Table, offset_of, row};

/// Rows of a table: Chromium has 3 million.
const MAX_ROWS: usize = 16 << 20;

/// What lies between functions: compilers align them to 16 bytes.
pub(super) const MAX_PADDING_BYTES: u64 = 15;

/// The rules that every table begins with.
const FIRST_RULES: [Rule; 2] = [Rule::NONE, Rule::UNSUPPORTED];
const NONE: u32 = 0;
const UNSUPPORTED: u32 = 1;

/// A table under way.
#[derive(Debug)]
pub(super) struct Writer {
    table: Table,
    /// The index of each rule.
    known: HashMap<u128, u32>,
    /// The rule that holds from the last row on, and its index.
    current: (u128, u32),
    /// The last address that was given.
    last: u64,
}

impl Writer {
    /// For addresses from `start` on.
    pub(super) fn new(start: u64) -> Self {
        let known = FIRST_RULES.into_iter().map(|rule| transmute!(rule)).zip(0..).collect();
        let table = Table {
            first_page: start >> PAGE_BITS,
            pages: Vec::new(),
            rows: Vec::new(),
            rules: FIRST_RULES.to_vec(),
            statistics: Statistics::default(),
        };
        Self {
            table,
            known,
            current: (transmute!(Rule::NONE), NONE),
            last: start,
        }
    }

    /// From this address on another rule holds. Addresses only ever grow, whatever a file says; the last rule given for
    /// one counts.
    pub(super) fn set(&mut self, address: u64, rule: Rule) {
        let (rule, address) = (transmute!(rule), address.max(self.last));
        self.last = address;
        if rule == self.current.0 {
            return;
        }
        let index = self.intern(rule);
        self.open_pages(((address >> PAGE_BITS) - self.table.first_page) as usize);
        self.push(row(address, index));
        self.current = (rule, index);
    }

    /// Nothing is known of these addresses. When they are but the padding of a function, its last rule holds on.
    pub(super) fn leave(&mut self, addresses: &Range<u64>) {
        if addresses.end - addresses.start > MAX_PADDING_BYTES {
            self.set(addresses.start, Rule::NONE);
        }
    }

    /// Count a function.
    pub(super) fn note_function(&mut self) {
        self.table.statistics.functions = self.table.statistics.functions.saturating_add(1);
    }

    /// Count what has no rule.
    pub(super) fn note(&mut self, reason: Reason) {
        self.table.statistics.note(reason);
    }

    /// The table, when all of it is written.
    pub(super) fn finish(mut self) -> Table {
        self.table.pages.shrink_to_fit();
        self.table.rows.shrink_to_fit();
        self.table.rules.shrink_to_fit();
        self.table
    }

    fn intern(&mut self, rule: u128) -> u32 {
        if let Some(&index) = self.known.get(&rule) {
            return if self.table.rows.len() < MAX_ROWS {
                index
            } else {
                UNSUPPORTED
            };
        }
        let index = self.table.rules.len();
        if index == MAX_RULES {
            self.note(Reason::TooMany);
            return UNSUPPORTED;
        }
        self.table.rules.push(transmute!(rule));
        self.known.insert(rule, index as u32);
        index as u32
    }

    /// All pages up to this one. The rule that holds is repeated in each; pages of which nothing is known stay empty.
    fn open_pages(&mut self, last: usize) {
        let Table { pages, rows, .. } = &mut self.table;
        while pages.len() <= last {
            let first_row = rows.len() as u32;
            let is_covered = self.current.1 != NONE || pages.len() == last;
            rows.extend(is_covered.then_some(row(0, self.current.1)));
            pages.push(Page {
                first_row,
                count: is_covered.into(),
            });
        }
    }

    /// A row of the last page, which has one.
    fn push(&mut self, row: u32) {
        let Table { pages, rows, .. } = &mut self.table;
        match (pages.last_mut(), rows.last_mut()) {
            (_, Some(last)) if offset_of(*last) == offset_of(row) => *last = row,
            (Some(page), _) => {
                page.count += 1;
                rows.push(row);
            }
            (None, _) => unreachable!("a page was opened"),
        }
    }
}
