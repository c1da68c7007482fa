//! What a symbol server says of machine code: functions at addresses, instructions, checksums of source files.

mod arm64;
mod checksum;
mod listing;
mod shelf;
mod x86_64;

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use crate::Error;
use crate::symbolize::{DebugDirs, FoundFunction};
pub use listing::{Instruction, Listing};
use shelf::Shelf;

/// An answer that takes longer is given up: the files that take longest to parse, of gigabytes, take a few seconds.
const DEADLINE: Duration = Duration::from_secs(20);

/// A file with machine code, as a profile names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeFile {
    /// Where it is.
    pub path: PathBuf,
    /// In hexadecimal digits; empty where it has none.
    pub build_id: String,
}

/// Answers questions about files, one after the other, and keeps what it parsed for the next time.
pub struct CodeReader(Sender<Question>);

type Question = Box<dyn FnOnce(&mut Shelf) + Send>;

impl CodeReader {
    /// Debug files are looked for in these directories. The thread that answers ends with the reader.
    pub fn new(debug_dirs: DebugDirs) -> Self {
        let (questions, asked) = channel::<Question>();
        // blazesym's symbolizers stay in the thread that made them.
        thread::spawn(move || {
            let mut shelf = Shelf::new(debug_dirs);
            for question in asked {
                question(&mut shelf);
            }
        });
        Self(questions)
    }

    /// The functions at each address, innermost first, with their places in the source.
    pub fn functions_at(&self, file: CodeFile, addresses: Vec<u64>) -> Result<Vec<Vec<FoundFunction>>, Error> {
        self.ask(move |shelf| Ok(shelf.file(&file)?.functions_at(&addresses, true)))
    }

    /// The instructions from an address on: those of `bytes` bytes, or up to the end of the function that begins there,
    /// if that is asked for and its end is known.
    pub fn instructions(&self, file: CodeFile, start: u64, bytes: u64, whole: bool) -> Result<Listing, Error> {
        self.ask(move |shelf| Listing::read(shelf.file(&file)?, start, bytes, whole))
    }

    /// The MD5 sum of a source file as it was compiled, where the debug information at that address says it (DWARF 5,
    /// from clang).
    pub fn source_md5(&self, file: CodeFile, address: u64, source: PathBuf) -> Result<Option<[u8; 16]>, Error> {
        self.ask(move |shelf| Ok(checksum::source_md5(shelf.file(&file)?, address, &source)))
    }

    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Shelf) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answers, answer) = channel();
        let asked = self.0.send(Box::new(move |shelf| {
            // Whoever asked may have given up.
            let _ = answers.send(question(shelf));
        }));
        asked.map_err(|_| Error::refused("the reader of code has ended"))?;
        answer.recv_timeout(DEADLINE).unwrap_or_else(|error| {
            Err(Error::refused(match error {
                RecvTimeoutError::Timeout => "reading the file takes too long",
                RecvTimeoutError::Disconnected => "the reader of code has ended",
            }))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::hint::black_box;

    use tempfile::TempDir;

    use super::*;
    use crate::address::FileOffset;
    use crate::elf::Elf;
    use crate::maps::parse_maps;
    use crate::symbolize::build_id;

    #[inline(never)]
    fn callee(value: u64) -> u64 {
        black_box(value).rotate_left(7)
    }

    #[inline(never)]
    fn caller(value: u64) -> u64 {
        callee(value).wrapping_add(black_box(11))
    }

    fn ourselves() -> CodeFile {
        let path = std::env::current_exe().unwrap();
        let build_id = build_id(&path).unwrap_or_default();
        CodeFile { path, build_id }
    }

    /// Where an address of this process is in its own program.
    fn object_addr(address: u64) -> u64 {
        let text = fs::read("/proc/self/maps").unwrap();
        let map = parse_maps(&text)
            .find(|map| map.start.0 <= address && address < map.end.0)
            .unwrap();
        let file = fs::read(std::env::current_exe().unwrap()).unwrap();
        let offset = FileOffset(map.file_offset.0 + (address - map.start.0));
        Elf::parse(&file[..4096]).unwrap().object_addr(offset).unwrap().0
    }

    fn reader() -> CodeReader {
        CodeReader::new(DebugDirs::default())
    }

    /// A function has its name, its extent and its source; addresses are answered in the order of the question.
    #[test]
    fn functions_are_found_in_the_order_asked() {
        assert_ne!(caller(1), 0);
        let (caller, callee) = (
            object_addr(caller as *const () as u64),
            object_addr(callee as *const () as u64),
        );
        let found = reader()
            .functions_at(ourselves(), vec![callee, caller, 1, callee])
            .unwrap();
        let outer = |functions: &Vec<FoundFunction>| functions.last().map(|one| (one.name.clone(), one.start));
        let names: Vec<_> = found.iter().map(outer).collect();
        assert!(
            names[0]
                .as_ref()
                .is_some_and(|(name, start)| name.ends_with("callee") && *start == callee)
        );
        assert!(names[1].as_ref().is_some_and(|(name, _)| name.ends_with("caller")));
        assert_eq!((&names[2], &names[3]), (&None, &names[0]));
        assert!(found[0].last().is_some_and(|one| one.file.ends_with("code/mod.rs")));
    }

    /// The instructions are those up to the function's end, one behind the other, and say which function they call.
    #[test]
    fn instructions_say_whom_they_call() {
        assert_ne!(caller(1), 0);
        let start = object_addr(caller as *const () as u64);
        let listing = reader().instructions(ourselves(), start, 1, true).unwrap();
        let offsets: Vec<_> = listing.instructions.iter().map(|one| one.offset).collect();
        assert!(offsets[0] == 0 && offsets.is_sorted() && listing.bytes > 1);
        let names_callee = |one: &Instruction| one.text.contains("callee") && one.text.ends_with('>');
        assert!(listing.instructions.iter().any(names_callee), "{listing:?}");
    }

    /// Another build-id than the file's, no file, no ELF file, and no code: each is refused with its reason.
    #[test]
    fn what_cannot_be_shown_says_why() {
        let dir = TempDir::new().unwrap();
        let text = dir.path().join("text");
        fs::write(&text, "no code").unwrap();
        let reason = |path: &PathBuf, build_id: &str, start| {
            let file = CodeFile {
                path: path.clone(),
                build_id: build_id.into(),
            };
            reader().instructions(file, start, 16, false).unwrap_err().to_string()
        };
        let CodeFile { path, build_id } = ourselves();
        assert!(reason(&path, "00ff", 0).contains("build-id"));
        assert!(reason(&dir.path().join("gone"), "", 0).contains("gone"));
        assert!(reason(&text, "", 0).contains("ELF"));
        assert!(reason(&path, &build_id, u64::MAX).contains("no code"));
    }

    /// A file that another one takes the place of is read again.
    #[test]
    fn a_changed_file_is_not_taken_for_the_old_one() {
        let dir = TempDir::new().unwrap();
        let ours = ourselves();
        let file = CodeFile {
            path: dir.path().join("program"),
            ..ours.clone()
        };
        fs::copy(&ours.path, &file.path).unwrap();
        let reader = reader();
        assert!(reader.functions_at(file.clone(), vec![1]).is_ok());
        fs::remove_file(&file.path).unwrap();
        assert!(reader.functions_at(file.clone(), vec![1]).is_err());
        fs::copy(&ours.path, &file.path).unwrap();
        assert!(reader.functions_at(file, vec![1]).is_ok());
    }
}
