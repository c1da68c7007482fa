//! What was found out about the addresses of one object.

use super::Source;
use super::demangle::{demangle, shorten};
use super::functions::Function;
use super::lookup::NOT_IN_TABLE;
use crate::perfmap::{Entry, PerfMap};

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

/// A function at an address, as a table says that is read here and not by blazesym.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    /// Empty: unknown.
    pub(super) file: String,
    /// 0: unknown.
    pub(super) line: u32,
    /// 0 where it was inlined.
    pub(super) start: u64,
    pub(super) size: u64,
}

impl Symbols {
    /// What a source says that needs no file.
    pub(super) fn without_files(source: Source, addresses: &[u64]) -> Self {
        match source {
            Source::PerfMap(text) => Self::of_perf_map(&PerfMap::parse(&text), addresses),
            Source::Found(entries) => Self::of_entries(entries.iter().map(Option::as_ref), demangle, NOT_IN_TABLE),
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
        let entries = addresses.iter().map(|&address| map.find(address));
        Self::of_entries(entries, |name| name.into(), "not in the perf map")
    }

    /// What is at each address, with its name made `readable`, or this reason.
    fn of_entries<'e>(
        entries: impl Iterator<Item = Option<&'e Entry>>,
        readable: fn(&str) -> Box<str>,
        reason: &str,
    ) -> Self {
        let mut symbols = Self::default();
        for (index, entry) in (0..).zip(entries) {
            let Some(entry) = entry else {
                symbols.misses.push((index, reason.to_owned()));
                continue;
            };
            let function = Function {
                name: readable(&entry.name),
                system_name: entry.name.as_str().into(),
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
    /// A function, and no more is known.
    pub(super) fn plain(address: u32, function: u32) -> Self {
        Self {
            address,
            depth: 0,
            function,
            line: 0,
            column: 0,
        }
    }
}
