//! The machine's BPF programs as dictionaries, and their statistics.

use std::collections::HashMap;
use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use stackhound_capture::bpf::trial::Input;
use stackhound_capture::bpf::{self, Map, Program, Verified};

use crate::errors::{from_capture, native};

/// All programs; the keys are those of `_native.pyi`.
#[pyfunction]
pub fn bpf_programs(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let programs = py.detach(bpf::programs).map_err(from_capture)?;
    programs.into_iter().map(|program| program_dict(py, program)).collect()
}

/// Those with these numbers, without where they are attached and who holds them; the keys are the same.
#[pyfunction]
pub fn bpf_programs_alone(py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let programs = py.detach(|| bpf::programs_alone(&ids));
    programs.into_iter().map(|program| program_dict(py, program)).collect()
}

fn program_dict(py: Python<'_>, program: Program) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", program.id)?;
    dict.set_item("name", program.name)?;
    dict.set_item("type", program.kind)?;
    dict.set_item("tag", program.tag)?;
    dict.set_item("loaded_boottime_ns", program.loaded_boottime_ns)?;
    dict.set_item("uid", program.uid)?;
    dict.set_item("verified_instructions", program.verified_instructions)?;
    dict.set_item("instructions", program.instructions)?;
    dict.set_item("jited_bytes", program.jited_bytes)?;
    dict.set_item("memory_bytes", program.memory_bytes)?;
    dict.set_item("map_ids", program.map_ids)?;
    dict.set_item("functions", program.functions)?;
    dict.set_item("runs", program.runs)?;
    dict.set_item("run_ns", program.run_ns)?;
    dict.set_item("recursion_misses", program.recursion_misses)?;
    let attachments = program.attachments.into_iter().map(|one| (one.link_id, one.place));
    dict.set_item("attachments", attachments.collect::<Vec<_>>())?;
    let owners = program.owners.into_iter().map(|one| (one.pid, one.comm));
    dict.set_item("owners", owners.collect::<Vec<_>>())?;
    Ok(dict)
}

/// The maps with these numbers; the keys are those of `_native.pyi`.
#[pyfunction]
pub fn bpf_maps(py: Python<'_>, ids: Vec<u32>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let maps = py.detach(|| bpf::maps(&ids));
    maps.into_iter().map(|map| map_dict(py, map)).collect()
}

fn map_dict(py: Python<'_>, map: Map) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", map.id)?;
    dict.set_item("name", map.name)?;
    dict.set_item("type", map.kind)?;
    dict.set_item("key_bytes", map.key_bytes)?;
    dict.set_item("value_bytes", map.value_bytes)?;
    dict.set_item("max_entries", map.max_entries)?;
    dict.set_item("memory_bytes", map.memory_bytes)?;
    dict.set_item("entries", map.entries)?;
    Ok(dict)
}

/// The kernel's statistics of programs, switched on until `close`.
#[pyclass(module = "stackhound._native")]
pub struct BpfStatistics(Option<bpf::Statistics>);

#[pymethods]
impl BpfStatistics {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        Ok(Self(Some(py.detach(bpf::Statistics::begin).map_err(from_capture)?)))
    }

    /// What they take of each run, in ns: what they count as the program's own, and all.
    fn overhead(&self) -> PyResult<(f64, f64)> {
        let overhead = self.open()?.overhead();
        Ok((overhead.counted_ns, overhead.whole_ns))
    }

    /// (id, runs, run_ns, recursion_misses) of each program.
    fn read(&self, py: Python<'_>) -> PyResult<Vec<(u32, u64, u64, u64)>> {
        let statistics = self.open()?;
        let counts = py.detach(|| statistics.read());
        let rows = counts.into_iter();
        Ok(rows
            .map(|one| (one.id, one.runs, one.run_ns, one.recursion_misses))
            .collect())
    }

    /// Switches them off.
    fn close(&mut self) {
        self.0 = None;
    }
}

impl BpfStatistics {
    fn open(&self) -> PyResult<&bpf::Statistics> {
        let closed = || native("recording", "the statistics are switched off", "begin anew");
        self.0.as_ref().ok_or_else(closed)
    }
}

