//! One request on its way through the files that may answer it.

use std::ffi::OsStr;
use std::hash::BuildHasher;
use std::path::Path;

use blazesym::ErrorKind;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer};
use hashbrown::{DefaultHashBuilder, HashTable};

use super::demangle::{demangle, is_mangled, shorten};
use super::functions::Function;
use super::raw_names::functions_at;
use super::symbols::{Frame, Named, Symbols};

/// Addresses to resolve at a time: half a megabyte of results.
const CHUNK: usize = 4096;

/// The same for tables that are read here: at most 64 functions with names of 8 KiB at each address, 128 MiB.
const NAMED_CHUNK: usize = 256;

pub(super) const DAMAGED: &str = "damaged symbols";
const NO_SYMBOL_TABLE: &str = "no symbol table";
pub(super) const NOT_IN_TABLE: &str = "not in the symbol table";

/// The addresses of a request, with and without an answer so far.
pub(super) struct Lookup<'a> {
    addresses: &'a [u64],
    /// What blazesym's addresses are ahead of the object's own.
    base: u64,
    /// Functions that begin before this address were dropped by the linker: their debug information says 0.
    first_code: u64,
    /// Addresses without a name so far, and why.
    pending: Vec<(u32, &'static str)>,
    symbols: Symbols,
    known: Known,
}

impl<'a> Lookup<'a> {
    /// Addresses in a file whose code begins at `first_code`.
    pub(super) fn in_file(addresses: &'a [u64], first_code: u64) -> Self {
        let pending = (0..addresses.len() as u32)
            .map(|address| (address, NO_SYMBOL_TABLE))
            .collect();
        Self {
            addresses,
            base: 0,
            first_code,
            pending,
            symbols: Symbols::default(),
            known: Known::default(),
        }
    }

    /// Addresses in the kernel, relative to `base`.
    pub(super) fn in_kernel(addresses: &'a [u64], base: u64) -> Self {
        Self {
            base,
            ..Self::in_file(addresses, 0)
        }
    }

    /// Ask one source for what has no answer so far.
    pub(super) fn run(&mut self, symbolizer: &Symbolizer, source: &Source) {
        let table = SymbolTable::behind(symbolizer, source);
        let pending = std::mem::take(&mut self.pending);
        for chunk in pending.chunks(CHUNK) {
            match symbolizer.symbolize(source, input(source, &self.translate(chunk))) {
                Ok(results) => {
                    for (&asked, result) in chunk.iter().zip(&results) {
                        self.note(asked, result, table.as_ref());
                    }
                }
                Err(error) => self.put_back(chunk, failure(error.kind())),
            }
        }
    }

    fn translate(&self, chunk: &[(u32, &str)]) -> Vec<u64> {
        chunk
            .iter()
            .map(|&(address, _)| self.addresses[address as usize].wrapping_add(self.base))
            .collect()
    }

