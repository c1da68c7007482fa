//! From an instruction to its place in the source, by the table that a code object has for it: one format in 3.9, another
//! in 3.10, another since 3.11, each as `Objects/lnotab_notes.txt` or `Objects/locations.md` of its version has it.

use super::layout::Counted;

/// A unit of bytecode.
const UNIT_BYTES: i64 = 2;

/// Where an instruction is in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// None for what the compiler added.
    pub line: Option<u32>,
    /// The last line. Since 3.11, as what follows.
    pub end_line: Option<u32>,
    /// Bytes of UTF-8 before it in its line.
    pub column: Option<u32>,
    /// Bytes of UTF-8 before its end in the last line.
    pub end_column: Option<u32>,
}

impl Position {
    fn of_line(line: i64) -> Self {
        Self {
            line: u32::try_from(line).ok(),
            ..Self::default()
        }
    }
}

/// A code object's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) counted: Counted,
    pub(super) first_line: i32,
    pub(super) table: Vec<u8>,
}

impl Lines {
    /// The position of an instruction, as a frame says which it is at; a pointer as the distance from the code object.
    ///
    /// Before the first instruction, where a frame is that has not begun, it is the first line.
    pub(super) fn position(&self, instruction: i64) -> Position {
        let first = i64::from(self.first_line);
        let offset = match self.counted {
            Counted::Bytes => instruction,
            Counted::Units => instruction.saturating_mul(UNIT_BYTES),
            Counted::Pointer { bytecode } => instruction.saturating_sub(bytecode.into()),
        };
        if offset < 0 {
            return Position::of_line(first);
        }
        match self.counted {
            Counted::Bytes => Position::of_line(line_3_9(&self.table, first, offset)),
            Counted::Units => line_3_10(&self.table, first, offset)
                .map(Position::of_line)
                .unwrap_or_default(),
            Counted::Pointer { .. } => position_3_11(&self.table, first, offset).unwrap_or_default(),
        }
    }
}

/// `co_lnotab`: pairs of bytes, by how much the address grows and then the line changes. The last line holds to the end.
fn line_3_9(table: &[u8], first: i64, offset: i64) -> i64 {
    let (mut line, mut address) = (first, 0);
    for [bytes, change] in table.as_chunks().0 {
        address += i64::from(*bytes);
        if address > offset {
            break;
        }
        line += i64::from(*change as i8);
    }
    line
}

/// `co_linetable`: pairs of bytes, by how much the line changes for so many bytes; -128 for none.
fn line_3_10(table: &[u8], first: i64, offset: i64) -> Option<i64> {
    let (mut line, mut end) = (first, 0);
    for [bytes, change] in table.as_chunks().0 {
        let change = *change as i8;
        let has_line = change != i8::MIN;
        if has_line {
            line += i64::from(change);
        }
        end += i64::from(*bytes);
        if offset < end {
            return has_line.then_some(line);
        }
    }
    None
}

/// `co_linetable`: entries that begin with `1|kind:4|units-1:3`.
fn position_3_11(table: &[u8], first: i64, offset: i64) -> Option<Position> {
    let (mut entries, mut line, mut end) = (Entries(table), first, 0);
    while let Some(entry) = entries.next() {
        line += entry.line_change;
        end += entry.units * UNIT_BYTES;
        if offset < end {
            return entry.has_line.then(|| entry.position(line));
        }
    }
    None
}

/// What an entry says, its lines as changes.
#[derive(Default)]
struct Entry {
    units: i64,
    has_line: bool,
    line_change: i64,
    /// Only where there are columns.
    end_line_change: Option<i64>,
    column: Option<u32>,
    end_column: Option<u32>,
}

impl Entry {
    fn set_columns(&mut self, column: u32, end_column: u32) {
        self.column = Some(column);
        self.end_column = Some(end_column);
    }

    fn position(&self, line: i64) -> Position {
        Position {
            line: u32::try_from(line).ok(),
            end_line: u32::try_from(line + self.end_line_change.unwrap_or(0)).ok(),
            column: self.column,
            end_column: self.end_column,
        }
    }
}

/// Kinds of entries; those below `ONE_LINE` are short: the kind is the upper part of the column.
const ONE_LINE: u8 = 10;
const NO_COLUMNS: u8 = 13;
const LONG: u8 = 14;
const NO_LINE: u8 = 15;

/// What is left of a table. It ends early where it is damaged.
struct Entries<'t>(&'t [u8]);

