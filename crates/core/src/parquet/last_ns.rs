//! `last_ns` in a file of samples: null where it is the same as `boottime_ns`, so that it takes no space where every
//! row is one observation.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Schema, SchemaRef};

use crate::Error;

/// Nulls for the times that `boottime_ns` tells already.
pub(super) fn drop_last_ns(batch: RecordBatch) -> Result<RecordBatch, Error> {
    let Some((time, last)) = time_columns(&batch.schema()) else {
        return Ok(batch);
    };
    let times = uint64(&batch, time)?.values();
    let lasts = uint64(&batch, last)?.iter();
    let column: UInt64Array = lasts
        .zip(times)
        .map(|(last, time)| last.filter(|last| last != time))
        .collect();
    replace(&batch, last, Arc::new(column), true)
}

/// The times in place of the nulls.
pub(super) fn restore_last_ns(
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
    let Some((time, last)) = time_columns(&schema).filter(|&(_, last)| schema.field(last).is_nullable()) else {
        return Ok((schema, batches));
    };
    let restored = batches.iter().map(|batch| {
        let times = uint64(batch, time)?.values();
        let lasts = uint64(batch, last)?.iter();
        let column = UInt64Array::from_iter_values(lasts.zip(times).map(|(last, time)| last.unwrap_or(*time)));
        replace(batch, last, Arc::new(column), false)
    });
    Ok((with_nullable(&schema, last, false), restored.collect::<Result<_, _>>()?))
}

fn time_columns(schema: &Schema) -> Option<(usize, usize)> {
    let column = |name| {
        schema
            .index_of(name)
            .ok()
            .filter(|&at| *schema.field(at).data_type() == DataType::UInt64)
    };
    Some((column("boottime_ns")?, column("last_ns")?))
}

fn uint64(batch: &RecordBatch, column: usize) -> Result<&UInt64Array, Error> {
    batch
        .column(column)
        .as_any()
        .downcast_ref()
        .ok_or_else(|| Error::damaged("a time is no uint64"))
}

fn with_nullable(schema: &Schema, at: usize, nullable: bool) -> SchemaRef {
    let mut fields = schema.fields().to_vec();
    fields[at] = Arc::new(fields[at].as_ref().clone().with_nullable(nullable));
    Arc::new(Schema::new(fields))
}

fn replace(batch: &RecordBatch, at: usize, column: ArrayRef, nullable: bool) -> Result<RecordBatch, Error> {
    let mut columns = batch.columns().to_vec();
    columns[at] = column;
    RecordBatch::try_new(with_nullable(&batch.schema(), at, nullable), columns).map_err(Error::output)
}