    fn put_back(&mut self, chunk: &[(u32, &'static str)], reason: &'static str) {
        self.pending.extend(
            chunk
                .iter()
                .map(|&(address, before)| (address, telling(before, reason))),
        );
    }

    fn note(&mut self, asked: (u32, &'static str), result: &Symbolized, table: Option<&SymbolTable>) {
        match result {
            Symbolized::Sym(symbol) if self.is_code(symbol) => self.add(asked.0, symbol, table),
            Symbolized::Sym(_) => self.put_back(&[asked], NOT_IN_TABLE),
            Symbolized::Unknown(reason) => self.put_back(&[asked], why(*reason)),
        }
    }

    fn is_code(&self, symbol: &Sym) -> bool {
        !symbol.name.is_empty() && (symbol.addr >= self.first_code || is_split(symbol))
    }

    /// Start and size of the function at an address; of a split one, of the part that is there.
    fn extent(&self, address: u32, symbol: &Sym, table: Option<&SymbolTable>) -> (u64, u64) {
        let part = table.filter(|_| is_split(symbol));
        let part = part.and_then(|table| table.extent(self.addresses[address as usize]));
        part.unwrap_or((symbol.addr.wrapping_sub(self.base), symbol.size.unwrap_or(0) as u64))
    }

    /// blazesym gives the function first, then what was inlined into it, outermost first, each with the place
    /// where it calls the next.
    fn add(&mut self, address: u32, symbol: &Sym, table: Option<&SymbolTable>) {
        let (start, size) = self.extent(address, symbol, table);
        let outer = Described {
            address: start,
            size,
            table,
            ..Described::new(&symbol.name, symbol.code_info.as_deref())
        };
        let inlined = symbol.inlined.iter();
        let inlined = inlined.map(|inlined| Described::new(&inlined.name, inlined.code_info.as_ref()));
        for (depth, described) in (0..).zip(inlined.rev().chain([outer])) {
            self.add_frame(address, depth, &described);
        }
    }

    fn add_frame(&mut self, address: u32, depth: u16, described: &Described) {
        let function = self.known.intern(&mut self.symbols.functions, described);
        self.symbols.frames.push(Frame {
            address,
            depth,
            function,
            line: described.line,
            column: described.column,
        });
    }

    /// Whether anything has no answer so far.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Ask a table that is read here for what has no answer so far: for each of the addresses it says which functions
    /// are there, innermost first.
    pub(super) fn ask(&mut self, mut find: impl FnMut(&[u64]) -> Vec<Vec<Named>>) {
        let pending = std::mem::take(&mut self.pending);
        for chunk in pending.chunks(NAMED_CHUNK) {
            let mut found = find(&self.translate(chunk)).into_iter();
            for &asked in chunk {
                self.add_named(asked, &found.next().unwrap_or_default());
            }
        }
    }

    fn add_named(&mut self, asked: (u32, &'static str), functions: &[Named]) {
        if functions.is_empty() {
            self.pending.push(asked);
        }
        for (depth, function) in (0..).zip(functions) {
            self.add_frame(asked.0, depth, &Described::of(function));
        }
    }

    /// Read what blazesym refused for its name, if it refused any.
    pub(super) fn read_raw_names(&mut self, path: &Path) {
        let is_damaged = |asked: &mut (u32, &str)| asked.1 == DAMAGED;
        let damaged: Vec<_> = self.pending.extract_if(.., is_damaged).collect();
        if damaged.is_empty() {
            return;
        }
        let mut functions = functions_at(path, &self.translate(&damaged)).into_iter();
        for asked in damaged {
            self.add_named(asked, &functions.next().unwrap_or_default());
        }
    }

    /// What was found, and for the rest why not.
    pub(super) fn finish(mut self) -> Symbols {
        self.symbols.misses = self
            .pending
            .iter()
            .map(|&(address, reason)| (address, reason.to_owned()))
            .collect();
        self.symbols
    }
}

/// Whether blazesym does not say where a function begins, because it has several parts (`DW_AT_ranges`: gcc moves cold
/// code away).
fn is_split(symbol: &Sym) -> bool {
    symbol.addr == 0 && symbol.size.is_none()
}

fn input<'i>(source: &Source, addresses: &'i [u64]) -> Input<&'i [u64]> {
    match source {
        Source::Kernel(_) => Input::AbsAddr(addresses),
        _ => Input::VirtOffset(addresses),
    }
}

/// The symbol table beside debug information, which may lack the mangled names, and with them classes and modules
/// (`-g1`, `-gmlt`).
struct SymbolTable<'s> {
    symbolizer: &'s Symbolizer,
    source: Source<'s>,
}

impl<'s> SymbolTable<'s> {
    fn behind(symbolizer: &'s Symbolizer, source: &Source) -> Option<Self> {
        let Source::Elf(elf) = source else { return None };
        let mut table = Elf::new(&elf.path);
        table.debug_syms = false;
        elf.debug_syms.then(|| Self {
            symbolizer,
            source: table.into(),
        })
    }