impl Entries<'_> {
    fn next(&mut self) -> Option<Entry> {
        let head = self.byte()?;
        let kind = head >> 3 & 15;
        let mut entry = Entry {
            units: i64::from(head & 7) + 1,
            has_line: kind != NO_LINE,
            ..Entry::default()
        };
        match kind {
            ..ONE_LINE => {
                let columns = self.byte()?;
                let column = u32::from(kind) << 3 | u32::from(columns >> 4 & 7);
                entry.set_columns(column, column + u32::from(columns & 15));
            }
            ONE_LINE..NO_COLUMNS => {
                entry.line_change = i64::from(kind - ONE_LINE);
                let (column, end_column) = (self.byte()?, self.byte()?);
                entry.set_columns(column.into(), end_column.into());
            }
            NO_COLUMNS => entry.line_change = self.signed()?,
            LONG => {
                entry.line_change = self.signed()?;
                entry.end_line_change = Some(self.unsigned()?.into());
                entry.column = self.unsigned()?.checked_sub(1);
                entry.end_column = self.unsigned()?.checked_sub(1);
            }
            _ => {}
        }
        Some(entry)
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    /// 6 bits a byte, the lowest first; the seventh says that more follow.
    fn unsigned(&mut self) -> Option<u32> {
        let mut value = 0_u32;
        for shift in (0..32).step_by(6) {
            let byte = self.byte()?;
            value |= u32::from(byte & 63) << shift;
            if byte & 64 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The sign is the lowest bit.
    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        let magnitude = i64::from(value >> 1);
        Some(if value & 1 == 0 { magnitude } else { -magnitude })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const BYTECODE: u16 = 184;

    fn lines(counted: Counted, table: &[u8]) -> Lines {
        Lines {
            counted,
            first_line: 10,
            table: table.to_vec(),
        }
    }

    fn pointers(table: &[u8]) -> Lines {
        lines(Counted::Pointer { bytecode: BYTECODE }, table)
    }

    fn at(line: u32, end_line: u32, column: u32, end_column: u32) -> Position {
        Position {
            line: Some(line),
            end_line: Some(end_line),
            column: Some(column),
            end_column: Some(end_column),
        }
    }

    /// The example of CPython's own notes: addresses 0, 6, 50, 350, 361 have lines 1, 2, 7, 207, 208.
    #[test]
    fn tables_of_3_9_are_read_as_its_notes_say() {
        let table = [6, 1, 44, 5, 255, 0, 45, 127, 0, 73, 11, 1];
        let lines = Lines {
            first_line: 1,
            ..lines(Counted::Bytes, &table)
        };
        let found = [0, 5, 6, 49, 50, 349, 350, 360, 361, 400].map(|byte| lines.position(byte).line.unwrap());
        assert_eq!(found, [1, 1, 2, 2, 7, 7, 207, 207, 208, 208]);
    }

    /// Instructions are counted in units, lines may go back, and some instructions have none.
    #[test]
    fn tables_of_3_10_have_ranges() {
        let lines = lines(Counted::Units, &[4, 1, 2, 0x80, 0, 5, 6, 0xfe]);
        let found = [-1, 0, 1, 2, 3, 5, 6].map(|unit| lines.position(unit).line);
        assert_eq!(found, [Some(10), Some(11), Some(11), None, Some(14), Some(14), None]);
    }

    /// Each kind of entry gives what `co_positions()` gives.
    #[test]
    fn tables_of_3_11_have_columns() {
        let table = [
            0x80 | 2 << 3,
            0x35, // 1 unit, columns 19 to 24
            0x80 | 11 << 3 | 1,
            4,
            200, // 2 units, next line
            0x80 | 13 << 3,
            3, // 1 unit, line before, no columns
            0x80 | 14 << 3,
            4,
            3,
            5,
            66,
            1,              // 1 unit, 2 lines on, to 3 lines further, columns 4 to 65
            0x80 | 15 << 3, // 1 unit, no line
        ];
        let lines = pointers(&table);
        let position = |unit: i64| lines.position(i64::from(BYTECODE) + 2 * unit);
        assert_eq!(position(-1), Position::of_line(10));
        assert_eq!(position(0), at(10, 10, 19, 24));
        assert_eq!(position(1), at(11, 11, 4, 200));
        assert_eq!(position(2), at(11, 11, 4, 200));
        let without = Position {
            end_line: Some(10),
            ..Position::of_line(10)
        };
        assert_eq!(position(3), without);
        assert_eq!(position(4), at(12, 15, 4, 65));
        assert_eq!(position(5), Position::default());
        assert_eq!(position(6), Position::default());
    }

    /// Any bytes give some position, for any instruction.
    #[test]
    fn damaged_tables_do_no_harm() {
        let mut random = Random::new(11);
        for round in 0..20_000 {
            let table: Vec<u8> = (0..random.below(40)).map(|_| random.next() as u8).collect();
            let counted = [Counted::Bytes, Counted::Units, Counted::Pointer { bytecode: BYTECODE }][round % 3];
            let mut lines = lines(counted, &table);
            lines.first_line = random.next() as i32;
            for instruction in [i64::MIN, -1, 0, 7, random.next() as i64, i64::MAX] {
                let _ = lines.position(instruction);
            }
        }
    }
}
