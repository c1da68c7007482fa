//! Machine code as text.

use hashbrown::HashMap;

use super::{arm64, x86_64};
use crate::Error;
use crate::image::{Image, Machine};
use crate::symbolize::SymbolFile;

/// Bytes to show at a time. The largest functions, of interpreters, have 100 kB.
const MAX_BYTES: u64 = 1 << 20;

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// From the listing's start.
    pub offset: u64,
    /// In the syntax of the machine's maker: Intel's, Arm's.
    pub text: String,
}

/// A part of a file's code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// `x86_64` or `aarch64`.
    pub machine: &'static str,
    /// Bytes that the instructions take.
    pub bytes: u64,
    /// In the order of their addresses.
    pub instructions: Vec<Instruction>,
}

/// An instruction as it was decoded.
pub(super) struct Decoded {
    pub(super) address: u64,
    pub(super) text: String,
    /// Where it jumps to or calls, if it says so itself.
    pub(super) target: Option<u64>,
}

impl Listing {
    pub(super) fn read(file: &SymbolFile, start: u64, bytes: u64, whole: bool) -> Result<Self, Error> {
        let contents = file
            .contents()
            .ok_or_else(|| Error::refused("the file cannot be read"))?;
        let image = Image::parse(&contents)?;
        let end = end_of(file, start, bytes, whole).min(start.saturating_add(MAX_BYTES));
        let code = code_at(&image, start, end)?;
        let (machine, mut decoded) = match image.machine {
            Machine::X86_64 => ("x86_64", x86_64::decode(code, start)),
            Machine::Arm64 => ("aarch64", arm64::decode(code, start)),
        };
        name_targets(file, &mut decoded, start..start + code.len() as u64);
        let instructions = decoded.into_iter().map(|one| Instruction {
            offset: one.address - start,
            text: one.text,
        });
        Ok(Self {
            machine,
            bytes: code.len() as u64,
            instructions: instructions.collect(),
        })
    }
}

/// Where to stop: behind the function, or behind as many bytes as were asked for.
fn end_of(file: &SymbolFile, start: u64, bytes: u64, whole: bool) -> u64 {
    let asked = start.saturating_add(bytes);
    if !whole {
        return asked;
    }
    let functions = file.functions_at(&[start], false).pop().unwrap_or_default();
    let known = functions.last().filter(|function| function.size > 0);
    known.map_or(asked, |function| {
        function.start.saturating_add(function.size).max(asked)
    })
}

fn code_at<'f>(image: &Image<'f>, start: u64, end: u64) -> Result<&'f [u8], Error> {
    let is_code = image.code().iter().any(|range| range.contains(&start));
    let loaded = image.loaded(start).filter(|_| is_code && start < end);
    let loaded = loaded.ok_or_else(|| Error::refused("there is no code at this address"))?;
    Ok(&loaded[..loaded.len().min((end - start) as usize)])
}

/// Say what is called, and what is jumped to elsewhere: ` <malloc@plt>`, ` <parse+0x12>`.
fn name_targets(file: &SymbolFile, decoded: &mut [Decoded], here: std::ops::Range<u64>) {
    let outside = |one: &Decoded| {
        one.target
            .filter(|target| !here.contains(target) || *target == here.start)
    };
    let targets: Vec<u64> = decoded.iter().filter_map(outside).collect();
    let names: HashMap<u64, String> = targets
        .iter()
        .zip(file.functions_at(&targets, false))
        .filter_map(|(&target, functions)| {
            let function = functions.last()?;
            let beyond = target.saturating_sub(function.start);
            let beyond = if beyond == 0 {
                String::new()
            } else {
                format!("+{beyond:#x}")
            };
            Some((target, format!(" <{}{beyond}>", function.name)))
        })
        .collect();
    for one in decoded {
        if let Some(name) = outside(one).and_then(|target| names.get(&target)) {
            one.text.push_str(name);
        }
    }
}
