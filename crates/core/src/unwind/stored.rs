//! A table as bytes, for the cache on disk: used where it lies, from a mapped file.
//!
//! ```text
//! header      40 bytes: magic, version, checksum of all that follows it, number of pages, rows and rules, first page
//! statistics  32 bytes: functions, and what is unsupported
//! pages       8 bytes each: first row, count
//! rows        4 bytes each
//! rules       16 bytes each
//! ```
//!
//! Little-endian. Whoever can write the file can make the table say anything, but not lead a reader out of it.

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::rule::Rule;
use super::statistics::Statistics;
use super::table::{LAST_PAGE, MAX_PAGES, MAX_RULES, Page, Table, TableView, offset_of, rule_of};
use crate::Error;

const MAGIC: [u8; 8] = *b"shunwind";

/// Counted up when the same bytes come to mean something else, or the same file comes to another table.
const VERSION: u32 = 3;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: [u8; 8],
    /// XXH3 of what follows.
    checksum: u64,
    version: u32,
    pages: u32,
    rows: u32,
    rules: u32,
    first_page: u64,
    statistics: Statistics,
}

/// Where the checksum's bytes begin.
const CHECKED_FROM: usize = 16;

const _: () = assert!(cfg!(target_endian = "little") && size_of::<Header>() == 72);

