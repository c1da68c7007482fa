//! Names, lines and inlined functions of Go programs, from Go's own table, which `strip` and `go build -ldflags=-s -w`
//! leave in.

use super::symbols::Named;
use crate::image::Image;
use crate::pclntab::{Function, InlineTrees, Inlined, Pclntab};

/// Functions that are inlined into each other; Go's compiler stops sooner.
const MAX_INLINED: usize = 64;

/// Entries of pc tables to go through for one request, which takes a second: some dozens are passed on the way to an
/// address, and a thousand in the largest functions that Go's own tools generate.
const MAX_STEPS: u64 = 1 << 28;

/// What a Go program says of its code.
pub(super) struct GoNames<'f> {
    table: Pclntab<'f>,
    trees: Option<InlineTrees<'f>>,
    lines: bool,
    steps_left: u64,
}

impl<'f> GoNames<'f> {
    /// None when it is no Go program. `lines`: whether lines and inlined functions are of interest.
    pub(super) fn find(image: &Image<'f>, lines: bool) -> Option<Self> {
        let table = Pclntab::find(image)?;
        let trees = lines.then(|| table.inline_trees(image)).flatten();
        Some(Self {
            table,
            trees,
            lines,
            steps_left: MAX_STEPS,
        })
    }

    /// For each address the functions there, innermost first.
    pub(super) fn names_at(&mut self, addresses: &[u64]) -> Vec<Vec<Named>> {
        let functions = addresses.iter().map(|&address| self.functions_at(address));
        functions.map(Option::unwrap_or_default).collect()
    }

    fn functions_at(&mut self, address: u64) -> Option<Vec<Named>> {
        let function = self.table.function_at(address)?;
        let name = self.table.name(&function)?;
        let mut functions = Vec::new();
        let mut place = address;
        while functions.len() < MAX_INLINED
            && let Some(inlined) = self.inlined_at(&function, place)
        {
            functions.push(self.named(inlined.name, &function, place));
            place = inlined.call;
        }
        functions.push(Named {
            start: function.addresses.start,
            size: function.addresses.end - function.addresses.start,
            ..self.named(name, &function, place)
        });
        Some(functions)
    }

