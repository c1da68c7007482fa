//! Addresses of one object to functions, by blazesym.

use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Kernel, Source as BlazeSource};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer};
use blazesym::{ErrorKind, MaybeDefault};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::debug_files::{DebugFiles, Located, Wanted};
use super::demangle::{demangle, shorten};
use super::functions::Function;
use crate::guard::guarded;
use crate::perfmap::PerfMap;
use crate::symbolize::Source;

/// Addresses to resolve at a time: half a megabyte of results.
const CHUNK: usize = 4096;

/// Bytes of files whose symbols are kept for the next time. Parsed debug information takes about as much again.
const MAX_KEPT_BYTES: u64 = 64 << 20;

const NO_SYMBOL_TABLE: &str = "no symbol table";
const NOT_IN_TABLE: &str = "not in the symbol table";
const DAMAGED: &str = "damaged symbols";

/// What was found of an object's addresses. Addresses are meant by their index in the request.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    pub(super) functions: Vec<Function>,
    pub(super) frames: Vec<Frame>,
    pub(super) misses: Vec<(u32, String)>,
}

/// One function at one address.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) address: u32,
    /// 0 is the innermost.
    pub(super) depth: u16,
    /// Row of [`Symbols::functions`].
    pub(super) function: u32,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Symbols {
    /// What a source says that needs no file.
    pub(super) fn without_files(source: Source, addresses: &[u64]) -> Self {
        match source {
            Source::PerfMap(text) => Self::of_perf_map(&PerfMap::parse(&text), addresses),
            Source::Named(name) => Self::named(&name, addresses),
            Source::Missing(reason) => Self::missing(&reason, addresses.len()),
            Source::Elf { .. } | Source::Kernel { .. } => Self::missing("no file", addresses.len()),
        }
    }

    /// One function for every address.
    fn named(name: &str, addresses: &[u64]) -> Self {
        let name: Box<str> = shorten(name).into();
        let function = Function {
            name: name.clone(),
            system_name: name,
            file: "".into(),
            address: 0,
            size: 0,
        };
        let frames = (0..addresses.len() as u32)
            .map(|address| Frame::plain(address, 0))
            .collect();
        Self {
            functions: vec![function],
            frames,
            misses: Vec::new(),
        }
    }

    /// The same reason for every address.
    pub(super) fn missing(reason: &str, addresses: usize) -> Self {
        let misses = (0..addresses as u32)
            .map(|address| (address, reason.to_owned()))
            .collect();
        Self {
            misses,
            ..Self::default()
        }
    }

    /// What a perf map says of addresses in increasing order.
    fn of_perf_map(map: &PerfMap, addresses: &[u64]) -> Self {
        let mut symbols = Self::default();
        for (index, &address) in (0..).zip(addresses) {
            let Some(entry) = map.find(address) else {
                symbols.misses.push((index, "not in the perf map".to_owned()));
                continue;
            };
            let name: Box<str> = entry.name.as_str().into();
            let function = Function {
                system_name: name.clone(),
                name,
                file: "".into(),
                address: entry.start,
                size: entry.size,
            };
            if symbols.functions.last() != Some(&function) {
                symbols.functions.push(function);
            }
            symbols
                .frames
                .push(Frame::plain(index, symbols.functions.len() as u32 - 1));
        }
        symbols
    }
}

impl Frame {
    fn plain(address: u32, function: u32) -> Self {
        Self {
            address,
            depth: 0,
            function,
            line: 0,
            column: 0,
        }
    }
}

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
    pub(super) fn new(debug_dirs: Vec<PathBuf>) -> Self {
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
        let mut lookup = Lookup::new(addresses, 0);
        for elf in attempts(&located, lines) {
            lookup.run(&self.files, &BlazeSource::Elf(elf));
        }
        lookup.finish()
    }

    fn make_room(&mut self, bytes: u64) {
        if self.kept_bytes + bytes > MAX_KEPT_BYTES {
            self.files = symbolizer(&self.debug_files);
            self.kept_bytes = 0;
        }
        self.kept_bytes += bytes;
    }

    fn resolve_kernel(&mut self, kallsyms: &Path, vmlinux: Option<&PathBuf>, base: u64, addresses: &[u64]) -> Symbols {
        let mut lookup = Lookup::new(addresses, base);
        for vmlinux in vmlinux.map(Some).into_iter().chain([None]) {
            let mut kernel = Kernel::default();
            kernel.kallsyms = MaybeDefault::from(kallsyms.to_path_buf());
            kernel.vmlinux = vmlinux.map_or(MaybeDefault::None, |path| MaybeDefault::from(path.clone()));
            lookup.run(&self.kernel, &BlazeSource::Kernel(kernel));
        }
        lookup.finish()
    }
}

