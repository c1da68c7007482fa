//! The Python module `stackhound._native`: conversion, GIL release, error mapping, nothing else.

mod arrow;
mod bpf;
mod code;
mod errors;
mod inspection;
mod session;
mod tables;

/// What `src/stackhound/_native.pyi` promises.
#[pyo3::pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::arrow::{PyArray, PyStream};
    #[pymodule_export]
    use crate::bpf::{BpfObject, BpfStatistics, bpf_contents, bpf_maps, bpf_programs, bpf_programs_alone};
    #[pymodule_export]
    use crate::code::CodeReader;
    #[pymodule_export]
    use crate::errors::NativeError;
    #[pymodule_export]
    use crate::inspection::inspect_process;
    #[pymodule_export]
    use crate::session::{
        Session, build_id, dump, heap_library, list_events, probe, probe_block_io, probe_event, probe_heap,
        probe_off_cpu,
    };
    #[pymodule_export]
    use crate::tables::{
        Tables, call_tree, encode_pprof, intern_paths, read_parquet, stack_hashes, stack_paths, write_parquet,
    };

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::errors::quiet_expected_panics();
        Ok(())
    }
}