    fn inlined_at(&mut self, function: &Function, address: u64) -> Option<Inlined<'f>> {
        let trees = self.trees?;
        self.table.inlined_at(&trees, function, address, &mut self.steps_left)
    }

    /// A function with the line that it is at, if lines are of interest.
    fn named(&mut self, name: &[u8], function: &Function, address: u64) -> Named {
        let line = || self.table.line_at(function, address, &mut self.steps_left);
        let (file, line) = self.lines.then(line).flatten().unwrap_or_default();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Named {
            name: text(name),
            file: text(file),
            line,
            ..Named::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf_writer::{CODE, File, X86_64};
    use crate::random::Random;

    const MAGICS: [u32; 4] = [0xffff_fffb, 0xffff_fffa, 0xffff_fff0, 0xffff_fff1];
    const GO_1_2: u32 = MAGICS[0];
    const GO_1_16: u32 = MAGICS[1];
    const GO_1_20: u32 = MAGICS[3];

    const NAMES: &[u8] = b"\0main.work\0main.main\0main.tiny\0";
    const FILES: &[u8] = b"\0/src/work.go\0/src/tiny.go\0";
    const TINY: u32 = 21;

    /// Before Go 1.18.
    fn is_old(magic: u32) -> bool {
        magic == GO_1_2 || magic == GO_1_16
    }

    fn halves(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn words(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// Tables behind each other, and where each begins. A table says (value, for how many bytes of code).
    fn pc_tables(tables: &[&[(i32, u8)]]) -> (Vec<u8>, Vec<u32>) {
        let (mut bytes, mut offsets) = (vec![0], Vec::new());
        for table in tables {
            offsets.push(bytes.len() as u32);
            let mut before = -1;
            for (value, code_bytes) in *table {
                let change = value - before;
                bytes.extend([(change << 1 ^ change >> 31) as u8, *code_bytes]);
                before = *value;
            }
            bytes.push(0);
        }
        (bytes, offsets)
    }

    /// What is said of a function: its name, tables of files, lines and inlined calls, and its tree of those.
    fn said(magic: u32, start: u32, name: u32, [files, lines, inlined]: [u32; 3]) -> Vec<u8> {
        let start = if is_old(magic) {
            words(&[CODE + u64::from(start)])
        } else {
            halves(&[start])
        };
        let unit: &[u32] = if magic == GO_1_2 { &[] } else { &[0] };
        let line: &[u32] = if magic == GO_1_20 { &[9] } else { &[] };
        let body = [&[name, 0, 0, 0, files, lines, 3][..], unit, line].concat();
        let more = [0, 0, inlined, u32::MAX, u32::MAX, u32::MAX, 0];
        [start, halves(&body), vec![0, 0, 0, 4], halves(&more)].concat()
    }

    /// `main.work` of 32 bytes, 8 of them of `main.tiny`, and `main.main` of as many, as this version writes them.
    fn pclntab(magic: u32) -> Vec<u8> {
        let first = i32::from(magic == GO_1_2);
        let (tables, at) = pc_tables(&[
            &[(first, 8), (first + 1, 8), (first, 16)],
            &[(12, 8), (30, 8), (13, 16)],
            &[(-1, 8), (0, 8), (-1, 16)],
            &[(first, 32)],
            &[(20, 32)],
        ]);
        let head = [&magic.to_le_bytes()[..], &[0, 0, 1, 8]].concat();
        if magic == GO_1_2 {
            return pclntab_of_go_1_2(head, &tables, &at);
        }
        let functions = [
            said(magic, 0, 1, [at[0], at[1], at[2]]),
            said(magic, 32, 11, [at[3], at[4], 0]),
        ];
        let number_bytes = if magic == GO_1_16 { 8 } else { 4 };
        let (base, second) = (5 * number_bytes, 5 * number_bytes + functions[0].len() as u64);
        let starts = if magic == GO_1_16 {
            words(&[CODE, base, CODE + 32, second, CODE + 64])
        } else {
            halves(&[0, base as u32, 32, second as u32, 64])
        };
        let parts = [
            NAMES,
            &halves(&[1, 14]),
            FILES,
            &tables,
            &[starts, functions.concat()].concat(),
        ];
        let front: &[u64] = if magic == GO_1_16 { &[2, 2] } else { &[2, 2, 0] };
        let mut next = 8 + 8 * (front.len() + parts.len()) as u64;
        let offsets = parts.map(|part| {
            next += part.len() as u64;
            next - part.len() as u64
        });
        [head, words(front), words(&offsets), parts.concat()].concat()
    }

    /// Everything counts from the beginning of the table.
    fn pclntab_of_go_1_2(head: Vec<u8>, tables: &[u8], at: &[u32]) -> Vec<u8> {
        const STARTS_END: u32 = 8 + 8 + 5 * 8 + 4;
        let names_at = STARTS_END;
        let file_names_at = names_at + NAMES.len() as u32;
        let tables_at = file_names_at + FILES.len() as u32;
        let files_at = tables_at + tables.len() as u32;
        let functions_at = files_at + 12;
        let table = |index: usize| tables_at + at[index];
        let functions = [
            said(GO_1_2, 0, names_at + 1, [table(0), table(1), 0]),
            said(GO_1_2, 32, names_at + 11, [table(3), table(4), 0]),
        ];
        let second = u64::from(functions_at) + functions[0].len() as u64;
        let starts = words(&[2, CODE, functions_at.into(), CODE + 32, second, CODE + 64]);
        let files = halves(&[3, file_names_at + 1, file_names_at + 14]);
        let parts = [&head[..], &starts, &halves(&[files_at]), NAMES, FILES, tables, &files];
        [parts.concat(), functions.concat()].concat()
    }

    /// A Go program without a symbol table.
    fn program(magic: u32) -> File {
        program_with(magic, if magic == GO_1_20 { 40 } else { 38 }, false)
    }

    /// The same, whose module says at this word where inlined functions are told, and behind that where the table ends.
    fn program_with(magic: u32, field: usize, says_end: bool) -> File {
        let tree = if magic == GO_1_20 {
            halves(&[0, TINY, 7, 28])
        } else {
            halves(&[0, 0, 0, TINY, 7])
        };
        let file = File::new(X86_64, 64);
        let table = file.next_address();
        let file = file.with(".gopclntab", |_| pclntab(magic));
        let end = file.next_address();
        let file = file.with(".rodata", |_| vec![0; 8]);
        let trees = file.next_address();
        let mut module = vec![0; field + 2];
        (module[0], module[20], module[22], module[field]) = (table, CODE, CODE, trees);
        module[field + 1] = if says_end { end } else { 0 };
        file.with(".go.func", |_| tree).with(".data", |_| words(&module))
    }

    /// `name file:line` of the functions at an offset of the code, innermost first.
    fn at(file: &File, offset: u64, lines: bool) -> Vec<String> {
        let bytes = file.bytes();
        let mut names = GoNames::find(&Image::parse(&bytes).unwrap(), lines).expect("a Go program");
        let found = names.names_at(&[CODE + offset]).pop().unwrap();
        let text = |one: &Named| format!("{} {}:{}", one.name, one.file, one.line);
        found.iter().map(text).collect()
    }

    /// Names and lines are found in the tables of all versions of Go.
    #[test]
    fn functions_have_names_and_lines() {
        for magic in MAGICS {
            let program = program(magic);
            assert_eq!(at(&program, 0, true), ["main.work /src/work.go:12"], "{magic:#x}");
            assert_eq!(at(&program, 31, true), ["main.work /src/work.go:13"]);
            assert_eq!(at(&program, 32, true), ["main.main /src/work.go:20"]);
            assert_eq!(at(&program, 63, false), ["main.main :0"]);
            assert!(at(&program, 64, true).is_empty());
        }
    }

    /// What was inlined comes first, with its own line; its caller has the line of the call.
    #[test]
    fn inlined_functions_come_innermost_first() {
        for magic in MAGICS {
            let expected: &[&str] = if is_old(magic) {
                &["main.work /src/tiny.go:30"] // told in a way that is not read here
            } else {
                &["main.tiny /src/tiny.go:30", "main.work /src/work.go:12"]
            };
            assert_eq!(at(&program(magic), 15, true), expected, "{magic:#x}");
            assert_eq!(at(&program(magic), 8, false), ["main.work :0"]);
        }
    }

    /// Go 1.26 says where its table ends, and later versions have more fields before that.
    #[test]
    fn inlined_functions_are_found_wherever_the_module_says_it() {
        for field in [40, 43] {
            let program = program_with(GO_1_20, field, true);
            assert_eq!(at(&program, 8, true).len(), 2, "{field}");
        }
        assert_eq!(
            at(&program_with(GO_1_20, 43, false), 8, true),
            ["main.work /src/tiny.go:30"]
        );
    }

    /// A function says where it begins and ends; one that was inlined has no place of its own.
    #[test]
    fn functions_have_their_extent() {
        let bytes = program(GO_1_20).bytes();
        let mut names = GoNames::find(&Image::parse(&bytes).unwrap(), true).unwrap();
        let found = names.names_at(&[CODE + 8]).pop().unwrap();
        let extents: Vec<_> = found.iter().map(|one| (one.start, one.size)).collect();
        assert_eq!(extents, [(0, 0), (CODE, 32)]);
    }

    /// A tree whose call is in itself ends, and so does a search that would go on for ever.
    #[test]
    fn hostile_trees_end() {
        let mut program = program(GO_1_20);
        program.sections[2].2[8] = 9; // the call is where the inlined function is
        assert_eq!(at(&program, 9, true).len(), MAX_INLINED + 1);
        let bytes = program.bytes();
        let mut names = GoNames::find(&Image::parse(&bytes).unwrap(), true).unwrap();
        names.steps_left = 10;
        let found = names.names_at(&[CODE + 9, CODE + 9]);
        assert_eq!(
            found[1].last().map(|one| (&*one.name, one.line)),
            Some(("main.work", 0))
        );
    }

    /// A table with any bytes changed names something, or nothing.
    #[test]
    fn damaged_tables_do_no_harm() {
        let mut random = Random::new(13);
        for round in 0..20_000 {
            let mut file = program(MAGICS[round % MAGICS.len()]);
            let table = &mut file.sections[0].2;
            for _ in 0..3 {
                let at = random.below(table.len() as u32) as usize;
                table[at] = random.next() as u8;
            }
            let bytes = file.bytes();
            if let Some(mut names) = GoNames::find(&Image::parse(&bytes).unwrap(), true) {
                names.names_at(&[CODE, CODE + 9, CODE + 40, u64::MAX]);
            }
        }
    }
}
