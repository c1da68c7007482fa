//! jitdump: the code that a process makes at run time, as it writes it down for profilers.
//!
//! ```text
//! header     u32 "JiTD", version, bytes of this header, ELF machine, 0, pid; u64 time, flags
//! records    u32 kind, bytes; u64 time; then
//!   load       u32 pid, tid; u64 vma, address, bytes, index; name, 0; the code
//!   move       u32 pid, tid; u64 vma, old address, new address, bytes, index
//!   lines      u64 address, entries; of each u64 address, u32 line, discriminator; file, 0 (255, 0: the one before)
//!   unwinding  u64 bytes, bytes of them .eh_frame_hdr, bytes mapped; .eh_frame, .eh_frame_hdr
//! ```
//! Lines and unwinding belong to the load that follows them. The process writes while we read, and may write anything.
//! Source: tools/perf/Documentation/jitdump-specification.txt in Linux.

use std::borrow::Cow;

use hashbrown::HashMap;
use percent_encoding::percent_decode_str;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::Error;
use crate::perfmap::readable_name;

const MAGIC: u32 = 0x4a69_5444;
/// Times are of a clock of the processor.
const FLAG_ARCH_TIMESTAMP: u64 = 1;

const LOAD: u32 = 0;
const MOVE: u32 = 1;
const LINES: u32 = 2;
const UNWINDING: u32 = 4;

/// Records of a file to look at: a fraction of a second's work.
const MAX_RECORDS: usize = 4 << 20;
/// Loads to keep, the first ones: 64 MB of them.
const MAX_CODES: usize = 1 << 20;
/// Lines of one piece of code to look at.
const MAX_LINES: u64 = 1 << 16;
/// Pieces of code to tell apart at one address.
const MAX_AT_ADDRESS: usize = 256;
/// Steps of a look-up: a million pieces of code, with 16 addresses in each.
const MAX_STEPS: usize = 16 << 20;

