//! Questions of a symbol server.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use stackhound_capture::Guard;
use stackhound_core::code;
use stackhound_core::symbolize::{DebugDirs, FoundFunction};

use crate::errors::{from_core, native};

/// (name, source file, line, column, start, size)
type FunctionTuple = (String, String, u32, u32, u64, u64);

/// (machine, bytes, (offset, text) of each instruction)
type ListingTuple = (&'static str, u64, Vec<(u64, String)>);

/// Reads ELF files and their debug files; keeps what it parsed.
#[pyclass(frozen, module = "stackhound._native")]
pub struct CodeReader {
    reader: code::CodeReader,
    _guard: Guard,
}

#[pymethods]
impl CodeReader {
    #[new]
    fn new(debug_dirs: Vec<PathBuf>) -> PyResult<Self> {
        let guard = Guard::new().map_err(|error| native("recording", error, ""))?;
        Ok(Self {
            reader: code::CodeReader::new(DebugDirs::new(&debug_dirs, None)),
            _guard: guard,
        })
    }

    fn functions(
        &self,
        py: Python<'_>,
        path: PathBuf,
        build_id: String,
        addresses: Vec<u64>,
    ) -> PyResult<Vec<Vec<FunctionTuple>>> {
        let file = code::CodeFile { path, build_id };
        let found = py.detach(|| self.reader.functions_at(file, addresses));
        let functions = found.map_err(from_core)?.into_iter();
        Ok(functions.map(|one| one.into_iter().map(function).collect()).collect())
    }

    fn instructions(
        &self,
        py: Python<'_>,
        path: PathBuf,
        build_id: String,
        start: u64,
        size: u64,
        whole: bool,
    ) -> PyResult<ListingTuple> {
        let file = code::CodeFile { path, build_id };
        let listing = py.detach(|| self.reader.instructions(file, start, size, whole));
        let listing = listing.map_err(from_core)?;
        let instructions = listing.instructions.into_iter().map(|one| (one.offset, one.text));
        Ok((listing.machine, listing.bytes, instructions.collect()))
    }

    fn source_md5<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        build_id: String,
        address: u64,
        source: PathBuf,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let file = code::CodeFile { path, build_id };
        let found = py.detach(|| self.reader.source_md5(file, address, source));
        Ok(found.map_err(from_core)?.map(|sum| PyBytes::new(py, &sum)))
    }
}

fn function(found: FoundFunction) -> FunctionTuple {
    (
        found.name,
        found.file,
        found.line,
        found.column,
        found.start,
        found.size,
    )
}