    fn symbol(&self, address: u64) -> Option<Sym<'_>> {
        let symbolized = self
            .symbolizer
            .symbolize_single(&self.source, Input::VirtOffset(address));
        symbolized.ok()?.into_sym()
    }

    /// Start and size of the symbol at an address.
    fn extent(&self, address: u64) -> Option<(u64, u64)> {
        let symbol = self.symbol(address)?;
        Some((symbol.addr, symbol.size.unwrap_or(0) as u64))
    }

    fn mangled_name(&self, address: u64) -> Option<String> {
        let symbol = self.symbol(address)?;
        (symbol.addr == address && is_mangled(&symbol.name)).then(|| symbol.name.into_owned())
    }
}

/// A function at an address, as some table describes it.
#[derive(Clone, Copy, Default)]
struct Described<'d> {
    name: &'d str,
    dir: &'d OsStr,
    file: &'d OsStr,
    line: u32,
    column: u32,
    address: u64,
    size: u64,
    table: Option<&'d SymbolTable<'d>>,
}

impl<'d> Described<'d> {
    fn new(name: &'d str, code: Option<&'d CodeInfo>) -> Self {
        let Some(code) = code else {
            return Self {
                name,
                ..Self::default()
            };
        };
        Self {
            name,
            dir: code.dir.as_deref().map(Path::as_os_str).unwrap_or_default(),
            file: &code.file,
            line: code.line.unwrap_or(0),
            column: code.column.unwrap_or(0).into(),
            ..Self::default()
        }
    }

    fn of(function: &'d Named) -> Self {
        Self {
            name: &function.name,
            file: OsStr::new(&function.file),
            line: function.line,
            address: function.start,
            size: function.size,
            ..Self::default()
        }
    }

    fn function(&self) -> Function {
        let better = self
            .table
            .filter(|_| !is_mangled(self.name))
            .and_then(|table| table.mangled_name(self.address));
        let name = better.as_deref().unwrap_or(self.name);
        Function {
            name: demangle(name),
            system_name: shorten(name).into(),
            file: shorten(&Path::new(self.dir).join(self.file).to_string_lossy()).into(),
            address: self.address,
            size: self.size,
        }
    }
}

/// The functions found so far, by their descriptions.
#[derive(Default)]
struct Known {
    ids: HashTable<(u64, u32)>,
    described: Vec<Key>,
    /// Of the address before: neighbours are often in the same function.
    last: u32,
    hasher: DefaultHashBuilder,
}

/// What makes two descriptions the same function.
struct Key {
    name: Box<str>,
    dir: Box<OsStr>,
    file: Box<OsStr>,
    address: u64,
}

impl Key {
    fn is(&self, other: &Described) -> bool {
        let is_same_place = *self.file == *other.file && *self.dir == *other.dir;
        self.address == other.address && *self.name == *other.name && is_same_place
    }
}

impl Known {
    fn intern(&mut self, functions: &mut Vec<Function>, new: &Described) -> u32 {
        let is_same = |id: u32| self.described.get(id as usize).is_some_and(|known| known.is(new));
        if is_same(self.last) {
            return self.last;
        }
        let hash = self.hasher.hash_one((new.name, new.dir, new.file, new.address));
        if let Some(&(_, id)) = self.ids.find(hash, |&(_, id)| is_same(id)) {
            self.last = id;
            return id;
        }
        let id = functions.len() as u32;
        self.ids.insert_unique(hash, (hash, id), |&(hash, _)| hash);
        self.described.push(Key {
            name: new.name.into(),
            dir: new.dir.into(),
            file: new.file.into(),
            address: new.address,
        });
        functions.push(new.function());
        self.last = id;
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
fn telling(before: &'static str, now: &'static str) -> &'static str {
    if now == NO_SYMBOL_TABLE || before == DAMAGED {
        before
    } else {
        now
    }
}
