//! Arrow data across the language boundary without a copy: the PyCapsule interface.
//!
//! Source: <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>

use std::ffi::CStr;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, RecordBatchIterator, StructArray, make_array};
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::native;

const ARRAY: &CStr = c"arrow_array";
const SCHEMA: &CStr = c"arrow_schema";
const STREAM: &CStr = c"arrow_array_stream";

/// A table on its way to Python, which may read it more than once.
#[pyclass(frozen, name = "ArrowStream", module = "stackhound._native")]
pub struct PyStream {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl PyStream {
    /// A table of these batches.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }
}

impl From<RecordBatch> for PyStream {
    fn from(batch: RecordBatch) -> Self {
        Self::new(batch.schema(), vec![batch])
    }
}

#[pymethods]
impl PyStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema); // a producer may ignore it
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, self.schema.clone());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
    }
}

/// A column on its way to Python, which may read it more than once.
#[pyclass(frozen, name = "ArrowArray", module = "stackhound._native")]
pub struct PyArray(ArrayRef);

impl PyArray {
    /// This column.
    pub fn new(array: impl Array + 'static) -> Self {
        Self(std::sync::Arc::new(array))
    }
}

#[pymethods]
impl PyArray {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        drop(requested_schema); // a producer may ignore it
        let (array, schema) = to_ffi(&self.0.to_data()).map_err(|error| native("output", error, ""))?;
        Ok((
            PyCapsule::new_with_value(py, schema, SCHEMA)?,
            PyCapsule::new_with_value(py, array, ARRAY)?,
        ))
    }
}

/// A column of numbers from anything that exports an Arrow array (or a stream of a single column's chunks).
pub struct Numbers<T: ArrowPrimitiveType>(pub PrimitiveArray<T>);

impl<T: ArrowPrimitiveType> FromPyObject<'_, '_> for Numbers<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let array = import_array(&object)?;
        match array.as_any().downcast_ref::<PrimitiveArray<T>>() {
            Some(numbers) if numbers.null_count() == 0 => Ok(Self(numbers.clone())),
            Some(_) => Err(native("usage", "an array of numbers has nulls", "")),
            None => Err(native(
                "usage",
                format!("expected {}, not {}", T::DATA_TYPE, array.data_type()),
                "",
            )),
        }
    }
}

/// A table from anything that exports an Arrow stream, or an array of structs.
pub struct Batches {
    /// The columns.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: Vec<RecordBatch>,
}

impl FromPyObject<'_, '_> for Batches {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if object.hasattr("__arrow_c_stream__")? {
            import_stream(&object)
        } else {
            import_struct(&object)
        }
    }
}

fn import_stream(object: &Bound<'_, PyAny>) -> PyResult<Batches> {
    let capsule = object.call_method0("__arrow_c_stream__")?;
    // SAFETY: the capsule's name says that it holds a stream; taking it leaves a released one behind.
    let stream = unsafe { take(&capsule, STREAM, FFI_ArrowArrayStream::empty())? };
    let reader = RecordBatchStreamReader::try_new(stream).map_err(unreadable)?;
    let schema = arrow_array::RecordBatchReader::schema(&reader);
    let batches = reader.collect::<Result<_, _>>().map_err(unreadable)?;
    Ok(Batches { schema, batches })
}

fn import_struct(object: &Bound<'_, PyAny>) -> PyResult<Batches> {
    let array = import_array(object)?;
    let rows = array.as_any().downcast_ref::<StructArray>();
    let batch = RecordBatch::from(rows.ok_or_else(|| native("usage", "expected an Arrow table", ""))?);
    Ok(Batches {
        schema: batch.schema(),
        batches: vec![batch],
    })
}

fn import_array(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    if !object.hasattr("__arrow_c_array__")? {
        return Err(native(
            "usage",
            format!("expected an Arrow array, not {}", object.get_type().name()?),
            "",
        ));
    }
    let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = object.call_method0("__arrow_c_array__")?.extract()?;
    // SAFETY: the capsules' names say what they hold; taking it leaves a released one behind. The producer
    // vouches for its contents, as the interface demands.
    let data = unsafe {
        let schema = take(&schema, SCHEMA, FFI_ArrowSchema::empty())?;
        let array = take(&array, ARRAY, FFI_ArrowArray::empty())?;
        from_ffi(array, &schema).map_err(unreadable)?
    };
    Ok(make_array(data))
}

/// Move the value out of a capsule.
///
/// # Safety
/// A capsule of this name must hold a `T`.
unsafe fn take<T>(capsule: &Bound<'_, PyAny>, name: &CStr, released: T) -> PyResult<T> {
    let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(name))?;
    // SAFETY: the caller vouches for the type, the name was checked, and the GIL keeps others away.
    Ok(unsafe { pointer.cast::<T>().replace(released) })
}

fn unreadable(error: arrow_schema::ArrowError) -> PyErr {
    native("usage", format!("an Arrow table or array cannot be read: {error}"), "")
}