/// V8 adds the size of an ELF header to the addresses of lines, for the file that `perf inject` would make. And instead
/// of files it writes whatever its memory has there, as many bytes as the name of the file would take.
const ELF_HEADER_BYTES: u64 = 0x40;

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    magic: u32,
    _version: u32,
    bytes: u32,
    machine: u32,
    _reserved: u32,
    _pid: u32,
    _time_us: u64,
    flags: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RecordHeader {
    kind: u32,
    bytes: u32,
    time_ns: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Load {
    _pid: u32,
    _tid: u32,
    _vma: u64,
    address: u64,
    bytes: u64,
    _index: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Move {
    _pid: u32,
    _tid: u32,
    _vma: u64,
    from: u64,
    to: u64,
    _bytes: u64,
    _index: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Lines {
    address: u64,
    entries: u64,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LineEntry {
    address: u64,
    line: u32,
    _discriminator: u32,
}

#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Unwinding {
    bytes: u64,
    header_bytes: u64,
    _mapped_bytes: u64,
}

/// What was read of a dump. It has no contents: those who ask it hand over the file again, as it is now.
#[derive(Debug, Default)]
pub struct JitDump {
    machine: u32,
    has_clock: bool,
    codes: Vec<Code>,
    /// The newest code that begins at an address.
    newest: HashMap<u64, u32>,
    /// Where the next record begins.
    next: usize,
    records: usize,
    /// Of the load that follows: the address that they are for, and where their record is.
    lines: Option<(u64, usize)>,
    unwinding: Option<usize>,
    /// How far behind the start of its code the first line of any code is, at least.
    first_line: Option<u64>,
}

/// A piece of code, at one place from some time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// Its first address in the process.
    pub start: u64,
    /// Its length. The end is an address, too.
    pub bytes: u64,
    /// Since when it has been there, CLOCK_MONOTONIC; 0 when that is not known.
    pub since_ns: u64,
    /// Where in the file its records are.
    load: usize,
    lines: Option<usize>,
    unwinding: Option<usize>,
}

impl Code {
    /// Behind its last address.
    pub fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

impl JitDump {
    /// Read what is new in the file, up to the first record that is not whole. A file that has become shorter is read
    /// anew.
    pub fn read(&mut self, file: &[u8]) -> Result<(), Error> {
        if file.len() < self.next {
            *self = Self::default();
        }
        if self.next == 0 && !self.read_header(file)? {
            return Ok(());
        }
        while self.records < MAX_RECORDS
            && let Some(record) = Record::at(file, self.next)
        {
            self.records += 1;
            match record.kind {
                LOAD => self.load(&record),
                MOVE => self.relocate(&record),
                LINES => self.announce_lines(&record),
                UNWINDING => self.unwinding = Some(record.at),
                _ => {}
            }
            self.next = record.end;
        }
        Ok(())
    }

    /// Whether the header is there.
    fn read_header(&mut self, file: &[u8]) -> Result<bool, Error> {
        let Ok((header, _)) = Header::read_from_prefix(file) else {
            return Ok(false);
        };
        if header.magic != MAGIC || (header.bytes as usize) < size_of::<Header>() {
            return Err(Error::damaged("not a jitdump of this machine"));
        }
        self.machine = header.machine;
        self.has_clock = header.flags & FLAG_ARCH_TIMESTAMP == 0;
        self.next = header.bytes as usize;
        Ok(true)
    }

    fn load(&mut self, record: &Record) {
        let (lines, unwinding) = (self.lines.take(), self.unwinding.take());
        let Ok((load, _)) = Load::read_from_prefix(record.body) else {
            return;
        };
        self.add(Code {
            start: load.address,
            bytes: load.bytes,
            since_ns: self.time(record),
            load: record.at,
            lines: lines.filter(|(address, _)| *address == load.address).map(|(_, at)| at),
            unwinding,
        });
    }

    fn relocate(&mut self, record: &Record) {
        let Ok((moved, _)) = Move::read_from_prefix(record.body) else {
            return;
        };
        if let Some(&index) = self.newest.get(&moved.from) {
            self.add(Code {
                start: moved.to,
                since_ns: self.time(record),
                ..self.codes[index as usize]
            });
        }
    }

    fn add(&mut self, code: Code) {
        let is_sound = code.bytes > 0 && code.start.checked_add(code.bytes).is_some();
        if is_sound && self.codes.len() < MAX_CODES {
            self.newest.insert(code.start, self.codes.len() as u32);
            self.codes.push(code);
        }
    }

    fn announce_lines(&mut self, record: &Record) {
        let Ok((lines, entries)) = Lines::read_from_prefix(record.body) else {
            return;
        };
        self.lines = Some((lines.address, record.at));
        if let Ok((first, _)) = LineEntry::read_from_prefix(entries) {
            let distance = first.address.wrapping_sub(lines.address);
            self.first_line = Some(self.first_line.map_or(distance, |least| least.min(distance)));
        }
    }

    fn time(&self, record: &Record) -> u64 {
        if self.has_clock { record.time_ns } else { 0 }
    }

    /// ELF's number of the machine that the code is for.
    pub fn machine(&self) -> u32 {
        self.machine
    }

    /// All code, in the order in which it was written down.
    pub fn codes(&self) -> &[Code] {
        &self.codes
    }

    /// How many of them have unwinding information.
    pub fn described_codes(&self) -> usize {
        self.codes.iter().filter(|code| code.unwinding.is_some()).count()
    }

    /// What was at each of the addresses, which are in increasing order: indexes of codes, in their order.
    pub fn codes_at(&self, addresses: &[u64]) -> Vec<Vec<u32>> {
        let mut found = vec![Vec::new(); addresses.len()];
        let mut steps = 0;
        for (index, code) in (0..).zip(&self.codes) {
            let first = addresses.partition_point(|address| *address < code.start);
            let inside = addresses[first..].iter().take_while(|address| **address < code.end());
            let places = found[first..].iter_mut().zip(inside).take(MAX_STEPS - steps);
            for (codes, _) in places {
                steps += 1;
                if codes.len() < MAX_AT_ADDRESS {
                    codes.push(index);
                }
            }
        }
        found
    }

    /// The name of a piece of code, without control characters; empty when it has none.
    pub fn name(&self, file: &[u8], code: &Code) -> String {
        let record = Record::at(file, code.load);
        let name = record.and_then(|record| text(record.body.get(size_of::<Load>()..)?));
        name.map(|(name, _)| readable_name(name)).unwrap_or_default()
    }

    /// File and line of the source at an address of a piece of code.
    pub fn line(&self, file: &[u8], code: &Code, address: u64) -> Option<(String, u32)> {
        let record = Record::at(file, code.lines?)?;
        let (lines, entries) = Lines::read_from_prefix(record.body).ok()?;
        let is_v8 = self.first_line.is_some_and(|distance| distance >= ELF_HEADER_BYTES);
        let shift = if is_v8 { ELF_HEADER_BYTES } else { 0 };
        let at = address.wrapping_sub(code.start).checked_add(lines.address)?;
        let wanted = at.checked_add(shift)?;
        let of_v8 = || v8_line_before(wanted, &lines, entries, code.bytes);
        if let Some(line) = is_v8.then(of_v8).flatten() {
            return Some((v8_file(&self.name(file, code)).into_owned(), line));
        }
        let entries = LineEntries {
            rest: entries,
            file: b"",
        }
        .take(lines.entries.min(MAX_LINES) as usize);
        let before = entries.filter(|(entry, _)| entry.address <= wanted);
        let (entry, name) = before.max_by_key(|(entry, _)| entry.address)?;
        Some((readable_name(name), entry.line))
    }

    /// The `.eh_frame` of a piece of code, and how far behind the start of the code its addresses take it to be.
    pub fn eh_frame<'f>(&self, file: &'f [u8], code: &Code) -> Option<(&'f [u8], u64)> {
        let record = Record::at(file, code.unwinding?)?;
        let (unwinding, data) = Unwinding::read_from_prefix(record.body).ok()?;
        let bytes = usize::try_from(unwinding.bytes.checked_sub(unwinding.header_bytes)?).ok()?;
        let eh_frame = data.get(..bytes).filter(|eh_frame| !eh_frame.is_empty())?;
        Some((eh_frame, code.bytes.checked_next_multiple_of(8)?))
    }
}

/// A whole record.
struct Record<'f> {
    kind: u32,
    time_ns: u64,
    body: &'f [u8],
    at: usize,
    end: usize,
}

impl<'f> Record<'f> {
    fn at(file: &'f [u8], at: usize) -> Option<Self> {
        let (header, _) = RecordHeader::read_from_prefix(file.get(at..)?).ok()?;
        let end = at.checked_add(header.bytes as usize)?;
        let body = file.get(at + size_of::<RecordHeader>()..end)?;
        Some(Self {
            kind: header.kind,
            time_ns: header.time_ns,
            body,
            at,
            end,
        })
    }
}

/// The line before an address as V8 writes it: all entries of one function have the same length, because its file does.
/// None where they do not, or where what they say cannot be.
fn v8_line_before(address: u64, lines: &Lines, entries: &[u8], code_bytes: u64) -> Option<u32> {
    const MAX_PADDING: usize = 7;
    let count = usize::try_from(lines.entries.min(MAX_LINES))
        .ok()
        .filter(|count| *count > 0)?;
    let fits = |padding: &usize| {
        entries
            .len()
            .checked_sub(*padding)
            .is_some_and(|bytes| bytes.is_multiple_of(count))
    };
    let stride = (entries.len() - (0..=MAX_PADDING).find(fits)?) / count;
    let (start, end) = (
        lines.address,
        lines.address.checked_add(code_bytes)?.checked_add(ELF_HEADER_BYTES)?,
    );
    let mut found = None;
    for entry in entries.chunks_exact(stride.max(1)).take(count) {
        let (entry, _) = LineEntry::read_from_prefix(entry).ok()?;
        if !(start..=end).contains(&entry.address) {
            return None;
        }
        if entry.address <= address {
            found = Some(entry.line);
        }
    }
    found
}

/// `JS:*function /path/app.js:12:21` to the path; empty when it has none. Modules of ECMAScript have URLs there.
fn v8_file(name: &str) -> Cow<'_, str> {
    let place = name.split_once(' ').map_or("", |(_, place)| place);
    let mut parts = place.rsplitn(3, ':');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let has_numbers = parts.by_ref().take(2).filter(|part| is_number(part)).count() == 2;
    let file = parts.next().filter(|_| has_numbers).unwrap_or_default();
    match file.strip_prefix("file://") {
        Some(path) => percent_decode_str(path).decode_utf8_lossy(),
        None => Cow::Borrowed(file),
    }
}

