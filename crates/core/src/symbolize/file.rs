//! One ELF file that is asked about again and again, as a symbol server does.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use blazesym::symbolize::Symbolizer;
use memmap2::Mmap;

use super::DebugDirs;
use super::debug_files::{DebugFiles, Located, Wanted};
use super::resolver::{look_up, map, symbolizer};
use super::symbols::Symbols;
use crate::guard::guarded;

/// A function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundFunction {
    /// Demangled.
    pub name: String,
    /// Of the source; empty: unknown.
    pub file: String,
    /// 0: unknown.
    pub line: u32,
    /// 0: unknown.
    pub column: u32,
    /// Where its code begins; 0 for an inlined function.
    pub start: u64,
    /// Bytes; 0: unknown.
    pub size: u64,
}

/// An ELF file with its debug files, and what was parsed of them.
pub struct SymbolFile {
    path: PathBuf,
    identity: Identity,
    located: Located,
    symbolizer: Symbolizer,
}

impl SymbolFile {
    /// Open a file that must have this build-id, in hexadecimal digits; none where it is empty.
    pub fn open(path: &Path, build_id: &str, debug_dirs: &DebugDirs) -> Result<Self, &'static str> {
        guarded(|| Self::read(path, build_id, debug_dirs)).unwrap_or(Err("file damaged"))
    }

    fn read(path: &Path, build_id: &str, debug_dirs: &DebugDirs) -> Result<Self, &'static str> {
        let debug_files = DebugFiles::new(debug_dirs.clone());
        let identity = Identity::of(path).ok_or("file gone")?;
        let located = debug_files.locate(Wanted {
            path,
            origin: None,
            name: path.file_name().unwrap_or(OsStr::new("")),
            lines: true,
        })?;
        if located.build_id != build_id {
            return Err("file changed: its build-id is another one");
        }
        Ok(Self {
            path: path.to_owned(),
            identity,
            located,
            symbolizer: symbolizer(&debug_files),
        })
    }

    /// Whether the path still leads to the file that was opened, unchanged.
    pub fn is_current(&self) -> bool {
        Identity::of(&self.path).as_ref() == Some(&self.identity)
    }

    /// Bytes of the file and its debug files.
    pub fn bytes(&self) -> u64 {
        self.located.bytes
    }

    /// The file itself.
    pub fn contents(&self) -> Option<Mmap> {
        map(&self.located.main)
    }

    /// The file with debug information: a separate one, or the file itself.
    pub fn debug_contents(&self) -> Option<Mmap> {
        map(self.located.debug.as_ref().unwrap_or(&self.located.main))
    }

    /// The functions at each address, innermost first; none where nothing is known. With `lines` also the places in the
    /// source, and inlined functions. Never panics, whatever the files contain.
    pub fn functions_at(&self, addresses: &[u64], lines: bool) -> Vec<Vec<FoundFunction>> {
        let mut sorted = addresses.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let symbols = guarded(|| look_up(&self.symbolizer, &self.located, &sorted, lines)).unwrap_or_default();
        let mut found = by_address(symbols, sorted.len());
        found.resize_with(sorted.len(), Vec::new);
        let place = |address| sorted.binary_search(address).unwrap_or(0);
        addresses.iter().map(|address| found[place(address)].clone()).collect()
    }
}

/// What tells a file from another one that took its place.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// The functions of each address of a request.
fn by_address(symbols: Symbols, addresses: usize) -> Vec<Vec<FoundFunction>> {
    let mut found: Vec<Vec<(u16, FoundFunction)>> = vec![Vec::new(); addresses];
    for frame in &symbols.frames {
        let function = &symbols.functions[frame.function as usize];
        found[frame.address as usize].push((
            frame.depth,
            FoundFunction {
                name: function.name.to_string(),
                file: function.file.to_string(),
                line: frame.line,
                column: frame.column,
                start: function.address,
                size: function.size,
            },
        ));
    }
    let by_depth = |mut functions: Vec<(u16, FoundFunction)>| {
        functions.sort_by_key(|(depth, _)| *depth);
        functions.into_iter().map(|(_, function)| function).collect()
    };
    found.into_iter().map(by_depth).collect()
}
