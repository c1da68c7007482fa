//! Parquet bytes to tables, with bounds.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, StringViewArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ParquetMetaData;

use super::last_ns::restore_last_ns;
use super::pages::unfolded_bytes;
use crate::Error;
use crate::guard::guarded;

/// Decoded bytes that any file may have, however small: the samples of an hour of one busy CPU.
const FREE_DECODED_BYTES: u64 = 256 << 20;

/// Decoded bytes for each byte of the file beyond that. A sample is 66 bytes decoded, and needs two for its time
/// even when nothing else of it changes: a ratio of 33.
const MAX_RATIO: u64 = 64;

/// Bytes that one row of a column takes when decoded, beside its text: an Arrow string view.
const ROW_BYTES: u64 = 16;

/// Read a table. Fails on anything that is not Parquet, or would take unreasonable memory.
pub fn read_parquet(data: Bytes) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
    // The parquet crate asserts in several places what only an intact file guarantees.
    let decoded = guarded(|| decode(data)).unwrap_or_else(|| Err(Error::damaged("a table is corrupted")));
    let (schema, batches) = decoded?;
    restore_last_ns(schema, batches)
}

fn decode(data: Bytes) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
    let mut budget = FREE_DECODED_BYTES.saturating_add((data.len() as u64).saturating_mul(MAX_RATIO));
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = ArrowReaderMetadata::load(&data, options).map_err(Error::damaged)?;
    let rows = count_rows(metadata.metadata())?;
    let columns = metadata.metadata().file_metadata().schema_descr().num_columns() as u64;
    spend(&mut budget, rows.saturating_mul(columns).saturating_mul(ROW_BYTES))?;
    spend(&mut budget, unfolded_bytes(&data, metadata.metadata())?)?;
    let schema = metadata.schema().clone();
    let options = ArrowReaderOptions::new().with_schema(with_views(&schema));
    let metadata = ArrowReaderMetadata::try_new(metadata.metadata().clone(), options).map_err(Error::damaged)?;
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(data, metadata);
    let reader = reader
        .with_batch_size(rows.max(1) as usize)
        .build()
        .map_err(Error::damaged)?;
    let batches = reader.map(|batch| without_views(&schema, &batch.map_err(Error::damaged)?, &mut budget));
    Ok((schema.clone(), batches.collect::<Result<_, _>>()?))
}

fn count_rows(metadata: &ParquetMetaData) -> Result<u64, Error> {
    let rows = metadata
        .row_groups()
        .iter()
        .map(|group| u64::try_from(group.num_rows()));
    let rows: Vec<u64> = rows.collect::<Result<_, _>>().map_err(Error::damaged)?;
    Ok(rows.into_iter().fold(0, u64::saturating_add))
}

fn spend(budget: &mut u64, bytes: u64) -> Result<(), Error> {
    let left = budget.checked_sub(bytes);
    *budget = left.ok_or_else(|| Error::damaged("a table claims more than its file can hold"))?;
    Ok(())
}

/// Text as views into the pages, because a short dictionary may unfold to any length.
fn with_views(schema: &Schema) -> SchemaRef {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Utf8 => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View)),
        _ => Arc::clone(field),
    });
    Arc::new(Schema::new(fields.collect::<Vec<Arc<Field>>>()))
}

fn without_views(schema: &SchemaRef, batch: &RecordBatch, budget: &mut u64) -> Result<RecordBatch, Error> {
    let columns = batch
        .columns()
        .iter()
        .map(|column| match column.as_any().downcast_ref::<StringViewArray>() {
            Some(views) => unfold(views, budget),
            None => Ok(Arc::clone(column)),
        });
    RecordBatch::try_new(schema.clone(), columns.collect::<Result<_, _>>()?).map_err(Error::damaged)
}

fn unfold(views: &StringViewArray, budget: &mut u64) -> Result<ArrayRef, Error> {
    let bytes = views.lengths().map(u64::from).sum();
    spend(budget, bytes)?;
    if bytes > i32::MAX as u64 {
        return Err(Error::damaged("a column has more than 2 GiB of text"));
    }
    Ok(Arc::new(views.iter().collect::<StringArray>()))
}
