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
use super::raw_names::{RawFunction, functions_at};
use super::symbols::{Frame, Symbols};

/// Addresses to resolve at a time: half a megabyte of results.
const CHUNK: usize = 4096;

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
            name: &symbol.name,
            code: symbol.code_info.as_deref(),
            address: start,
            size,
            table,
        };
        let inlined = symbol.inlined.iter().map(|inlined| Described {
            name: &inlined.name,
            code: inlined.code_info.as_ref(),
            ..Described::default()
        });
        for (depth, described) in (0..).zip(inlined.rev().chain([outer])) {
            let code = described.code;
            let function = self.known.intern(&mut self.symbols.functions, &described);
            let line = code.and_then(|code| code.line).unwrap_or(0);
            let column = code.and_then(|code| code.column).unwrap_or(0).into();
            self.symbols.frames.push(Frame {
                address,
                depth,
                function,
                line,
                column,
            });
        }
    }

    /// Read what blazesym refused for its name, if it refused any.
    pub(super) fn read_raw_names(&mut self, path: &Path) {
        let is_damaged = |asked: &mut (u32, &str)| asked.1 == DAMAGED;
        let damaged: Vec<_> = self.pending.extract_if(.., is_damaged).collect();
        if damaged.is_empty() {
            return;
        }
        let functions = functions_at(path, &self.translate(&damaged));
        for (asked, function) in damaged.into_iter().zip(functions) {
            match function {
                Some(function) => self.add_raw(asked.0, &function),
                None => self.pending.push(asked),
            }
        }
    }

    fn add_raw(&mut self, address: u32, function: &RawFunction) {
        let described = Described {
            name: &function.name,
            address: function.start,
            size: function.size,
            ..Described::default()
        };
        let function = self.known.intern(&mut self.symbols.functions, &described);
        self.symbols.frames.push(Frame::plain(address, function));
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

/// A function as blazesym describes it.
#[derive(Clone, Copy, Default)]
struct Described<'d> {
    name: &'d str,
    code: Option<&'d CodeInfo<'d>>,
    address: u64,
    size: u64,
    table: Option<&'d SymbolTable<'d>>,
}

impl Described<'_> {
    fn place(&self) -> (&OsStr, &OsStr) {
        let dir = self.code.and_then(|code| code.dir.as_deref()).unwrap_or(Path::new(""));
        (dir.as_os_str(), self.code.map_or(OsStr::new(""), |code| &code.file))
    }

    fn function(&self) -> Function {
        let better = self
            .table
            .filter(|_| !is_mangled(self.name))
            .and_then(|table| table.mangled_name(self.address));
        let name = better.as_deref().unwrap_or(self.name);
        let (dir, file) = self.place();
        Function {
            name: demangle(name),
            system_name: shorten(name).into(),
            file: shorten(&Path::new(dir).join(file).to_string_lossy()).into(),
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
        let (dir, file) = other.place();
        self.address == other.address && *self.name == *other.name && *self.file == *file && *self.dir == *dir
    }
}

impl Known {
    fn intern(&mut self, functions: &mut Vec<Function>, new: &Described) -> u32 {
        let is_same = |id: u32| self.described.get(id as usize).is_some_and(|known| known.is(new));
        if is_same(self.last) {
            return self.last;
        }
        let (dir, file) = new.place();
        let hash = self.hasher.hash_one((new.name, dir, file, new.address));
        if let Some(&(_, id)) = self.ids.find(hash, |&(_, id)| is_same(id)) {
            self.last = id;
            return id;
        }
        let id = functions.len() as u32;
        self.ids.insert_unique(hash, (hash, id), |&(hash, _)| hash);
        self.described.push(Key {
            name: new.name.into(),
            dir: dir.into(),
            file: file.into(),
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
