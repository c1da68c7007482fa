//! What was found out about the addresses of one object.

use super::demangle::{demangle, shorten};
use super::functions::Function;
use super::lookup::NOT_IN_TABLE;
use super::{Made, Source};
use crate::perfmap::Entry;
use crate::python::Code;

/// Behind the name of a function that nobody executes.
const AWAITS: &str = " [awaits]";

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
            Source::Found(entries) => {
                Self::of_functions(entries.iter().map(Option::as_ref).map(of_entry), NOT_IN_TABLE)
            }
            Source::Made(found, reason) => Self::of_functions(found.iter().map(Option::as_ref).map(of_made), reason),
            Source::Named(name) => Self::named(&name, addresses),
            Source::Python(code) => Self::of_code(&code, code.shown_name(), addresses),
            Source::Awaiting(code) => Self::of_code(&code, code.shown_name() + AWAITS, addresses),
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

    /// One function, with a line for each address.
    fn of_code(code: &Code, name: String, addresses: &[u64]) -> Self {
        let function = Function {
            name: name.into(),
            system_name: code.name.as_str().into(),
            file: code.file.as_str().into(),
            address: 0,
            size: 0,
        };
        let frame = |(index, address): (u32, &u64)| {
            let position = code.position(i64::try_from(*address).unwrap_or(0));
            Frame {
                line: position.line.unwrap_or(0),
                column: position.column.map_or(0, |before| before + 1),
                ..Frame::plain(index, 0)
            }
        };
        Self {
            functions: vec![function],
            frames: (0..).zip(addresses).map(frame).collect(),
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

    /// What is at each address, with the line of it, or this reason.
    fn of_functions(found: impl Iterator<Item = Option<(Function, u32)>>, reason: &str) -> Self {
        let mut symbols = Self::default();
        for (index, found) in (0..).zip(found) {
            let Some((function, line)) = found else {
                symbols.misses.push((index, reason.to_owned()));
                continue;
            };
            if symbols.functions.last() != Some(&function) {
                symbols.functions.push(function);
            }
            symbols.frames.push(Frame {
                line,
                ..Frame::plain(index, symbols.functions.len() as u32 - 1)
            });
        }
        symbols
    }
}

fn of_entry(entry: Option<&Entry>) -> Option<(Function, u32)> {
    let entry = entry?;
    let function = Function {
        name: demangle(&entry.name),
        system_name: entry.name.as_str().into(),
        file: "".into(),
        address: entry.start,
        size: entry.size,
    };
    Some((function, 0))
}

/// Names of made code are as the runtime writes them.
fn of_made(made: Option<&Made>) -> Option<(Function, u32)> {
    let Made { entry, file, line } = made?;
    let function = Function {
        name: entry.name.as_str().into(),
        system_name: entry.name.as_str().into(),
        file: file.as_str().into(),
        address: entry.start,
        size: entry.size,
    };
    Some((function, *line))
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