/// Each with its file.
struct LineEntries<'f> {
    rest: &'f [u8],
    file: &'f [u8],
}

impl<'f> Iterator for LineEntries<'f> {
    type Item = (LineEntry, &'f [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (entry, rest) = LineEntry::read_from_prefix(self.rest).ok()?;
        let (file, rest) = text(rest)?;
        self.rest = rest;
        if file != b"\xff" {
            self.file = file;
        }
        Some((entry, self.file))
    }
}

/// Up to the byte 0, and what follows it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(0, bytes)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn header(flags: u64) -> Vec<u8> {
        let words = [MAGIC, 1, 40, 62, 0, 7].map(u32::to_ne_bytes).concat();
        [words, [0, flags].map(u64::to_ne_bytes).concat()].concat()
    }

    fn record(kind: u32, time_ns: u64, body: &[u8]) -> Vec<u8> {
        let bytes = (size_of::<RecordHeader>() + body.len()) as u32;
        let head = [
            [kind, bytes].map(u32::to_ne_bytes).concat(),
            time_ns.to_ne_bytes().to_vec(),
        ];
        [&head.concat()[..], body].concat()
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn load(time_ns: u64, start: u64, bytes: u64, name: &str) -> Vec<u8> {
        let body = [
            &words(&[0, start, start, bytes, 0])[..],
            name.as_bytes(),
            &[0],
            &vec![0x90; bytes as usize],
        ];
        record(LOAD, time_ns, &body.concat())
    }

    fn lines(start: u64, entries: &[(u64, u64, &[u8])]) -> Vec<u8> {
        let mut body = words(&[start, entries.len() as u64]);
        for (address, line, file) in entries {
            body.extend(words(&[*address, *line]));
            body.extend([file, &b"\0"[..]].concat());
        }
        record(LINES, 0, &body)
    }

    fn moved(time_ns: u64, from: u64, to: u64) -> Vec<u8> {
        record(MOVE, time_ns, &words(&[0, 0, from, to, 0, 0]))
    }

    fn read(parts: &[Vec<u8>]) -> (JitDump, Vec<u8>) {
        let file = parts.concat();
        let mut dump = JitDump::default();
        dump.read(&file).unwrap();
        (dump, file)
    }

    /// The names of all that was at an address, in the order of the file.
    fn names_at(dump: &JitDump, file: &[u8], address: u64) -> Vec<String> {
        let codes = &dump.codes_at(&[address])[0];
        codes
            .iter()
            .map(|index| dump.name(file, &dump.codes()[*index as usize]))
            .collect()
    }

    /// Code is found by its addresses, with the time since when it has been there.
    #[test]
    fn code_is_found_by_its_addresses() {
        let (dump, file) = read(&[
            header(0),
            load(5, 0x1000, 0x20, "one"),
            load(6, 0x2000, 8, "py::two:/a b.py"),
        ]);
        assert_eq!(names_at(&dump, &file, 0xfff), [""; 0]);
        assert_eq!(names_at(&dump, &file, 0x101f), ["one"]);
        assert_eq!(names_at(&dump, &file, 0x1020), [""; 0]);
        assert_eq!(names_at(&dump, &file, 0x2000), ["py::two:/a b.py"]);
        assert_eq!(
            dump.codes().iter().map(|code| code.since_ns).collect::<Vec<_>>(),
            [5, 6]
        );
        assert_eq!(dump.machine(), 62);
    }

    /// Code that took the place of other code comes after it; moved code is at both places, each from its own time on.
    #[test]
    fn code_that_was_moved_or_replaced_is_told_apart() {
        let parts = [
            header(0),
            load(5, 0x1000, 16, "old"),
            moved(7, 0x1000, 0x3000),
            load(9, 0x1008, 16, "new"),
        ];
        let (dump, file) = read(&parts);
        assert_eq!(names_at(&dump, &file, 0x100a), ["old", "new"]);
        assert_eq!(names_at(&dump, &file, 0x300a), ["old"]);
        assert_eq!(dump.codes()[1].since_ns, 7);
    }

    /// Times of another clock than the kernel's say nothing.
    #[test]
    fn times_of_the_processor_are_not_used() {
        let (dump, _) = read(&[header(FLAG_ARCH_TIMESTAMP), load(5, 0x1000, 16, "one")]);
        assert_eq!(dump.codes()[0].since_ns, 0);
    }

    /// The line of an address is that of the last entry before it, of the load that follows the lines.
    #[test]
    fn lines_are_found_by_address() {
        let entries: [(u64, u64, &[u8]); 3] = [(0x1000, 3, b"/a.js"), (0x1010, 4, b"\xff"), (0x1008, 7, b"/b.js")];
        let parts = [
            header(0),
            lines(0x1000, &entries),
            load(1, 0x1000, 0x20, "f"),
            load(2, 0x1100, 8, "g"),
        ];
        let (dump, file) = read(&parts);
        let line = |code: usize, address| dump.line(&file, &dump.codes()[code], address);
        assert_eq!(line(0, 0x1007), Some(("/a.js".into(), 3)));
        assert_eq!(line(0, 0x100f), Some(("/b.js".into(), 7)));
        assert_eq!(line(0, 0x101f), Some(("/a.js".into(), 4)));
        assert_eq!(line(1, 0x1100), None);
    }

    /// V8's lines lie 64 bytes farther than its code, and its files are nothing to go by.
    #[test]
    fn lines_of_v8_are_found_where_its_code_is() {
        let entries: [(u64, u64, &[u8]); 2] = [(0x1044, 3, b"K\xed\x03\0\0"), (0x1058, 4, b"\0\x05/a\xff")];
        let name = "JS:*f /a b.js:12:21";
        let (dump, file) = read(&[header(0), lines(0x1000, &entries), load(1, 0x1000, 0x20, name)]);
        let line = |address| dump.line(&file, &dump.codes()[0], address);
        assert_eq!(line(0x1003), None);
        assert_eq!(line(0x1004), Some(("/a b.js".into(), 3)));
        assert_eq!(line(0x1018), Some(("/a b.js".into(), 4)));
    }

    /// Where entries have different lengths, their files are what they are.
    #[test]
    fn lines_that_only_look_like_v8s_are_read_as_they_are() {
        let entries: [(u64, u64, &[u8]); 2] = [(0x1044, 3, b"/a.js"), (0x1058, 4, b"/longer/b.js")];
        let (dump, file) = read(&[header(0), lines(0x1000, &entries), load(1, 0x1000, 0x20, "f")]);
        assert_eq!(
            dump.line(&file, &dump.codes()[0], 0x1018),
            Some(("/longer/b.js".into(), 4))
        );
    }

    #[test]
    fn the_file_of_a_v8_function_is_in_its_name() {
        let names = [
            "JS:~f /a.js:1:2",
            "JS:*f node:fs:1:2",
            "JS:*f file:///caf%C3%A9%20%/a.mjs:1:2",
            "RegExp:a b:c:d",
            "Builtin:Call",
            "f x:1",
            "",
        ];
        assert_eq!(
            names.map(v8_file),
            ["/a.js", "node:fs", "/café %/a.mjs", "", "", "", ""]
        );
    }

    /// The lines go with the code when it is moved.
    #[test]
    fn moved_code_keeps_its_lines() {
        let entries: [(u64, u64, &[u8]); 1] = [(0x1004, 3, b"/a.js")];
        let parts = [
            header(0),
            lines(0x1000, &entries),
            load(1, 0x1000, 16, "f"),
            moved(2, 0x1000, 0x5000),
        ];
        let (dump, file) = read(&parts);
        assert_eq!(dump.line(&file, &dump.codes()[1], 0x5006), Some(("/a.js".into(), 3)));
    }

    /// Unwinding information is that of the load behind it, without its header.
    #[test]
    fn unwinding_information_belongs_to_the_next_load() {
        let unwinding = record(UNWINDING, 0, &[&words(&[12, 4, 16])[..], b"eh_framehdr_pad_"].concat());
        let empty = record(UNWINDING, 0, &[&words(&[4, 4, 0])[..], b"hdr_"].concat());
        let parts = [
            header(0),
            unwinding,
            load(1, 0x1000, 13, "f"),
            empty,
            load(2, 0x2000, 8, "g"),
        ];
        let (dump, file) = read(&parts);
        assert_eq!(dump.eh_frame(&file, &dump.codes()[0]), Some((&b"eh_frame"[..], 16)));
        assert_eq!(dump.eh_frame(&file, &dump.codes()[1]), None);
    }

    /// What the process has written since is read the next time, and a file that it began anew from its start.
    #[test]
    fn a_growing_file_is_read_on() {
        let whole = [header(0), load(1, 0x1000, 16, "one"), load(2, 0x2000, 16, "two")].concat();
        let mut dump = JitDump::default();
        for end in 0..=whole.len() {
            dump.read(&whole[..end]).unwrap();
        }
        assert_eq!(dump.codes().len(), 2);
        let anew = [header(0), load(1, 0x3000, 16, "three")].concat();
        dump.read(&anew).unwrap();
        assert_eq!(dump.codes().len(), 1);
        assert_eq!(names_at(&dump, &anew, 0x3000), ["three"]);
    }

    /// Another file is refused; names are harmless; sizes that lie do no harm.
    #[test]
    fn hostile_files_do_no_harm() {
        assert!(JitDump::default().read(&[b'x'; 100]).is_err());
        let (dump, file) = read(&[header(0), load(1, 0x1000, 16, "\u{1b}[31mred\u{7}")]);
        assert_eq!(names_at(&dump, &file, 0x1000), ["[31mred"]);
        let wrapping = record(LOAD, 0, &words(&[0, 0, u64::MAX, 2, 0]));
        let stuck = [[LOAD, 0].map(u32::to_ne_bytes).concat(), vec![0; 8]].concat();
        let (dump, _) = read(&[
            header(0),
            record(LOAD, 0, b"short"),
            wrapping,
            stuck,
            load(1, 0x1000, 16, "f"),
        ]);
        assert!(
            dump.codes().is_empty(),
            "nothing is read behind a record that is shorter than itself"
        );
    }

    /// Any bytes in the place of others, anywhere, do no harm.
    #[test]
    fn damaged_files_do_no_harm() {
        let entries: [(u64, u64, &[u8]); 2] = [(0x1000, 3, b"/a.js"), (0x1010, 4, b"\xff")];
        let unwinding = record(UNWINDING, 0, &[&words(&[12, 4, 16])[..], b"eh_framehdr_pad_"].concat());
        let whole = [
            header(0),
            lines(0x1000, &entries),
            unwinding,
            load(1, 0x1000, 0x20, "f"),
            moved(2, 0x1000, 0),
        ]
        .concat();
        let mut random = Random::new(11);
        for _ in 0..2000 {
            let mut file = whole.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(file.len() as u32) as usize;
                file[at] = random.below(256) as u8;
            }
            let mut dump = JitDump::default();
            if dump.read(&file).is_err() {
                continue;
            }
            for code in dump.codes() {
                let _ = (dump.name(&file, code), dump.eh_frame(&file, code));
                let _ = dump.line(&file, code, code.start);
                let _ = dump.name(&file[..file.len() / 2], code);
            }
        }
    }
}
