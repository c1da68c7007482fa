//! Addresses of one object to functions, by blazesym.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use blazesym::MaybeDefault;
use blazesym::symbolize::Symbolizer;
use blazesym::symbolize::source::{Elf, Kernel};
use memmap2::Mmap;

use super::debug_files::{DebugFiles, Located, Wanted};
use super::go::GoNames;
use super::lookup::{DAMAGED, Lookup};
use super::symbols::{Named, Symbols};
use super::{DebugDirs, Source, linkage};
use crate::address::ObjectAddr;
use crate::guard::guarded;
use crate::image::Image;
use crate::python::{EVALUATION, Interpreter};

/// Bytes of files whose symbols are kept for the next time. Parsed debug information takes about as much again.
const MAX_KEPT_BYTES: u64 = 64 << 20;

/// Addresses of one object, in increasing order.
pub(super) struct Request<'a> {
    /// The real name of the object's file.
    pub(super) name: &'a OsStr,
    pub(super) source: &'a Source,
    pub(super) addresses: &'a [u64],
    pub(super) lines: bool,
}

/// Looks up addresses, and remembers the files that it read last.
pub(super) struct Resolver {
    debug_files: DebugFiles,
    files: Symbolizer,
    kernel: Symbolizer,
    kept_bytes: u64,
}

impl Resolver {
    pub(super) fn new(debug_dirs: DebugDirs) -> Self {
        let debug_files = DebugFiles::new(debug_dirs);
        Self {
            files: symbolizer(&debug_files),
            kernel: symbolizer(&debug_files),
            debug_files,
            kept_bytes: 0,
        }
    }

    /// What is at these addresses. Never panics, whatever the files contain.
    pub(super) fn resolve(&mut self, request: &Request) -> Symbols {
        let symbols = guarded(|| match request.source {
            Source::Elf { path, origin } => self.resolve_elf(path, origin.as_deref(), request),
            Source::Kernel {
                kallsyms,
                vmlinux,
                base,
            } => self.resolve_kernel(
                kallsyms,
                vmlinux.as_ref().filter(|_| request.lines),
                *base,
                request.addresses,
            ),
            source => Symbols::without_files(source.clone(), request.addresses),
        });
        symbols.unwrap_or_else(|| {
            self.forget();
            Symbols::missing(DAMAGED, request.addresses.len())
        })
    }

    fn forget(&mut self) {
        self.files = symbolizer(&self.debug_files);
        self.kernel = symbolizer(&self.debug_files);
        self.kept_bytes = 0;
    }

    fn resolve_elf(&mut self, path: &Path, origin: Option<&Path>, request: &Request) -> Symbols {
        let &Request {
            name, addresses, lines, ..
        } = request;
        let located = match self.debug_files.locate(Wanted {
            path,
            origin,
            name,
            lines,
        }) {
            Ok(located) => located,
            Err(reason) => return Symbols::missing(reason, addresses.len()),
        };
        self.make_room(located.bytes);
        look_up(&self.files, &located, addresses, lines)
    }

    fn make_room(&mut self, bytes: u64) {
        if self.kept_bytes + bytes > MAX_KEPT_BYTES {
            self.files = symbolizer(&self.debug_files);
            self.kept_bytes = 0;
        }
        self.kept_bytes += bytes;
    }

    fn resolve_kernel(&mut self, kallsyms: &Path, vmlinux: Option<&PathBuf>, base: u64, addresses: &[u64]) -> Symbols {
        let mut lookup = Lookup::in_kernel(addresses, base);
        for vmlinux in vmlinux.map(Some).into_iter().chain([None]) {
            let kernel = Kernel {
                kallsyms: MaybeDefault::from(kallsyms.to_path_buf()),
                vmlinux: vmlinux.map_or(MaybeDefault::None, |path| MaybeDefault::from(path.clone())),
                ..Kernel::default()
            };
            lookup.run(&self.kernel, &kernel.into());
        }
        lookup.finish()
    }
}

/// What the files of an object say of these addresses, which are in increasing order.
pub(super) fn look_up(files: &Symbolizer, located: &Located, addresses: &[u64], lines: bool) -> Symbols {
    let mut lookup = Lookup::in_file(addresses, located.first_code);
    let own = map(&located.main);
    let image = own.as_ref().and_then(|file| Image::parse(file).ok());
    if let Some(image) = &image {
        lookup.ask(|addresses| linkage::names_at(image, addresses));
    }
    if lines && !located.has_lines {
        ask_go(&mut lookup, image.as_ref(), lines);
    }
    for elf in attempts(located, lines) {
        lookup.run(files, &elf.into());
    }
    for path in located.debug.iter().chain([&located.main]) {
        lookup.read_raw_names(path);
    }
    ask_go(&mut lookup, image.as_ref(), lines);
    if lookup.is_pending() {
        let interpreter = own.as_ref().and_then(|file| Interpreter::find(file));
        lookup.ask(|addresses| evaluation_at(interpreter.as_ref(), addresses));
    }
    lookup.finish()
}

/// Ask a Go program's own table, if it is a Go program and something is not answered yet.
fn ask_go(lookup: &mut Lookup, image: Option<&Image>, lines: bool) {
    let image = image.filter(|_| lookup.is_pending());
    if let Some(mut go) = image.and_then(|image| GoNames::find(image, lines)) {
        lookup.ask(|addresses| go.names_at(addresses));
    }
}

/// The evaluation loop of CPython has parts without names of their own in stripped interpreters.
fn evaluation_at(interpreter: Option<&Interpreter>, addresses: &[u64]) -> Vec<Vec<Named>> {
    let part = |address: &u64| interpreter?.evaluation_at(ObjectAddr(*address));
    let named = |part: Range<ObjectAddr>| Named {
        name: EVALUATION.into(),
        start: part.start.0,
        size: part.end.0 - part.start.0,
        ..Named::default()
    };
    addresses
        .iter()
        .map(|address| part(address).map(named).into_iter().collect())
        .collect()
}

/// A file as it is now. What is wrong with it shows when blazesym opens it.
pub(super) fn map(path: &Path) -> Option<Mmap> {
    let file = File::open(path).ok()?;
    // SAFETY: the bytes may change under us, which parsers of hostile files bear; where the file is cut short, whoever
    // calls takes care of SIGBUS, as for blazesym's own mappings.
    unsafe { Mmap::map(&file) }.ok()
}

pub(super) fn symbolizer(debug_files: &DebugFiles) -> Symbolizer {
    Symbolizer::builder()
        .enable_demangling(false)
        .set_debug_dirs(Some(debug_files.dirs()))
        .build()
}

/// What to ask for an object, until each address has an answer: first the file with the most to say.
fn attempts(located: &Located, lines: bool) -> Vec<Elf> {
    let elf = |path: &PathBuf, debug_syms| {
        let mut elf = Elf::new(path);
        elf.debug_syms = debug_syms;
        elf
    };
    let mut attempts = Vec::new();
    if let Some(debug) = &located.debug {
        attempts.extend((lines && located.follow_links).then(|| elf(debug, true)));
        attempts.push(elf(debug, false));
    }
    if lines && located.follow_links && located.debug.is_none() {
        attempts.push(elf(&located.main, true));
    }
    attempts.push(elf(&located.main, false));
    attempts
}
