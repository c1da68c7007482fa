//! What the pages of a Parquet file claim to unfold to, before anything is unfolded.
//!
//! A page's header says how large it is; the column's metadata repeats the sum, and may lie. Headers are Thrift
//! structs in the compact protocol, of which only these fields matter here:
//!
//! ```text
//! PageHeader { 2: uncompressed size, 3: compressed size, 5: DataPageHeader { 2: encoding },
//!              8: DataPageHeaderV2 { 4: encoding } }
//! ```
//! Sources: parquet-format's parquet.thrift, and "Thrift Compact protocol encoding" of Apache Thrift.

use parquet::file::metadata::ParquetMetaData;

use crate::Error;

/// Structs, lists and maps within each other: parquet.thrift needs three.
const MAX_NESTING: usize = 8;

/// Each value repeats a part of the one before it, so that the size says nothing of what it unfolds to.
const DELTA_BYTE_ARRAY: u64 = 7;

/// Bytes that all pages claim to have when unfolded. An error when their headers make no sense.
pub(super) fn unfolded_bytes(file: &[u8], metadata: &ParquetMetaData) -> Result<u64, Error> {
    let mut total = 0u64;
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        let (start, length) = column.byte_range();
        let end = start.checked_add(length);
        let chunk = end.and_then(|end| file.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?));
        let mut pages = Reader(chunk.ok_or_else(|| Error::damaged("a column is beyond the end of the file"))?);
        while !pages.0.is_empty() {
            let page = pages.page().ok_or_else(|| Error::damaged("a page is damaged"))?;
            if page.encoding == Some(DELTA_BYTE_ARRAY) {
                return Err(Error::damaged(
                    "a column has the encoding DELTA_BYTE_ARRAY, which is not read here",
                ));
            }
            total = total.saturating_add(page.unfolded_bytes);
        }
    }
    Ok(total)
}

/// The fields that matter. Where one is repeated, the worst counts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    unfolded_bytes: u64,
    stored_bytes: u64,
    encoding: Option<u64>,
}

impl Page {
    /// Note a number at a path of field ids, the innermost last.
    fn note(&mut self, path: &[u64], number: u64) {
        match path {
            [2] => self.unfolded_bytes = self.unfolded_bytes.max(number),
            [3] => self.stored_bytes = number,
            [5, 2] | [8, 4] => self.encoding = self.encoding.max(Some(number)),
            _ => {}
        }
    }
}

/// The bytes that are left to read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// The next page, which is skipped.
    fn page(&mut self) -> Option<Page> {
        let mut page = Page::default();
        self.structure(&mut Vec::new(), &mut page)?;
        self.skip(page.stored_bytes)?;
        Some(page)
    }

    fn structure(&mut self, path: &mut Vec<u64>, page: &mut Page) -> Option<()> {
        let mut id = 0;
        loop {
            let header = self.byte()?;
            let (step, kind) = (u64::from(header >> 4), header & 0x0f);
            if kind == 0 {
                return Some(());
            }
            id = if step == 0 {
                unzigzag(self.varint()?)
            } else {
                id.checked_add(step)?
            };
            path.push(id);
            let boolean = matches!(kind, 1 | 2); // the kind is the value
            if !boolean {
                self.value(kind, path, page)?;
            }
            path.pop();
        }
    }

    fn value(&mut self, kind: u8, path: &mut Vec<u64>, page: &mut Page) -> Option<()> {
        if path.len() > MAX_NESTING {
            return None;
        }
        match kind {
            1..=3 => self.skip(1),
            4..=6 => {
                let number = unzigzag(self.varint()?);
                page.note(path, number);
                Some(())
            }
            7 => self.skip(8),
            8 => {
                let length = self.varint()?;
                self.skip(length)
            }
            9 | 10 => self.list(path, page),
            12 => self.structure(path, page),
            _ => None, // a page header has no map
        }
    }

    fn list(&mut self, path: &mut Vec<u64>, page: &mut Page) -> Option<()> {
        let header = self.byte()?;
        let short = u64::from(header >> 4);
        let length = if short == 15 { self.varint()? } else { short };
        path.push(0);
        for _ in 0..length {
            self.value(header & 0x0f, path, page)?;
        }
        path.pop();
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }
}

/// Signed numbers alternate: 0, −1, 1, −2, … A negative one becomes huge, which no size may be.
fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// type 0, 300 bytes unfolded, 2 stored, no checksum, DataPageHeader of 5 values in encoding 7.
    const HEADER: [u8; 14] = [0x15, 0, 0x15, 0xd8, 0x04, 0x15, 4, 0x2c, 0x15, 10, 0x15, 14, 0, 0];

    fn read(bytes: &[u8]) -> Option<(Page, usize)> {
        let mut reader = Reader(bytes);
        reader.page().map(|page| (page, reader.0.len()))
    }

    /// Sizes and encoding are found, and the next page begins behind this one.
    #[test]
    fn a_header_says_its_sizes() {
        let page = Page {
            unfolded_bytes: 300,
            stored_bytes: 2,
            encoding: Some(7),
        };
        assert_eq!(read(&[&HEADER[..], &[1, 2, 3]].concat()), Some((page, 1)));
    }

    /// A field that is told twice counts with its worst value, wherever it comes.
    #[test]
    fn repeated_fields_do_not_hide_anything() {
        let mut header = HEADER[..13].to_vec();
        header.extend([0x05, 4, 0x90, 0xbf, 0x05, 0]); // field 2 again, by its number: 45,000
        assert_eq!(read(&[&header[..], &[1, 2]].concat()).unwrap().0.unfolded_bytes, 45_000);
    }

    /// Headers cut anywhere, nested without end, or of nonsense are None, and quickly.
    #[test]
    fn nonsense_is_none() {
        for end in 0..HEADER.len() {
            assert_eq!(read(&HEADER[..end]), None);
        }
        assert_eq!(read(&[0x1c; 1000]), None);
        assert_eq!(read(&[&[0x19, 0xf1][..], &[0xff; 9], &[0x7f]].concat()), None);
        let mut random = Random::new(5);
        for _ in 0..100_000 {
            let bytes: Vec<u8> = (0..24).map(|_| random.next() as u8).collect();
            let _ = read(&bytes);
        }
    }
}
