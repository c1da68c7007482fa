//! Whether a file is a CPython interpreter: a static `python3`, a `libpython3.x.so`, or a program that embeds one.

use std::ops::Range;

use super::debug_offsets::version_in;
use super::evaluation::{evaluation, has_tail_calls};
use super::symbols::Symbols;
use super::version::Version;
use crate::address::ObjectAddr;
use crate::guard::guarded;

/// Functions that came with a version and are part of its API, so that every build of it has them: for versions
/// before 3.11, which have no `Py_Version`. Newest first.
const CAME_WITH: [(&str, u8); 2] = [("PyIter_Send", 10), ("PyObject_CallNoArgs", 9)];

/// Older ones are not told apart.
const TOO_OLD: Version = Version::of_minor(8);

/// A function of every build that counts references (`Py_DEBUG`), whose objects and states have other layouts.
const DEBUG_BUILDS_HAVE: &str = "_Py_NegativeRefcount";

/// What a file says of the interpreter in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Which CPython it is.
    pub version: Version,
    /// `_PyRuntime`, that everything is found from.
    pub runtime: ObjectAddr,
    /// `PyCode_Type`: what tells a code object from anything else.
    pub code_type: Option<ObjectAddr>,
    /// Whether it was built for debugging CPython itself.
    pub is_debug_build: bool,
    /// The code that executes Python code, by address. Empty when the file does not say where it is.
    pub evaluation: Vec<Range<ObjectAddr>>,
    /// Whether that code calls a function for each instruction: of each call of it there are two native frames then, of
    /// which the evaluation loop is the outer one.
    pub has_tail_calls: bool,
}

impl Interpreter {
    /// The interpreter that is in an ELF file, whatever it is called. None when there is none.
    ///
    /// It is asked of every file that is sampled: most are told from their index of exported symbols, without reading
    /// anything else. Interpreters before 3.7 have no `_PyRuntime` and are not found.
    pub fn find(file: &[u8]) -> Option<Self> {
        guarded(|| find_unguarded(file))?
    }

    /// The part of the evaluation loop that an address is in.
    pub fn evaluation_at(&self, address: ObjectAddr) -> Option<Range<ObjectAddr>> {
        let part = self.evaluation.iter().find(|part| part.contains(&address));
        part.cloned()
    }
}

fn find_unguarded(file: &[u8]) -> Option<Interpreter> {
    let symbols = Symbols::read(file).ok()?;
    let runtime = runtime(&symbols)?;
    let evaluation = evaluation(file, &symbols);
    let version = version(&symbols, runtime)?;
    let has_tail_calls = has_tail_calls(version, &evaluation);
    Some(Interpreter {
        version,
        runtime: ObjectAddr(runtime),
        code_type: symbols.any("PyCode_Type").map(|symbol| ObjectAddr(symbol.address)),
        is_debug_build: symbols.any(DEBUG_BUILDS_HAVE).is_some(),
        evaluation: evaluation
            .into_iter()
            .map(|range| ObjectAddr(range.start)..ObjectAddr(range.end))
            .collect(),
        has_tail_calls,
    })
}

/// By its name, or since 3.13 by the section that it has for itself, should the name be gone.
fn runtime(symbols: &Symbols) -> Option<u64> {
    let named = symbols.any("_PyRuntime").map(|symbol| symbol.address);
    named.or_else(|| {
        let (address, contents) = symbols.section(".PyRuntime")?;
        version_in(contents).map(|_| address)
    })
}

fn version(symbols: &Symbols, runtime: u64) -> Option<Version> {
    let constant = || symbols.contents(symbols.any("Py_Version")?.address)?.first_chunk();
    if let Some(constant) = constant() {
        return Some(Version::from_hex(u32::from_le_bytes(*constant)));
    }
    if let Some(version) = symbols.contents(runtime).and_then(version_in) {
        return Some(version);
    }
    let since = CAME_WITH.iter().find(|(function, _)| symbols.any(function).is_some());
    Some(since.map_or(TOO_OLD, |(_, minor)| Version::of_minor(*minor)))
}
