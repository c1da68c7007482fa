//! From locations to lines: each unique location once, batched by object.
//!
//! A miss is data: it keeps its reason in `locations.reason`.

mod compressed;
mod debug_files;
mod demangle;
mod file;
mod functions;
mod go;
mod linkage;
mod lookup;
mod pool;
mod raw_names;
mod resolver;
mod sections;
mod symbols;

use std::cmp::Reverse;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::guard::guarded;
use crate::image::Image;
use crate::perfmap::Entry;
use crate::profile::Profile;
use crate::python::Code;
use crate::rows::{LocationId, ObjectId, ObjectKind};

pub use debug_files::DebugDirs;
use debug_files::{DebugFiles, Wanted};
pub use file::{FoundFunction, SymbolFile};
pub(crate) use functions::{Functions, LineRow};
use go::GoNames;
use pool::Job;
pub(crate) use pool::Pool;
use symbols::{Named, Symbols};

/// The build-id of a file, in hexadecimal digits, whoever made the file.
pub fn build_id(path: &Path) -> Option<String> {
    guarded(|| debug_files::build_id(path)).flatten()
}

/// What an ELF file's own tables say that are read here and not by blazesym: linkage tables, then Go's. For each address
/// the functions there, innermost first; none where these tables know none.
pub fn names_in(file: &[u8], addresses: &[u64]) -> Vec<Vec<String>> {
    let Ok(image) = Image::parse(file) else {
        return vec![Vec::new(); addresses.len()];
    };
    let mut found = linkage::names_at(&image, addresses);
    found.resize_with(addresses.len(), Vec::new);
    if let Some(mut go) = GoNames::find(&image, true) {
        let unknown = found.iter_mut().zip(go.names_at(addresses));
        unknown.for_each(|(found, functions)| found.extend(functions));
    }
    let names = |functions: Vec<Named>| functions.into_iter().map(|function| function.name).collect();
    found.into_iter().map(names).collect()
}

/// Where the symbols of a profile's objects are to be had.
pub trait Sources {
    /// The source for these addresses of one object, which are in increasing order. Paths in it must stay valid until
    /// [`Profile::symbolize`] returns.
    fn source(&mut self, object: ObjectId, addresses: &[u64]) -> Source;
}

/// Where one object's symbols are to be had.
#[derive(Clone, Debug)]
pub enum Source {
    /// An ELF file.
    Elf {
        /// Where to read it: its real path, or `/proc/self/fd/N` for a file that is held open.
        path: PathBuf,
        /// The directory that the file is, or was, in, when `path` does not say it.
        origin: Option<PathBuf>,
    },
    /// The running kernel, or one of its modules.
    Kernel {
        /// A file like /proc/kallsyms.
        kallsyms: PathBuf,
        /// The kernel's ELF file with debug information, for lines.
        vmlinux: Option<PathBuf>,
        /// The run-time address of the object's address 0.
        base: u64,
    },
    /// What is at each of the addresses.
    Found(Vec<Option<Entry>>),
    /// What is at each of the addresses, made at run time; and why the others have no name.
    Made(Vec<Option<Made>>, &'static str),
    /// One name for every address.
    Named(String),
    /// A Python code object; addresses are as its frames say them.
    Python(Arc<Code>),
    /// The same where it awaits: its functions are marked as such.
    Awaiting(Arc<Code>),
    /// No symbols, and why.
    Missing(String),
}

/// An object whose separate debug file would say more than is to be had on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingDebugFile {
    /// Of the object, and of its debug file: in hexadecimal digits.
    pub build_id: String,
    /// Of the object.
    pub path: String,
}

/// Code that was made at run time, as its process describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The function.
    pub entry: Entry,
    /// Of its source; empty: unknown.
    pub file: String,
    /// In that file; 0: unknown.
    pub line: u32,
}

impl Profile {
    /// Where separate debug files may be.
    pub fn set_debug_dirs(&mut self, dirs: DebugDirs) {
        self.pool = Pool::new(dirs);
    }

