//! The files that were asked about last.

use super::CodeFile;
use crate::Error;
use crate::symbolize::{DebugDirs, SymbolFile};

/// Bytes of files to keep open, the one asked about last not counted; parsed debug information takes about as much.
const MAX_KEPT_BYTES: u64 = 1 << 30;

/// Files to keep open.
const MAX_FILES: usize = 64;

pub(super) struct Shelf {
    debug_dirs: DebugDirs,
    /// The one asked about last is the last one.
    files: Vec<(CodeFile, SymbolFile)>,
}

impl Shelf {
    pub(super) fn new(debug_dirs: DebugDirs) -> Self {
        Self {
            debug_dirs,
            files: Vec::new(),
        }
    }

    /// The file, opened again when it has changed since the last time.
    pub(super) fn file(&mut self, wanted: &CodeFile) -> Result<&SymbolFile, Error> {
        let known = self.files.iter().position(|(file, _)| file == wanted);
        let kept = known.map(|at| self.files.remove(at).1).filter(SymbolFile::is_current);
        let opened = match kept {
            Some(file) => file,
            None => SymbolFile::open(&wanted.path, &wanted.build_id, &self.debug_dirs)
                .map_err(|reason| Error::refused(format!("{}: {reason}", wanted.path.display())))?,
        };
        self.make_room();
        self.files.push((wanted.clone(), opened));
        Ok(&self.files[self.files.len() - 1].1)
    }

    fn make_room(&mut self) {
        let mut bytes = 0;
        let kept = self.files.iter().rev().take(MAX_FILES - 1).take_while(|(_, file)| {
            bytes += file.bytes();
            bytes <= MAX_KEPT_BYTES
        });
        let kept = kept.count();
        self.files.drain(..self.files.len() - kept);
    }
}
