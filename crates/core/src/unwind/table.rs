//! The table of one file: pages of addresses, rows in them, and the rules that rows name.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::rule::Rule;
use super::statistics::Statistics;
use crate::address::ObjectAddr;

/// Bytes of object address in a page, as a power of two.
pub const PAGE_BITS: u32 = 12;

/// Bits of a row that say which rule it is.
pub const RULE_BITS: u32 = 32 - PAGE_BITS;

/// Rules that a table can have: as many as a row can tell apart.
pub const MAX_RULES: usize = 1 << RULE_BITS;

/// Pages that a table can have: 4 GiB of addresses. Chromium has 50,000.
pub const MAX_PAGES: usize = 1 << 20;

/// The page of the last address that there is.
pub(super) const LAST_PAGE: u64 = u64::MAX >> PAGE_BITS;

/// The rows of 4 KiB of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Page {
    /// Index of its first row.
    pub first_row: u32,
    /// How many rows it has: none where nothing is known of any of its addresses.
    pub count: u32,
}

/// A row: where in its page it begins, in the upper bits, and its rule. It holds up to the next row.
pub(super) const fn row(address: u64, rule: u32) -> u32 {
    (address as u32) << RULE_BITS | rule
}

/// The rule that a row names.
pub const fn rule_of(row: u32) -> u32 {
    row & (MAX_RULES as u32 - 1)
}

/// Where a row begins: bytes from the start of its page.
pub const fn offset_of(row: u32) -> u32 {
    row >> RULE_BITS
}

/// What is known of one file's code, in the object's own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Address of the first page, in pages.
    pub first_page: u64,
    /// Every page from the first to the last.
    pub pages: Vec<Page>,
    /// By address. The first of each page is at its offset 0, so that a search never leaves the page.
    pub rows: Vec<u32>,
    /// Each once. The first is [`Rule::NONE`].
    pub rules: Vec<Rule>,
    /// How it came about.
    pub statistics: Statistics,
}

/// A table that lies in somebody else's memory, like a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableView<'t> {
    /// As in [`Table`].
    pub first_page: u64,
    /// As in [`Table`].
    pub pages: &'t [Page],
    /// As in [`Table`].
    pub rows: &'t [u32],
    /// As in [`Table`].
    pub rules: &'t [Rule],
    /// As in [`Table`].
    pub statistics: Statistics,
}

impl Table {
    /// The same, borrowed.
    pub fn view(&self) -> TableView<'_> {
        TableView {
            first_page: self.first_page,
            pages: &self.pages,
            rows: &self.rows,
            rules: &self.rules,
            statistics: self.statistics,
        }
    }

    /// The rule at an address; None where nothing is known.
    pub fn rule_at(&self, address: ObjectAddr) -> Option<&Rule> {
        self.view().rule_at(address)
    }
}

impl<'t> TableView<'t> {
    /// The rule at an address; None where nothing is known.
    pub fn rule_at(&self, address: ObjectAddr) -> Option<&'t Rule> {
        let page = (address.0 >> PAGE_BITS).checked_sub(self.first_page)?;
        let rows = self.rows_of(self.pages.get(usize::try_from(page).ok()?)?);
        let last = row(address.0, MAX_RULES as u32 - 1);
        let after = rows.partition_point(|&row| row <= last);
        let rule = rule_of(*rows.get(after.checked_sub(1)?)?);
        self.rules.get(rule as usize).filter(|rule| **rule != Rule::NONE)
    }

    /// The rows of one page.
    pub fn rows_of(&self, page: &Page) -> &'t [u32] {
        let start = page.first_row as usize;
        self.rows.get(start..start + page.count as usize).unwrap_or_default()
    }

    /// Bytes that its columns take.
    pub fn bytes(&self) -> usize {
        size_of_val(self.pages) + size_of_val(self.rows) + size_of_val(self.rules)
    }
}