    /// The files whose debug files [`Profile::symbolize`] would look for and not find, those with the most locations
    /// first.
    pub fn missing_debug_files(&self, sources: &mut dyn Sources, lines: bool) -> Vec<MissingDebugFile> {
        let debug_files = DebugFiles::new(self.pool.debug_dirs().clone());
        let batches = self.batches(self.unsymbolized());
        let objects = batches.iter().map(|(object, _)| *object);
        let files = objects.filter(|object| self.objects.kind[object.index()] == ObjectKind::Elf);
        files
            .filter_map(|object| {
                let Source::Elf { path, origin } = sources.source(object, &[]) else {
                    return None;
                };
                let wanted = Wanted {
                    path: &path,
                    origin: origin.as_deref(),
                    name: self.file_name(object),
                    lines,
                };
                let build_id = guarded(|| debug_files.missing(wanted)).flatten()?;
                let path = self.objects.path[object.index()].to_string();
                Some(MissingDebugFile { build_id, path })
            })
            .collect()
    }

    fn file_name(&self, object: ObjectId) -> &OsStr {
        Path::new(&self.objects.path[object.index()])
            .file_name()
            .unwrap_or_default()
    }

    /// Find the names of every location that has no line and no reason yet; with `lines` also source lines and
    /// inlined functions.
    pub fn symbolize(&mut self, sources: &mut dyn Sources, lines: bool) {
        let fresh = self.unsymbolized();
        let batches = self.batches(fresh.clone());
        let mut rows = Vec::with_capacity(fresh.len());
        let mut asked: Vec<(ObjectId, &[LocationId])> = Vec::new();
        for (object, locations) in &batches {
            let address = |location: &LocationId| self.locations.address[location.index()].0;
            let addresses: Vec<u64> = locations.iter().map(address).collect();
            let source = sources.source(*object, &addresses);
            let parts = match source {
                Source::Elf { .. } => pool::parts(addresses.len(), lines),
                Source::Kernel { .. } => 1,
                _ => {
                    let symbols = Symbols::without_files(source, &addresses);
                    self.note(*object, locations, symbols, &mut rows);
                    continue;
                }
            };
            let size = addresses.len().div_ceil(parts);
            for (part, (locations, addresses)) in locations.chunks(size).zip(addresses.chunks(size)).enumerate() {
                let name = self.file_name(*object).to_owned();
                self.pool.ask(Job {
                    number: asked.len(),
                    object: *object,
                    part: (parts > 1).then_some(part),
                    name,
                    source: source.clone(),
                    addresses: addresses.to_vec(),
                    lines,
                });
                asked.push((*object, locations));
            }
        }
        while let Some((job, symbols)) = self.pool.answer() {
            let (object, locations) = asked[job];
            self.note(object, locations, symbols, &mut rows);
        }
        self.symbolized = fresh.end;
        self.lines.extend(by_location(&rows, fresh));
    }

    /// The locations of each object in the order of their addresses, objects with the most of them first.
    fn batches(&self, fresh: Range<usize>) -> Vec<(ObjectId, Vec<LocationId>)> {
        let key = |row: usize| {
            (
                self.locations.object[row],
                self.locations.address[row],
                LocationId(row as u32),
            )
        };
        let mut locations: Vec<_> = fresh.map(key).collect();
        locations.sort_unstable();
        let same_object = locations.chunk_by(|one, other| one.0 == other.0);
        let ids = |batch: &[(_, _, LocationId)]| batch.iter().map(|location| location.2).collect();
        let mut batches: Vec<(ObjectId, Vec<LocationId>)> = same_object.map(|batch| (batch[0].0, ids(batch))).collect();
        batches.sort_by_key(|(_, locations)| Reverse(locations.len()));
        batches
    }

    fn note(&mut self, object: ObjectId, locations: &[LocationId], symbols: Symbols, rows: &mut Vec<LineRow>) {
        let ids: Vec<_> = symbols
            .functions
            .into_iter()
            .map(|function| self.functions.intern(object, function))
            .collect();
        rows.extend(symbols.frames.into_iter().map(|frame| LineRow {
            location: locations[frame.address as usize],
            depth: frame.depth,
            function: ids[frame.function as usize],
            line: frame.line,
            column: frame.column,
        }));
        let misses = symbols
            .misses
            .into_iter()
            .map(|(address, reason)| (locations[address as usize], reason));
        self.locations.reason.extend(misses);
    }
}

