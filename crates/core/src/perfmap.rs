//! `/tmp/perf-PID.map`: the names that a process gives to the code it made at run time.
//!
//! ```text
//! 7f3a10002000 1a0 LazyCompile:~work app.js:12
//! └─ START       └─ SIZE └─ name, to the end of the line; numbers are hexadecimal
//! ```
//! The process writes it while we read it and may put anything into it.

use std::collections::BTreeMap;

/// Entries to keep, the newest ones: 100 MB of them.
const MAX_ENTRIES: usize = 1 << 20;

/// Bytes of a name to keep.
const MAX_NAME_BYTES: usize = 1024;

/// Names by address.
#[derive(Debug, Default)]
pub struct PerfMap {
    entries: Vec<Entry>,
    /// Parts of entries that no newer one overwrote, sorted and apart.
    pieces: Vec<Piece>,
}

/// One piece of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its first address, in the object: for a perf map, the process's.
    pub start: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Without control characters.
    pub name: String,
}

#[derive(Debug)]
struct Piece {
    start: u64,
    end: u64,
    entry: u32,
}

impl PerfMap {
    /// Read a map. Lines that make no sense are skipped; where entries overlap, the last one counts.
    pub fn parse(text: &[u8]) -> Self {
        let mut map = Self::default();
        let mut covered = Covered::default();
        let newest_first = text.rsplit(|&byte| byte == b'\n').filter_map(parse_line);
        for entry in newest_first.take(MAX_ENTRIES) {
            let id = map.entries.len() as u32;
            let gaps = covered.cover(entry.start, entry.start + entry.size);
            map.pieces
                .extend(gaps.into_iter().map(|(start, end)| Piece { start, end, entry: id }));
            map.entries.push(entry);
        }
        map.pieces.sort_unstable_by_key(|piece| piece.start);
        map
    }

    /// Whether the map names nothing.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// How many names it has, those among them that newer ones replaced.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// What is at this address of the process.
    pub fn find(&self, address: u64) -> Option<&Entry> {
        let after = self.pieces.partition_point(|piece| piece.start <= address);
        let piece = self.pieces[..after].last().filter(|piece| address < piece.end)?;
        Some(&self.entries[piece.entry as usize])
    }
}

fn parse_line(line: &[u8]) -> Option<Entry> {
    let (start, rest) = split_at_blank(line)?;
    let (size, name) = split_at_blank(rest)?;
    let entry = Entry {
        start: parse_hex(start)?,
        size: parse_hex(size)?,
        name: readable_name(name),
    };
    let valid = entry.size > 0 && entry.start.checked_add(entry.size).is_some() && !entry.name.is_empty();
    valid.then_some(entry)
}

fn split_at_blank(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = text.iter().position(|byte| matches!(byte, b' ' | b'\t'))?;
    Some((&text[..blank], text[blank..].trim_ascii_start()))
}

fn parse_hex(digits: &[u8]) -> Option<u64> {
    let digits = digits
        .strip_prefix(b"0x")
        .or(digits.strip_prefix(b"0X"))
        .unwrap_or(digits);
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, 16).ok()
}

/// As much of a name as is kept, without control characters.
pub(crate) fn readable_name(name: &[u8]) -> String {
    let name = &name[..name.len().min(MAX_NAME_BYTES)];
    String::from_utf8_lossy(name)
        .chars()
        .filter(|character| !character.is_control())
        .collect()
}

