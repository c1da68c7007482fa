//! Functions whose names are no UTF-8, which blazesym refuses: read here, with U+FFFD for what is none.

use std::fs::File;
use std::path::Path;

use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

use super::symbols::Named;

/// Functions of a file to look at: Chromium has about two million.
const MAX_FUNCTIONS: usize = 4 << 20;

/// Names of one function to look at.
const MAX_ALIASES: usize = 64;

/// The function at each of these addresses, as far as the file's symbol tables say.
pub(super) fn functions_at(path: &Path, addresses: &[u64]) -> Vec<Vec<Named>> {
    let data = File::open(path).map(ReadCache::new);
    let file = data.iter().find_map(|data| object::File::parse(data).ok());
    let Some(file) = file else {
        return Vec::new();
    };
    let is_function = |symbol: &object::Symbol<_>| symbol.kind() == SymbolKind::Text && symbol.is_definition();
    let mut symbols: Vec<_> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(is_function)
        .take(MAX_FUNCTIONS)
        .collect();
    symbols.sort_by_key(ObjectSymbol::address);
    addresses
        .iter()
        .map(|&address| function_at(&symbols, address).into_iter().collect())
        .collect()
}

/// Of the symbols, by address, that begin last before this address, one that reaches it; with a proper name, if any.
fn function_at<'d>(symbols: &[impl ObjectSymbol<'d>], address: u64) -> Option<Named> {
    let end = symbols.partition_point(|symbol| symbol.address() <= address);
    let start = symbols[..end].last()?.address();
    let first = symbols[..end].partition_point(|symbol| symbol.address() < start);
    let has_it = |symbol: &&_| address == start || address - start < ObjectSymbol::size(*symbol);
    let aliases = symbols[first..end].iter().take(MAX_ALIASES).filter(has_it);
    let named = aliases.filter_map(|symbol| {
        let name = symbol.name_bytes().ok().filter(|name| !name.is_empty())?;
        Some((name, symbol.size()))
    });
    let (name, size) = named.min_by_key(|(name, _)| std::str::from_utf8(name).is_err())?;
    Some(Named {
        name: String::from_utf8_lossy(name).into_owned(),
        start,
        size,
        ..Named::default()
    })
}
