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
const CAME_WITH: [(&str, u8); 6] = [
    ("PyIter_Send", 10),
    ("PyObject_CallNoArgs", 9),
    ("PyCode_NewWithPosOnlyArgs", 8),
    ("PyContextVar_New", 7),
    ("PyOS_FSPath", 6),
    ("PyNumber_MatrixMultiply", 5),
];

/// Older ones are not told apart, of Python 2 none.
const OLDEST: Version = Version::of_minor(4);
const PYTHON_2: Version = Version::of(2, 7);
/// A function of Python 2 alone.
const PYTHON_2_HAS: &str = "PyInt_FromLong";

/// What every CPython has, also those before 3.7, which have no `_PyRuntime`.
const ALWAYS_THERE: [&str; 2] = ["PyEval_EvalFrameEx", "Py_GetVersion"];

/// A function of every build that counts references (`Py_DEBUG`), whose objects and states have other layouts.
const DEBUG_BUILDS_HAVE: &str = "_Py_NegativeRefcount";

/// What a file says of the interpreter in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Which CPython it is.
    pub version: Version,
    /// `_PyRuntime`, that everything is found from. 0 before 3.7, which can only be named.
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
    /// anything else.
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
    let Some(runtime) = runtime(&symbols) else {
        return without_runtime(&symbols);
    };
    let evaluation = evaluation(file, &symbols);
    let version = version(&symbols, runtime);
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

fn version(symbols: &Symbols, runtime: u64) -> Version {
    let constant = || symbols.contents(symbols.any("Py_Version")?.address)?.first_chunk();
    if let Some(constant) = constant() {
        return Version::from_hex(u32::from_le_bytes(*constant));
    }
    if let Some(version) = symbols.contents(runtime).and_then(version_in) {
        return version;
    }
    version_by_functions(symbols)
}

fn version_by_functions(symbols: &Symbols) -> Version {
    let since = CAME_WITH.iter().find(|(function, _)| symbols.any(function).is_some());
    since.map_or(OLDEST, |(_, minor)| Version::of_minor(*minor))
}

/// One that is too old to be read.
fn without_runtime(symbols: &Symbols) -> Option<Interpreter> {
    let has = |function: &str| symbols.exported(function).is_some();
    ALWAYS_THERE.iter().all(|function| has(function)).then(|| Interpreter {
        version: if has(PYTHON_2_HAS) {
            PYTHON_2
        } else {
            version_by_functions(symbols)
        },
        runtime: ObjectAddr(0),
        code_type: None,
        is_debug_build: false,
        evaluation: Vec::new(),
        has_tail_calls: false,
    })
}
