//! `/proc/PID/maps`: what a process has mapped, and where.
//!
//! ```text
//! 55d0c8a00000-55d0c8a2c000 r-xp 00002000 fe:01 1311 /usr/bin/app (deleted)
//! └─ start     └─ end       │    │        │     │    └─ path, newlines as \012; empty: anonymous
//!                           │    │        │     └─ inode
//!                           │    │        └─ device, major:minor in hexadecimal
//!                           │    └─ offset in the file
//!                           └─ permissions
//! ```

use crate::address::{FileOffset, ProcessAddr};

/// A line's bytes before its path take less than 100; a path has 4,096, each of which may be escaped to four.
const MAX_LINE_BYTES: usize = 100 + 4 * 4096;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// First address.
    pub start: ProcessAddr,
    /// First address after it.
    pub end: ProcessAddr,
    /// Whether the process may execute it.
    pub executable: bool,
    /// Where in the file it begins.
    pub file_offset: FileOffset,
    /// (major, minor) of the file's device.
    pub device: (u32, u32),
    /// The file's inode; 0: no file.
    pub inode: u64,
    /// As the process sees it; a name in brackets, or empty, where there is no file.
    pub path: String,
    /// Whether the file had no name any more.
    pub deleted: bool,
}

/// Read all lines; those that make no sense are left out.
pub fn parse_maps(text: &[u8]) -> impl Iterator<Item = Map> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line)
}

fn parse_line(line: &[u8]) -> Option<Map> {
    if line.len() > MAX_LINE_BYTES {
        return None;
    }
    let mut rest = line;
    let (start, end) = split_once(next_field(&mut rest)?, b'-')?;
    let permissions = next_field(&mut rest)?;
    let file_offset = parse_number(next_field(&mut rest)?, 16)?;
    let (major, minor) = split_once(next_field(&mut rest)?, b':')?;
    let inode = parse_number(next_field(&mut rest)?, 10)?;
    let path = rest.trim_ascii_start();
    let name = path.strip_suffix(b" (deleted)");
    let map = Map {
        start: ProcessAddr(parse_number(start, 16)?),
        end: ProcessAddr(parse_number(end, 16)?),
        executable: *permissions.get(2)? == b'x',
        file_offset: FileOffset(file_offset),
        device: (
            parse_number(major, 16)?.try_into().ok()?,
            parse_number(minor, 16)?.try_into().ok()?,
        ),
        inode,
        path: unescape(name.unwrap_or(path)),
        deleted: name.is_some(),
    };
    (map.start < map.end).then_some(map)
}

fn next_field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let text = rest.trim_ascii_start();
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    *rest = &text[end..];
    (end > 0).then_some(&text[..end])
}

fn split_once(field: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = field.iter().position(|&byte| byte == separator)?;
    Some((&field[..at], &field[at + 1..]))
}

fn parse_number(digits: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u64::from_str_radix(text, radix).ok()
}

/// The kernel escapes newlines only, not the backslash itself.
///
/// Source: `seq_path(m, file, "\n")` in fs/proc/task_mmu.c
fn unescape(path: &[u8]) -> String {
    String::from_utf8_lossy(path).replace("\\012", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "55d0c8a00000-55d0c8a2c000 r-xp 00002000 fe:01 1311      /usr/bin/app (deleted)";

    fn parse(text: &str) -> Vec<Map> {
        parse_maps(text.as_bytes()).collect()
    }

    /// Each field of a line arrives.
    #[test]
    fn a_line_has_all_its_fields() {
        let expected = Map {
            start: ProcessAddr(0x55d0_c8a0_0000),
            end: ProcessAddr(0x55d0_c8a2_c000),
            executable: true,
            file_offset: FileOffset(0x2000),
            device: (0xfe, 1),
            inode: 1311,
            path: "/usr/bin/app".into(),
            deleted: true,
        };
        assert_eq!(parse(LINE), [expected]);
    }

    /// Blanks and newlines in a path survive; what has no path has an empty one.
    #[test]
    fn odd_paths_survive() {
        let paths: Vec<String> = parse(
            "1-2 rw-p 0 00:00 0\n2-3 r-xp 0 00:00 0 \n3-4 r--p 0 fe:01 9 /a b/c\\012d\n4-5 r-xp 0 00:00 0   [vdso]",
        )
        .into_iter()
        .map(|map| map.path)
        .collect();
        assert_eq!(paths, ["", "", "/a b/c\nd", "[vdso]"]);
    }

    /// A line cut anywhere is left out or loses the end of its path, and the others stay.
    #[test]
    fn truncated_lines_do_no_harm() {
        for end in 0..LINE.len() {
            let maps = parse(&format!("{}\n{LINE}", &LINE[..end]));
            assert_eq!(maps.last(), parse(LINE).last());
            assert!(maps.iter().all(|map| LINE.contains(&map.path)));
        }
    }

    /// Nonsense, backwards ranges and endless lines are left out.
    #[test]
    fn nonsense_is_left_out() {
        let endless = format!("1-2 r-xp 0 0:0 0 /{}", "x".repeat(MAX_LINE_BYTES));
        for line in [
            "",
            "-",
            "2-1 r-xp 0 0:0 0",
            "+1-2 r-xp 0 0:0 0",
            "1-2 r-",
            "1-2 r-xp 0 00 0",
            "\0\u{ff}",
            &endless,
        ] {
            assert_eq!(parse(line), [], "{line}");
        }
    }

    /// The kernel's own text for this process is understood line by line.
    #[test]
    fn our_own_maps_are_read() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        let maps: Vec<Map> = parse_maps(&text).collect();
        assert_eq!(
            maps.len(),
            text.split(|&byte| byte == b'\n')
                .filter(|line| !line.is_empty())
                .count()
        );
        let here = ProcessAddr(our_own_maps_are_read as *const () as u64);
        assert!(
            maps.iter()
                .any(|map| map.executable && map.start <= here && here < map.end && map.inode != 0)
        );
    }
}
