//! Tables as Parquet bytes and back.

use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use ::parquet::arrow::arrow_writer::ArrowWriterOptions;
use ::parquet::basic::{Compression, Encoding, ZstdLevel};
use ::parquet::file::metadata::ParquetMetaData;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use ::parquet::schema::types::ColumnPath;
use arrow_array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use bytes::Bytes;

use crate::Error;
use crate::guard::guarded;

/// Decoded bytes that any file may have, however small: the samples of an hour of one busy CPU.
const FREE_DECODED_BYTES: usize = 256 << 20;

/// Decoded bytes for each byte of the file beyond that. A sample is 66 bytes decoded, and needs two for its time
/// even when nothing else of it changes: a ratio of 33.
const MAX_RATIO: usize = 64;

/// Bytes that one row of a column takes at least when decoded, whatever its type.
const MAX_FIXED_WIDTH: usize = 16;

/// zstd's own default.
const ZSTD_LEVEL: i32 = 3;

/// Read a table. Fails on anything that is not Parquet, or would take unreasonable memory.
pub fn read_parquet(data: Bytes) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
    // The parquet crate asserts in several places what only an intact file guarantees.
    let decoded = guarded(|| decode(data)).unwrap_or_else(|| Err(Error::damaged("a table is corrupted")));
    let (schema, batches) = decoded?;
    restore_last_ns(schema, batches)
}

fn decode(data: Bytes) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
    let limit = FREE_DECODED_BYTES.saturating_add(data.len().saturating_mul(MAX_RATIO));
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(data, options).map_err(Error::damaged)?;
    let rows = check_size(reader.metadata(), limit)?;
    let schema = reader.schema().clone();
    let reader = reader.with_batch_size(rows.max(1)).build().map_err(Error::damaged)?;
    let batches = reader.collect::<Result<_, _>>().map_err(Error::damaged)?;
    Ok((schema, batches))
}

/// The number of rows, if decoding them stays below `limit` bytes.
fn check_size(metadata: &ParquetMetaData, limit: usize) -> Result<usize, Error> {
    let columns = metadata.file_metadata().schema_descr().num_columns();
    let mut rows = 0usize;
    let mut bytes = 0usize;
    for group in metadata.row_groups() {
        let declared = usize::try_from(group.num_rows()).map_err(Error::damaged)?;
        rows = rows.saturating_add(declared);
        for column in group.columns() {
            let pages = usize::try_from(column.uncompressed_size()).map_err(Error::damaged)?;
            let values = usize::try_from(column.num_values()).map_err(Error::damaged)?;
            bytes = bytes.saturating_add(pages.max(values));
        }
    }
    bytes = bytes.saturating_add(rows.saturating_mul(columns).saturating_mul(MAX_FIXED_WIDTH));
    if bytes > limit {
        return Err(Error::damaged(format_args!(
            "a table claims {bytes} bytes, more than its file can hold"
        )));
    }
    Ok(rows)
}

/// Write a table, zstd-compressed.
///
/// With `sorted_samples` the rows are samples in the order of their time, and each column is encoded for what it
/// holds. There `last_ns` is null where it is the same as `boottime_ns`; [`read_parquet`] puts the time back.
pub fn write_parquet(schema: SchemaRef, batches: &[RecordBatch], sorted_samples: bool) -> Result<Vec<u8>, Error> {
    let table = concat_batches(&schema, batches).map_err(Error::output)?;
    let table = if sorted_samples { drop_last_ns(table)? } else { table };
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(
            ZstdLevel::try_new(ZSTD_LEVEL).map_err(Error::output)?,
        ))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for field in table.schema().fields() {
        properties = encode_column(properties, field, sorted_samples);
    }
    let options = ArrowWriterOptions::new()
        .with_properties(properties.build())
        .with_skip_arrow_metadata(true);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new_with_options(&mut bytes, table.schema(), options).map_err(Error::output)?;
    writer.write(&table).map_err(Error::output)?;
    writer.close().map_err(Error::output)?;
    Ok(bytes)
}