impl Table {
    /// The same, as bytes for [`TableView::from_bytes`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let header = Header {
            magic: MAGIC,
            checksum: 0,
            version: VERSION,
            pages: self.pages.len() as u32,
            rows: self.rows.len() as u32,
            rules: self.rules.len() as u32,
            first_page: self.first_page,
            statistics: self.statistics,
        };
        let columns = [self.pages.as_bytes(), self.rows.as_bytes(), self.rules.as_bytes()];
        let mut bytes = Vec::with_capacity(size_of::<Header>() + self.view().bytes());
        bytes.extend_from_slice(header.as_bytes());
        columns.iter().for_each(|column| bytes.extend_from_slice(column));
        let checksum = xxh3_64(&bytes[CHECKED_FROM..]);
        bytes[MAGIC.len()..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

impl<'t> TableView<'t> {
    /// The table that these bytes hold, aligned to 8 bytes as mapped files are. An error when they are not such a table
    /// of this version, or were damaged.
    pub fn from_bytes(bytes: &'t [u8]) -> Result<Self, Error> {
        let (header, columns) = Header::ref_from_prefix(bytes).map_err(|_| damaged())?;
        if header.magic != MAGIC || header.version != VERSION {
            return Err(Error::damaged("not a table of unwind rules, or of another version"));
        }
        if xxh3_64(&bytes[CHECKED_FROM..]) != header.checksum {
            return Err(damaged());
        }
        let view = Self::split(header, columns).ok_or_else(damaged)?;
        view.is_sound().then_some(view).ok_or_else(damaged)
    }

    fn split(header: &Header, columns: &'t [u8]) -> Option<Self> {
        let (pages, columns) = <[Page]>::ref_from_prefix_with_elems(columns, header.pages as usize).ok()?;
        let (rows, columns) = <[u32]>::ref_from_prefix_with_elems(columns, header.rows as usize).ok()?;
        let rules = <[Rule]>::ref_from_bytes_with_elems(columns, header.rules as usize).ok()?;
        Some(Self {
            first_page: header.first_page,
            pages,
            rows,
            rules,
            statistics: header.statistics,
        })
    }

    /// Whether every page and row leads somewhere, in the right order.
    fn is_sound(&self) -> bool {
        let mut next_row = 0;
        let are_pages_sound = self.pages.iter().all(|page| {
            let follows = page.first_row == next_row;
            next_row = next_row.saturating_add(page.count);
            follows && self.is_page_sound(self.rows_of(page), page)
        });
        are_pages_sound
            && next_row as usize == self.rows.len()
            && self.pages.len() <= MAX_PAGES
            && self.first_page <= LAST_PAGE + 1 - self.pages.len() as u64
            && self.rules.len() <= MAX_RULES
            && self.rules.first() == Some(&Rule::NONE)
            && self.rules.iter().all(Rule::is_sound)
    }

    fn is_page_sound(&self, rows: &[u32], page: &Page) -> bool {
        rows.len() == page.count as usize
            && rows.first().is_none_or(|row| offset_of(*row) == 0)
            && rows.is_sorted_by(|one, next| offset_of(*one) < offset_of(*next))
            && rows.iter().all(|row| (rule_of(*row) as usize) < self.rules.len())
    }
}

fn damaged() -> Error {
    Error::damaged("damaged table of unwind rules")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::ObjectAddr;
    use crate::random::Random;
    use crate::unwind::{PAGE_BITS, build};

    fn our_own() -> Table {
        build(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap()
    }

    /// The bytes, where they are aligned as in a mapped file.
    fn aligned(bytes: &[u8]) -> Vec<u64> {
        let mut words = vec![0; bytes.len().div_ceil(8)];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        words
    }

    fn small() -> Table {
        let table = our_own();
        let rows = table.pages[1].count as usize;
        Table {
            first_page: table.first_page,
            pages: vec![Page {
                first_row: 0,
                count: rows as u32,
            }],
            rows: table.view().rows_of(&table.pages[1]).to_vec(),
            rules: table.rules,
            statistics: table.statistics,
        }
    }

    /// What is read back is what was written.
    #[test]
    fn tables_survive_the_disk() {
        let table = our_own();
        let bytes = table.to_bytes();
        let words = aligned(&bytes);
        let view = TableView::from_bytes(&words.as_bytes()[..bytes.len()]).unwrap();
        assert_eq!(view, table.view());
        let page = (table.first_page + 1) << PAGE_BITS;
        let rules = |rule_at: &dyn Fn(ObjectAddr) -> Option<Rule>| -> Vec<Option<Rule>> {
            (page..page + (1 << PAGE_BITS))
                .map(|address| rule_at(ObjectAddr(address)))
                .collect()
        };
        let read_back = rules(&|address| view.rule_at(address).copied());
        assert!(read_back.iter().any(Option::is_some));
        assert_eq!(read_back, rules(&|address| table.rule_at(address).copied()));
    }

    /// A file that was cut, or changed in any byte, is refused.
    #[test]
    fn damaged_tables_are_refused() {
        let bytes = small().to_bytes();
        for end in 0..bytes.len() {
            assert!(
                TableView::from_bytes(&aligned(&bytes).as_bytes()[..end]).is_err(),
                "{end}"
            );
        }
        for at in 0..bytes.len() {
            let mut words = aligned(&bytes);
            words.as_mut_bytes()[at] ^= 1;
            assert!(TableView::from_bytes(&words.as_bytes()[..bytes.len()]).is_err(), "{at}");
        }
    }

    /// A table that was made to lead somewhere else is refused, also when its checksum is right: what is accepted can
    /// be searched everywhere.
    #[test]
    fn forged_tables_lead_nowhere() {
        let bytes = small().to_bytes();
        let mut random = Random::new(7);
        let mut refused = 0;
        for _ in 0..20_000 {
            let mut words = aligned(&bytes);
            let forged = &mut words.as_mut_bytes()[..bytes.len()];
            let at = 20 + random.below(forged.len() as u32 - 20) as usize;
            forged[at] = random.next() as u8;
            let checksum = xxh3_64(&forged[CHECKED_FROM..]);
            forged[8..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
            match TableView::from_bytes(forged) {
                Ok(view) => (0..4096).for_each(|offset| {
                    let _ = view.rule_at(ObjectAddr((view.first_page << PAGE_BITS) + offset));
                }),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 1000, "{refused}");
    }

    /// Bytes that are not where columns can be read from are an error.
    #[test]
    fn alignment_is_checked() {
        let bytes = small().to_bytes();
        let shifted = aligned(&[&[0], bytes.as_slice()].concat());
        assert!(TableView::from_bytes(&shifted.as_bytes()[1..=bytes.len()]).is_err());
    }
}
