//! Tables and what is computed from them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::types::{UInt32Type, UInt64Type};
use arrow_array::{ArrayRef, RecordBatch, UInt16Array, UInt32Array, UInt64Array};
use bytes::Bytes;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use stackhound_core::calltree::{self, FrameTable, Weights};
use stackhound_core::columns::TableSet;
use stackhound_core::paths::{self, StackTree};
use stackhound_core::{hashes, parquet, pprof};

use crate::arrow::{Batches, Numbers, PyArray, PyStream};
use crate::errors::{from_core, native};

/// Tables by name, each handed over once.
#[pyclass(frozen, module = "stackhound._native")]
pub struct Tables(Mutex<Vec<(&'static str, RecordBatch)>>);

impl Tables {
    /// These tables.
    pub fn new(tables: Vec<(&'static str, RecordBatch)>) -> Self {
        Self(Mutex::new(tables))
    }
}

#[pymethods]
impl Tables {
    fn names(&self) -> Vec<&'static str> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(name, _)| *name)
            .collect()
    }

    fn take(&self, name: &str) -> PyResult<PyStream> {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = tables.iter().position(|(table, _)| *table == name);
        let (_, batch) = tables.remove(at.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?);
        Ok(batch.into())
    }
}

/// Read a table. `NativeError` "damaged" when `data` is no Parquet, or would take unreasonable memory.
#[pyfunction]
pub fn read_parquet(py: Python<'_>, data: PyBackedBytes) -> PyResult<PyStream> {
    let data = Bytes::from_owner(data);
    let (schema, batches) = py.detach(|| parquet::read_parquet(data)).map_err(from_core)?;
    Ok(PyStream::new(schema, batches))
}

/// A table as Parquet, zstd-compressed; `sorted_samples` when it is the samples in the order of their time.
#[pyfunction]
#[pyo3(signature = (table, sorted_samples=false))]
pub fn write_parquet(py: Python<'_>, table: Batches, sorted_samples: bool) -> PyResult<Bound<'_, PyBytes>> {
    let Batches { schema, batches } = table;
    let bytes = py
        .detach(|| parquet::write_parquet(schema, &batches, sorted_samples))
        .map_err(from_core)?;
    Ok(PyBytes::new(py, &bytes))
}

/// Merge samples into one tree of frames.
#[pyfunction]
#[pyo3(signature = (*, root, stack, value, stack_parent, stack_location, frame_offsets, frames))]
#[expect(clippy::too_many_arguments, reason = "the columns of four tables, by name")]
pub fn call_tree(
    py: Python<'_>,
    root: Option<Numbers<UInt32Type>>,
    stack: Numbers<UInt32Type>,
    value: Numbers<UInt64Type>,
    stack_parent: Numbers<UInt32Type>,
    stack_location: Numbers<UInt32Type>,
    frame_offsets: Numbers<UInt32Type>,
    frames: Numbers<UInt32Type>,
) -> PyResult<PyStream> {
    let merged = py.detach(|| {
        let weights = Weights {
            root: root.as_ref().map(|root| &root.0.values()[..]),
            stack: stack.0.values(),
            value: value.0.values(),
        };
        let stacks = StackTree::new(stack_parent.0.values(), stack_location.0.values())?;
        calltree::call_tree(
            &weights,
            stacks,
            FrameTable::new(frame_offsets.0.values(), frames.0.values())?,
        )
    });
    let tree = merged.map_err(from_core)?;
    table([
        ("parent", Arc::new(UInt32Array::from(tree.parent))),
        ("frame", Arc::new(UInt32Array::from(tree.frame))),
        ("depth", Arc::new(UInt32Array::from(tree.depth))),
        ("self", Arc::new(UInt64Array::from(tree.self_value))),
        ("total", Arc::new(UInt64Array::from(tree.total_value))),
    ])
}

/// Build a prefix tree of paths given root → leaf. Returns it and each path's stack id.
#[pyfunction]
#[pyo3(signature = (*, offsets, locations))]
pub fn intern_paths(
    py: Python<'_>,
    offsets: Numbers<UInt32Type>,
    locations: Numbers<UInt32Type>,
) -> PyResult<(PyStream, PyArray)> {
    let interned = py.detach(|| paths::intern_paths(offsets.0.values(), locations.0.values()));
    let (tree, ids) = interned.map_err(from_core)?;
    let (parent, location, depth) = tree.into_columns();
    let tree = table([
        ("parent", Arc::new(UInt32Array::from(parent))),
        ("location", Arc::new(UInt32Array::from(location))),
        ("depth", Arc::new(UInt16Array::from(depth))),
    ])?;
    Ok((tree, PyArray::new(UInt32Array::from(ids))))
}

/// The path root → leaf of every stack, as (offsets, locations).
#[pyfunction]
#[pyo3(signature = (*, stack_parent, stack_location))]
pub fn stack_paths(
    py: Python<'_>,
    stack_parent: Numbers<UInt32Type>,
    stack_location: Numbers<UInt32Type>,
) -> PyResult<(PyArray, PyArray)> {
    let paths = py.detach(|| StackTree::new(stack_parent.0.values(), stack_location.0.values())?.paths());
    let (offsets, locations) = paths.map_err(from_core)?;
    Ok((
        PyArray::new(UInt32Array::from(offsets)),
        PyArray::new(UInt32Array::from(locations)),
    ))
}

/// The hash of every stack's contents. `objects` are (kind, build-id or path).
#[pyfunction]
#[pyo3(signature = (*, stack_parent, stack_location, location_object, location_address, objects))]
pub fn stack_hashes(
    py: Python<'_>,
    stack_parent: Numbers<UInt32Type>,
    stack_location: Numbers<UInt32Type>,
    location_object: Numbers<UInt32Type>,
    location_address: Numbers<UInt64Type>,
    objects: Vec<(String, String)>,
) -> PyResult<PyArray> {
    let hashed = py.detach(|| {
        let stacks = StackTree::new(stack_parent.0.values(), stack_location.0.values())?;
        hashes::hash_stacks(
            stacks,
            location_object.0.values(),
            location_address.0.values(),
            &objects,
        )
    });
    Ok(PyArray::new(UInt64Array::from(hashed.map_err(from_core)?)))
}

fn table<const N: usize>(columns: [(&str, ArrayRef); N]) -> PyResult<PyStream> {
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, false)));
    Ok(batch.map_err(|error| native("output", error, ""))?.into())
}

/// What `encode_pprof` is told beside the tables.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct PprofOptions {
    time_unix_ns: i64,
    duration_ns: i64,
    period: i64,
    comments: Vec<String>,
}

/// One event's samples as an uncompressed pprof protobuf.
#[pyfunction]
pub fn encode_pprof<'py>(
    py: Python<'py>,
    tables: HashMap<String, Batches>,
    event: u16,
    options: PprofOptions,
) -> PyResult<Bound<'py, PyBytes>> {
    let PprofOptions {
        time_unix_ns,
        duration_ns,
        period,
        comments,
    } = options;
    let options = pprof::Options {
        time_unix_ns,
        duration_ns,
        period,
        comments,
    };
    let encoded = py.detach(|| {
        let mut set = TableSet::default();
        for (name, Batches { schema, batches }) in tables {
            set.insert(name, &schema, &batches)?;
        }
        pprof::encode_pprof(&set, event, &options)
    });
    Ok(PyBytes::new(py, &encoded.map_err(from_core)?))
}