fn encode_column(properties: WriterPropertiesBuilder, field: &Field, sorted_samples: bool) -> WriterPropertiesBuilder {
    let path = ColumnPath::from(field.name().as_str());
    let increasing = matches!(
        field.name().as_str(),
        "id" | "boottime_ns" | "last_ns" | "parent" | "sample"
    );
    if increasing && field.data_type().is_integer() {
        properties
            .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
            .set_column_dictionary_enabled(path, false)
    } else if sorted_samples && field.name() == "stack" {
        properties.set_column_dictionary_enabled(path, false)
    } else {
        properties
    }
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

fn drop_last_ns(batch: RecordBatch) -> Result<RecordBatch, Error> {
    let Some((time, last)) = time_columns(&batch.schema()) else {
        return Ok(batch);
    };
    let times = uint64(&batch, time)?.values();
    let lasts = uint64(&batch, last)?.values();
    let column: UInt64Array = times
        .iter()
        .zip(lasts)
        .map(|(time, last)| (time != last).then_some(*last))
        .collect();
    replace(&batch, last, Arc::new(column), true)
}

fn restore_last_ns(schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<(SchemaRef, Vec<RecordBatch>), Error> {
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

#[cfg(test)]
mod tests {
    use arrow_array::{RecordBatch, StringArray, UInt16Array, UInt64Array};

    use super::*;

    fn samples(rows: u64) -> RecordBatch {
        let times: Vec<u64> = (0..rows).map(|row| 5_000_000_000 + row * 10_101_010).collect();
        let lasts: Vec<u64> = times
            .iter()
            .enumerate()
            .map(|(row, time)| time + u64::from(row == 3))
            .collect();
        RecordBatch::try_from_iter_with_nullable([
            (
                "id",
                Arc::new(UInt64Array::from_iter_values(0..rows)) as ArrayRef,
                false,
            ),
            ("event", Arc::new(UInt16Array::from(vec![0; rows as usize])), false),
            ("boottime_ns", Arc::new(UInt64Array::from(times)), false),
            ("last_ns", Arc::new(UInt64Array::from(lasts)), false),
        ])
        .unwrap()
    }

    fn round_trip(batch: &RecordBatch, sorted_samples: bool) -> RecordBatch {
        let bytes = write_parquet(batch.schema(), std::slice::from_ref(batch), sorted_samples).unwrap();
        let (schema, batches) = read_parquet(bytes.into()).unwrap();
        concat_batches(&schema, &batches).unwrap()
    }

    /// A table comes back as it was, with its types and nulls.
    #[test]
    fn a_table_survives_the_file() {
        let names = StringArray::from(vec![Some("main"), None, Some("ünï\u{1b}[0m"), Some("")]);
        let exits = UInt64Array::from(vec![None, Some(0), Some(u64::MAX), None]);
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("name", Arc::new(names) as ArrayRef, true),
            ("exit_boottime_ns", Arc::new(exits), true),
        ])
        .unwrap();
        assert_eq!(round_trip(&batch, false), batch);
        assert_eq!(round_trip(&batch.slice(0, 0), false), batch.slice(0, 0));
    }

    /// Samples come back as they were, also where `last_ns` differs from the time, and when there are none.
    #[test]
    fn samples_survive_the_file() {
        for rows in [0, 1, 5] {
            assert_eq!(round_trip(&samples(rows), true), samples(rows));
        }
    }

    /// Columns that say nothing cost nothing: 100,000 regular samples fit into a few hundred bytes a column.
    #[test]
    fn regular_columns_cost_nothing() {
        let batch = samples(100_000);
        let bytes = write_parquet(batch.schema(), &[batch], true).unwrap();
        assert!(bytes.len() < 4_000, "{} bytes", bytes.len());
    }

    /// Any truncation of a file is an error, and so is what was never one.
    #[test]
    fn truncated_files_are_refused() {
        let batch = samples(10);
        let bytes = write_parquet(batch.schema(), &[batch], true).unwrap();
        for end in 0..bytes.len() {
            assert!(
                read_parquet(Bytes::copy_from_slice(&bytes[..end])).is_err(),
                "{end} bytes"
            );
        }
        assert!(read_parquet(Bytes::from_static(b"PAR1\xff\xff\xff\xffPAR1")).is_err());
    }

    /// A flipped byte gives an error or other data, never a panic.
    #[test]
    fn corrupted_files_do_no_harm() {
        let batch = samples(10);
        let bytes = write_parquet(batch.schema(), &[batch], true).unwrap();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x10, 0x80, 0xff] {
                let mut corrupted = bytes.clone();
                corrupted[at] ^= flip;
                let _ = read_parquet(corrupted.into());
            }
        }
    }

    /// A small file that would fill the memory is refused by what it declares.
    #[test]
    fn bombs_are_refused() {
        let rows = (FREE_DECODED_BYTES / MAX_FIXED_WIDTH) as u64 + 1;
        let zeros: ArrayRef = Arc::new(UInt64Array::from(vec![0; rows as usize]));
        let batch = RecordBatch::try_from_iter([("value", zeros)]).unwrap();
        let bytes = write_parquet(batch.schema(), &[batch], false).unwrap();
        assert!(bytes.len() < 1_000_000);
        assert!(
            read_parquet(bytes.into())
                .unwrap_err()
                .to_string()
                .contains("more than its file can hold")
        );
    }
}