/// Addresses that have an owner: start → end, apart from each other.
#[derive(Default)]
struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// Cover `start..end`, and return the parts of it that were free.
    fn cover(&mut self, mut start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut whole = (start, end);
        let mut gaps = Vec::new();
        while let Some((&low, &high)) = self.0.range(..=end).next_back().filter(|(_, high)| **high >= whole.0) {
            self.0.remove(&low);
            whole = (whole.0.min(low), whole.1.max(high));
            gaps.push((low, high));
        }
        self.0.insert(whole.0, whole.1);
        let taken = std::mem::take(&mut gaps);
        for (low, high) in taken.into_iter().rev() {
            if start < low.min(end) {
                gaps.push((start, low.min(end)));
            }
            start = start.max(high);
        }
        if start < end {
            gaps.push((start, end));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn name(map: &PerfMap, address: u64) -> Option<&str> {
        map.find(address).map(|entry| &*entry.name)
    }

    /// Addresses are hexadecimal with or without 0x, names may contain blanks.
    #[test]
    fn names_are_found_by_address() {
        let map = PerfMap::parse(b"1000 20 py::main:/a b.py\n0x2000\t0x10 f\n");
        assert_eq!(name(&map, 0xfff), None);
        assert_eq!(name(&map, 0x1000), Some("py::main:/a b.py"));
        assert_eq!(name(&map, 0x101f), Some("py::main:/a b.py"));
        assert_eq!(name(&map, 0x1020), None);
        assert_eq!(name(&map, 0x200f), Some("f"));
    }

    /// Torn lines, nonsense, and what would wrap around are skipped; the rest of the file counts.
    #[test]
    fn torn_lines_are_skipped() {
        let map =
            PerfMap::parse(b"10 10\nxyz 10 a\n10 0 b\nffffffffffffffff 2 c\n\n 5 5 d\n+1 1 e\n100 10 good\n200 1");
        assert_eq!(map.entries.len(), 1);
        assert_eq!(name(&map, 0x100), Some("good"));
        assert!(PerfMap::parse(b"").is_empty());
    }

    /// Where code was overwritten, the newer name counts; what is left of the older keeps its name and start.
    #[test]
    fn the_last_writer_wins() {
        let map = PerfMap::parse(b"100 100 old\n140 20 new\n80 90 newest\n");
        assert_eq!(
            [0x10f, 0x110, 0x13f, 0x140, 0x15f, 0x160].map(|at| name(&map, at).unwrap()),
            ["newest", "old", "old", "new", "new", "old"]
        );
        assert_eq!(map.find(0x160).unwrap().start, 0x100);
    }

    /// Terminal escapes do not get through, and a name has an end.
    #[test]
    fn names_are_harmless() {
        let map = PerfMap::parse("1 1 \u{1b}[31mred\u{7}\u{9b}2J\u{7f}\r\n2 1 \u{1b}\n".as_bytes());
        assert_eq!(name(&map, 1), Some("[31mred2J"));
        assert_eq!(name(&map, 2), None);
        let long = [b"1 1 ".as_slice(), &[b'x'; 10_000], b"\n3 1 \xff\xfe"].concat();
        assert_eq!(name(&PerfMap::parse(&long), 1).unwrap().len(), MAX_NAME_BYTES);
        assert_eq!(name(&PerfMap::parse(&long), 3), Some("\u{fffd}\u{fffd}"));
    }

    /// A map cut anywhere does no harm.
    #[test]
    fn truncated_maps_do_no_harm() {
        let whole = b"1000 20 first one\n0x1010 20 second\n3000 1 third\n";
        for end in 0..whole.len() {
            assert!(PerfMap::parse(&whole[..end]).entries.len() <= 3);
        }
    }

    /// The same answers as painting each address in the order of the lines.
    #[test]
    fn agrees_with_painting() {
        let mut random = Random::new(7);
        for _ in 0..300 {
            let lines: Vec<(u64, u64)> = (0..random.below(12))
                .map(|_| (random.below(64).into(), (1 + random.below(24)).into()))
                .collect();
            let mut painted = [None; 128];
            let mut text = String::new();
            for (id, (start, size)) in lines.iter().enumerate() {
                text += &format!("{start:x} {size:x} n{id}\n");
                painted[*start as usize..(start + size) as usize].fill(Some(format!("n{id}").leak() as &str));
            }
            let map = PerfMap::parse(text.as_bytes());
            for (address, expected) in painted.into_iter().enumerate() {
                assert_eq!(name(&map, address as u64), expected, "{address:#x} in\n{text}");
            }
        }
    }
}