/// The rows in the order of their locations, which are in `locations`; a location's own keep their order.
fn by_location(rows: &[LineRow], locations: Range<usize>) -> Vec<LineRow> {
    let mut next = vec![0; locations.len() + 1];
    for row in rows {
        next[row.location.index() - locations.start + 1] += 1;
    }
    for location in 0..locations.len() {
        next[location + 1] += next[location];
    }
    let mut ordered = rows.to_vec();
    for row in rows {
        let slot = &mut next[row.location.index() - locations.start];
        ordered[*slot] = *row;
        *slot += 1;
    }
    ordered
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::hint::black_box;

    use arrow_array::{Array, RecordBatch, StringArray, UInt16Array, UInt32Array};

    use super::*;
    use crate::address::{FileOffset, ObjectAddr, ProcessAddr};
    use crate::elf::Elf;
    use crate::maps::parse_maps;
    use crate::rows::ObjectKind;

    #[inline(always)]
    fn innermost(value: u64) -> u64 {
        black_box(value).rotate_left(7) ^ black_box(3)
    }

    #[inline(always)]
    fn between(value: u64) -> u64 {
        innermost(value).wrapping_mul(black_box(5))
    }

    #[inline(never)]
    fn outermost(value: u64) -> u64 {
        between(value).wrapping_add(black_box(11))
    }

    struct Same(Source);

    impl Sources for Same {
        fn source(&mut self, _object: ObjectId, _addresses: &[u64]) -> Source {
            self.0.clone()
        }
    }

    fn ourselves() -> Source {
        Source::Elf {
            path: std::env::current_exe().unwrap(),
            origin: None,
        }
    }

    /// Where an address of this process is in its own program.
    fn object_addr(address: u64) -> ObjectAddr {
        let text = fs::read("/proc/self/maps").unwrap();
        let map = parse_maps(&text)
            .find(|map| map.start.0 <= address && address < map.end.0)
            .unwrap();
        let offset = FileOffset(map.file_offset.0 + (address - ProcessAddr(map.start.0).0));
        let file = fs::read(std::env::current_exe().unwrap()).unwrap();
        Elf::parse(&file[..4096]).unwrap().object_addr(offset).unwrap()
    }

    /// The profile of one object with these addresses, symbolized.
    fn symbolized(kind: ObjectKind, addresses: &[u64], source: Source, lines: bool) -> Profile {
        let mut profile = Profile::default();
        let object = profile.object(kind, "/a/b", &[]);
        for &address in addresses {
            profile.location(object, ObjectAddr(address));
        }
        profile.symbolize(&mut Same(source), lines);
        profile
    }

    #[test]
    fn a_file_that_is_looked_up_in_parts_says_the_same() {
        let first = object_addr(outermost as *const () as u64).0;
        let addresses: Vec<u64> = (0..600).map(|step| first + 16 * step).collect();
        let together = symbolized(ObjectKind::Elf, &addresses, ourselves(), true);
        let mut apart = Profile::default();
        let object = apart.object(ObjectKind::Elf, "/a/b", &[]);
        for some in addresses.chunks(100) {
            for &address in some {
                apart.location(object, ObjectAddr(address));
            }
            apart.symbolize(&mut Same(ourselves()), true);
        }
        let lines = |profile: &Profile| column::<UInt32Array>(&table(profile, "lines"), "line").clone();
        assert!(lines(&together).len() > 600);
        assert_eq!(lines(&together), lines(&apart));
        assert_eq!(names(&together), names(&apart));
    }

    fn table(profile: &Profile, name: &str) -> RecordBatch {
        profile
            .tables()
            .into_iter()
            .find(|(table, _)| *table == name)
            .unwrap()
            .1
    }

    fn column<'a, A: 'static>(batch: &'a RecordBatch, name: &str) -> &'a A {
        batch.column_by_name(name).unwrap().as_any().downcast_ref().unwrap()
    }

    /// (names innermost first, reason) of each location.
    fn names(profile: &Profile) -> Vec<(Vec<String>, Option<String>)> {
        let (lines, functions, locations) = (
            table(profile, "lines"),
            table(profile, "functions"),
            table(profile, "locations"),
        );
        let reasons: &StringArray = column(&locations, "reason");
        let mut names: Vec<_> = (0..locations.num_rows())
            .map(|row| (Vec::new(), reasons.is_valid(row).then(|| reasons.value(row).to_owned())))
            .collect();
        for row in 0..lines.num_rows() {
            let location = column::<UInt32Array>(&lines, "location").value(row) as usize;
            let function = column::<UInt32Array>(&lines, "function").value(row) as usize;
            let depth = column::<UInt16Array>(&lines, "depth").value(row) as usize;
            assert_eq!(
                names[location].0.len(),
                depth,
                "lines of a location follow each other, innermost first"
            );
            names[location]
                .0
                .push(column::<StringArray>(&functions, "name").value(function).to_owned());
        }
        names
    }

    /// The first lines of the functions inlined into each other, innermost first, name by name.
    #[test]
    fn inlined_functions_come_innermost_first() {
        let start = object_addr(outermost as *const () as u64).0;
        assert_ne!(outermost(1), 0);
        let addresses: Vec<u64> = (start..start + 48).collect();
        let profile = symbolized(ObjectKind::Elf, &addresses, ourselves(), true);
        let expected = ["innermost", "between", "outermost"];
        let found = names(&profile).into_iter().any(|(names, _)| {
            names.len() == 3
                && names
                    .iter()
                    .zip(expected)
                    .all(|(name, expected)| name.ends_with(expected))
        });
        assert!(found, "{:?}", names(&profile));
        let functions = table(&profile, "functions");
        let names: &StringArray = column(&functions, "name");
        for row in (0..functions.num_rows()).filter(|&row| expected.iter().any(|name| names.value(row).ends_with(name)))
        {
            assert!(
                column::<StringArray>(&functions, "file")
                    .value(row)
                    .ends_with("symbolize/mod.rs")
            );
        }
    }

    /// Each of the lines is where that function is at work: innermost has the line of its own body.
    #[test]
    fn lines_belong_to_their_functions() {
        let start = object_addr(outermost as *const () as u64).0;
        let profile = symbolized(
            ObjectKind::Elf,
            &(start..start + 48).collect::<Vec<_>>(),
            ourselves(),
            true,
        );
        let source = include_str!("mod.rs");
        let (lines, functions) = (table(&profile, "lines"), table(&profile, "functions"));
        for row in 0..lines.num_rows() {
            let function = column::<UInt32Array>(&lines, "function").value(row) as usize;
            let name = column::<StringArray>(&functions, "name").value(function);
            let line = column::<UInt32Array>(&lines, "line").value(row) as usize;
            let Some(name) = name.strip_prefix("stackhound_core::symbolize::tests::") else {
                continue;
            };
            let (head, body) = (line.saturating_sub(3), line);
            let text: Vec<&str> = source.lines().skip(head).take(body - head).collect();
            assert!(
                text.iter().any(|text| text.contains(&format!("fn {name}("))),
                "{name} at line {line}"
            );
        }
    }

    /// The whole name of a function is told, though these lines-only tables have the last part of it only.
    #[test]
    fn functions_have_their_whole_name() {
        let start = object_addr(outermost as *const () as u64).0;
        for lines in [false, true] {
            let profile = symbolized(ObjectKind::Elf, &[start], ourselves(), lines);
            let name = names(&profile)[0].0.last().unwrap().clone();
            assert_eq!(name, "stackhound_core::symbolize::tests::outermost");
        }
    }

    /// Without lines there is one name a location, and no file.
    #[test]
    fn names_alone_have_no_lines() {
        let start = object_addr(outermost as *const () as u64).0;
        let profile = symbolized(ObjectKind::Elf, &[start, start + 1], ourselves(), false);
        assert!(
            names(&profile)
                .iter()
                .all(|(names, _)| names.len() == 1 && names[0].ends_with("outermost"))
        );
        let functions = table(&profile, "functions");
        assert_eq!(functions.num_rows(), 1);
        assert_eq!(column::<StringArray>(&functions, "file").value(0), "");
        assert!(
            column::<StringArray>(&functions, "system_name")
                .value(0)
                .starts_with("_")
        );
    }

    /// A name that is no UTF-8 has U+FFFD where it is none, and its neighbours have theirs.
    #[test]
    fn a_name_that_is_no_utf8_is_shown_as_far_as_it_is() {
        let mut program = fs::read(std::env::current_exe().unwrap()).unwrap();
        let places: Vec<_> = (0..program.len())
            .filter(|&at| program[at..].starts_with(b"9outermost"))
            .collect();
        for at in places {
            program[at + 6] = 0xff;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), program).unwrap();
        let addresses = [outermost as *const () as u64, object_addr as *const () as u64].map(|at| object_addr(at).0);
        // Debug information may have a short name beside the damaged one.
        for (lines, expected) in [(false, "9outer\u{fffd}ost"), (true, "outer")] {
            let source = Source::Elf {
                path: file.path().to_owned(),
                origin: None,
            };
            let names = names(&symbolized(ObjectKind::Elf, &addresses, source, lines));
            let name = names[0].0.last().expect("a name, though it is damaged");
            assert!(name.contains(expected), "{name}");
            assert!(names[1].0.last().unwrap().ends_with("object_addr"));
        }
    }

    /// What has no name says why.
    #[test]
    fn a_miss_has_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("text");
        fs::write(&text, "no ELF").unwrap();
        let elf = |path: PathBuf| Source::Elf { path, origin: None };
        for (source, expected) in [
            (Source::Missing("outside any mapping".into()), "outside any mapping"),
            (elf(dir.path().join("nothing")), "file gone"),
            (elf(text), "not an ELF file"),
            (ourselves(), "not in the symbol table"),
            (Source::Made(vec![None], "not in the perf map"), "not in the perf map"),
        ] {
            for lines in [false, true] {
                let profile = symbolized(ObjectKind::Elf, &[1], source.clone(), lines);
                assert_eq!(names(&profile), [(vec![], Some(expected.to_owned()))]);
            }
        }
    }

    /// Made code and single names need no file.
    #[test]
    fn names_without_files_are_found() {
        let made = |start, name: &str, line| {
            let (size, name) = (0x10, name.to_owned());
            let entry = Entry { start, size, name };
            Some(Made {
                entry,
                file: "/a.js".into(),
                line,
            })
        };
        let found = vec![made(0x1000, "one", 3), made(0x1000, "one", 4), made(0x1010, "two", 9)];
        let source = Source::Made(found, "");
        let profile = symbolized(ObjectKind::Jit, &[0x1018, 0x1001, 0x1000], source, true);
        let expected = ["two", "one", "one"].map(|name| (vec![name.to_owned()], None));
        assert_eq!(names(&profile), expected);
        let (lines, functions) = (table(&profile, "lines"), table(&profile, "functions"));
        assert_eq!(column::<UInt32Array>(&lines, "line").values(), &[9, 4, 3]);
        assert_eq!(column::<StringArray>(&functions, "file").value(0), "/a.js");
        let profile = symbolized(ObjectKind::Bpf, &[5, 6], Source::Named("prog".into()), false);
        assert_eq!(table(&profile, "functions").num_rows(), 1);
    }

    /// Kernel symbols are found by the run-time address, and stored relative to the base.
    #[test]
    fn kernel_symbols_are_relative_to_their_base() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(
            file.path(),
            "ffffffff81000000 T _stext\nffffffff81000100 t work\nffffffff81000180 T rest\n",
        )
        .unwrap();
        let source = Source::Kernel {
            kallsyms: file.path().to_owned(),
            vmlinux: None,
            base: 0xffff_ffff_8100_0000,
        };
        let profile = symbolized(ObjectKind::Kernel, &[0x101, 0x1ff], source, true);
        assert_eq!(
            names(&profile),
            [(vec!["work".to_owned()], None), (vec!["rest".to_owned()], None)]
        );
        let functions = table(&profile, "functions");
        let addresses: &arrow_array::UInt64Array = column(&functions, "address");
        assert_eq!(addresses.values(), &[0x100, 0x180]);
    }

    /// Only what is new is looked up the next time, and earlier lines stay.
    #[test]
    fn each_location_is_looked_up_once() {
        let mut profile = symbolized(ObjectKind::Jit, &[1], Source::Named("first".into()), false);
        profile.location(ObjectId(0), ObjectAddr(2));
        profile.symbolize(&mut Same(Source::Named("second".into())), false);
        profile.symbolize(&mut Same(Source::Missing("asked again".into())), false);
        let expected = ["first", "second"].map(|name| (vec![name.to_owned()], None));
        assert_eq!(names(&profile), expected);
    }

    /// A descriptor that names another file later gives the other file's symbols.
    #[test]
    fn a_reused_descriptor_gives_no_old_symbols() {
        use std::os::fd::AsRawFd;
        let mut profile = Profile::default();
        let start = object_addr(outermost as *const () as u64);
        let ours = fs::File::open(std::env::current_exe().unwrap()).unwrap();
        let number = ours.as_raw_fd();
        let source = || Source::Elf {
            path: format!("/proc/self/fd/{number}").into(),
            origin: Some("/nowhere".into()),
        };
        let object = profile.object(ObjectKind::Elf, "/ours", &[]);
        profile.location(object, start);
        profile.symbolize(&mut Same(source()), true);
        let mut other = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut other, b"no ELF").unwrap();
        // SAFETY: both are open files of this test; dup2 closes the first and gives its number to the other.
        assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), number) }, number);
        let object = profile.object(ObjectKind::Elf, "/other", &[]);
        profile.location(object, start);
        profile.symbolize(&mut Same(source()), true);
        let names = names(&profile);
        assert!(names[0].1.is_none());
        assert_eq!(names[1].1.as_deref(), Some("not an ELF file"));
    }
}