fn symbolizer(debug_files: &DebugFiles) -> Symbolizer {
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

/// A request on its way through several sources.
struct Lookup<'a> {
    addresses: &'a [u64],
    base: u64,
    /// Addresses without a name so far, and why.
    pending: Vec<(u32, &'static str)>,
    symbols: Symbols,
    known: Known,
}

impl<'a> Lookup<'a> {
    fn new(addresses: &'a [u64], base: u64) -> Self {
        let pending = (0..addresses.len() as u32)
            .map(|address| (address, NO_SYMBOL_TABLE))
            .collect();
        Self {
            addresses,
            base,
            pending,
            symbols: Symbols::default(),
            known: Known::default(),
        }
    }

    fn run(&mut self, symbolizer: &Symbolizer, source: &BlazeSource) {
        let pending = std::mem::take(&mut self.pending);
        for chunk in pending.chunks(CHUNK) {
            let addresses: Vec<u64> = chunk
                .iter()
                .map(|&(address, _)| self.addresses[address as usize].wrapping_add(self.base))
                .collect();
            let input = match source {
                BlazeSource::Kernel(_) => Input::AbsAddr(addresses.as_slice()),
                _ => Input::VirtOffset(addresses.as_slice()),
            };
            match symbolizer.symbolize(source, input) {
                Ok(results) => chunk
                    .iter()
                    .zip(results)
                    .for_each(|(&address, result)| self.note(address, result)),
                Err(error) => {
                    let reason = failure(error.kind());
                    self.pending
                        .extend(chunk.iter().map(|&(address, before)| (address, worse(before, reason))));
                }
            }
        }
    }

    fn note(&mut self, (address, before): (u32, &'static str), result: Symbolized) {
        match result {
            Symbolized::Sym(symbol) => self.add(address, &symbol),
            Symbolized::Unknown(reason) => self.pending.push((address, worse(before, why(reason)))),
        }
    }

    /// blazesym gives the function first, then what was inlined into it, outermost first, each with the place
    /// where it calls the next.
    fn add(&mut self, address: u32, symbol: &Sym) {
        let start = symbol.addr.wrapping_sub(self.base);
        let size = symbol.size.unwrap_or(0) as u64;
        let inlined = symbol
            .inlined
            .iter()
            .map(|inlined| (&*inlined.name, inlined.code_info.as_ref(), 0, 0));
        let outer = (&*symbol.name, symbol.code_info.as_deref(), start, size);
        for (depth, (name, code, start, size)) in (0..).zip(inlined.rev().chain([outer])) {
            self.symbols.frames.push(Frame {
                address,
                depth,
                function: self.known.intern(&mut self.symbols.functions, name, code, start, size),
                line: code.and_then(|code| code.line).unwrap_or(0),
                column: code.and_then(|code| code.column).unwrap_or(0).into(),
            });
        }
    }

    fn finish(mut self) -> Symbols {
        self.symbols.misses = self
            .pending
            .into_iter()
            .map(|(address, reason)| (address, reason.to_owned()))
            .collect();
        self.symbols
    }
}

/// The functions found so far, by what blazesym says of them.
#[derive(Default)]
struct Known {
    ids: HashTable<(u64, u32)>,
    places: Vec<(Box<OsStr>, Box<OsStr>)>,
    hasher: DefaultHashBuilder,
}

impl Known {
    fn intern(
        &mut self,
        functions: &mut Vec<Function>,
        name: &str,
        code: Option<&CodeInfo>,
        address: u64,
        size: u64,
    ) -> u32 {
        let dir = code.and_then(|code| code.dir.as_deref()).unwrap_or(Path::new(""));
        let file = code.map_or(OsStr::new(""), |code| &code.file);
        let hash = self.hasher.hash_one((name, dir.as_os_str(), file, address));
        let same = |&(_, id): &(u64, u32)| {
            let (function, place) = (&functions[id as usize], &self.places[id as usize]);
            let same_place = *place.0 == *dir.as_os_str() && *place.1 == *file;
            function.address == address && *function.system_name == *shorten(name) && same_place
        };
        if let Some(&(_, id)) = self.ids.find(hash, same) {
            return id;
        }
        let id = functions.len() as u32;
        self.ids.insert_unique(hash, (hash, id), |&(hash, _)| hash);
        self.places.push((dir.as_os_str().into(), file.into()));
        functions.push(Function {
            name: demangle(name),
            system_name: shorten(name).into(),
            file: shorten(&dir.join(file).to_string_lossy()).into(),
            address,
            size,
        });
        id
    }
}

fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::UnknownAddr => NOT_IN_TABLE,
        Reason::IgnoredError => DAMAGED,
        _ => NO_SYMBOL_TABLE,
    }
}

fn failure(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "file gone",
        ErrorKind::PermissionDenied => "file not readable",
        _ => DAMAGED,
    }
}

/// Of the reasons of two sources, the one that says more.
fn worse(one: &'static str, other: &'static str) -> &'static str {
    if other == NO_SYMBOL_TABLE { one } else { other }
}