/// (name, section, type) of the programs in an object file.
#[pyfunction]
pub fn bpf_contents(py: Python<'_>, path: PathBuf) -> PyResult<Vec<(String, String, String)>> {
    let programs = py.detach(|| bpf::contents(&path)).map_err(from_capture)?;
    Ok(programs
        .into_iter()
        .map(|one| (one.name, one.section, one.kind))
        .collect())
}

/// An object file of somebody else's, loaded.
#[pyclass(module = "stackhound._native", unsendable)]
pub struct BpfObject {
    object: Option<bpf::Object>,
    verified: HashMap<String, Verified>,
}

#[pymethods]
impl BpfObject {
    #[new]
    fn new(path: PathBuf, programs: Vec<String>, in_words: bool) -> PyResult<Self> {
        let (object, verified) = bpf::Object::load(&path, &programs, in_words).map_err(from_capture)?;
        Ok(Self { object, verified })
    }

    /// A program that does nothing, `NOTHING`, to be attached as those of a section are.
    #[staticmethod]
    fn nothing(section: &str, return_value: u32) -> PyResult<Self> {
        let object = bpf::Object::nothing(section, return_value).map_err(from_capture)?;
        Ok(Self {
            object: Some(object),
            verified: HashMap::new(),
        })
    }

    #[classattr]
    const NOTHING: &'static str = bpf::NOTHING;

    /// Whether the kernel took it.
    fn is_loaded(&self) -> bool {
        self.object.is_some()
    }

    /// (the verifier's words, why it was refused or '') of each program.
    fn verified(&self) -> HashMap<String, (String, String)> {
        let said = |one: &Verified| (one.log.clone(), one.refusal.clone().unwrap_or_default());
        self.verified
            .iter()
            .map(|(name, one)| (name.clone(), said(one)))
            .collect()
    }

    fn id(&self, program: &str) -> PyResult<u32> {
        self.loaded()?.id(program).map_err(from_capture)
    }

    /// (instructions after the verifier, bytes of machine code)
    fn sizes(&self, program: &str) -> PyResult<(u32, u32)> {
        self.loaded()?.sizes(program).map_err(from_capture)
    }

    /// (return value, ns for the call) of running the program `repeat` times.
    fn run(&self, program: &str, data: &[u8], context: &[u8], repeat: u32) -> PyResult<(u32, u64)> {
        let input = Input { data, context, repeat };
        let ran = self.loaded()?.run(program, input).map_err(from_capture)?;
        Ok((ran.return_value, ran.elapsed_ns))
    }

    /// The same of a program of its kind that only returns a value.
    fn run_empty(
        &mut self,
        program: &str,
        data: &[u8],
        context: &[u8],
        repeat: u32,
        return_value: u32,
    ) -> PyResult<(u32, u64)> {
        let input = Input { data, context, repeat };
        let ran = self
            .loaded_mut()?
            .run_empty(program, input, return_value)
            .map_err(from_capture)?;
        Ok((ran.return_value, ran.elapsed_ns))
    }

    /// The kernel's number of that program.
    fn empty_id(&mut self, program: &str, return_value: u32) -> PyResult<u32> {
        self.loaded_mut()?.empty_id(program, return_value).map_err(from_capture)
    }

    fn update(&mut self, map: &str, key: &[u8], value: &[u8]) -> PyResult<()> {
        self.loaded_mut()?.update(map, key, value).map_err(from_capture)
    }

    fn attach(&mut self, program: &str, interface: &str) -> PyResult<()> {
        self.loaded_mut()?.attach(program, interface).map_err(from_capture)
    }

    fn detach(&mut self, program: &str) -> PyResult<()> {
        self.loaded_mut()?.detach(program);
        Ok(())
    }

    /// Unloads it.
    fn close(&mut self) {
        self.object = None;
    }
}

impl BpfObject {
    fn loaded(&self) -> PyResult<&bpf::Object> {
        self.object.as_ref().ok_or_else(not_loaded)
    }

    fn loaded_mut(&mut self) -> PyResult<&mut bpf::Object> {
        self.object.as_mut().ok_or_else(not_loaded)
    }
}

fn not_loaded() -> PyErr {
    native("kernel", "the object is not loaded", "see what the verifier said")
}
