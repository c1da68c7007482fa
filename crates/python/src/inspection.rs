//! What a running process offers of its code, as dictionaries.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stackhound_capture::inspection::{self as capture, MappedCode};

use crate::errors::from_capture;

/// See `src/stackhound/_native.pyi`.
#[pyfunction]
pub fn inspect_process(py: Python<'_>, pid: u32) -> PyResult<Bound<'_, PyDict>> {
    let found = py.detach(|| capture::inspect_process(pid)).map_err(from_capture)?;
    let mappings: Vec<_> = found
        .mappings
        .iter()
        .map(|one| mapping(py, one))
        .collect::<PyResult<_>>()?;
    let dict = PyDict::new(py);
    dict.set_item("comm", found.comm)?;
    dict.set_item("mappings", mappings)?;
    dict.set_item("perf_map_names", found.perf_map_names)?;
    dict.set_item("jitdump_codes", found.jitdump_codes)?;
    Ok(dict)
}

fn mapping<'py>(py: Python<'py>, found: &MappedCode) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("start", found.start)?;
    dict.set_item("end", found.end)?;
    dict.set_item("path", &found.path)?;
    dict.set_item("build_id", &found.inspection.build_id)?;
    dict.set_item("sections", &found.inspection.sections)?;
    dict.set_item("debug_link", &found.inspection.debug_link)?;
    dict.set_item("reason", &found.reason)?;
    Ok(dict)
}
