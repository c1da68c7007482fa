//! Tables to Parquet bytes, each column encoded for what it holds.

use std::hash::Hash;

use arrow_array::types::{ArrowPrimitiveType, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use hashbrown::HashSet;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use super::last_ns::drop_last_ns;
use crate::Error;

/// zstd's own default: level 9 takes four times as long for 2% less (measured on samples of a busy machine).
const ZSTD_LEVEL: i32 = 3;

/// A dictionary pays when each of its values comes this often (measured likewise).
const MIN_REPEATS: usize = 4;

/// Values that a dictionary may have: 16-bit indices.
const MAX_DICTIONARY: usize = 1 << 16;

/// Write a table, zstd-compressed.
///
/// With `sorted_samples` the rows are samples in the order of their time, and `last_ns` is null in the file where it
/// is the same as `boottime_ns`; [`super::read_parquet`] puts the time back.
pub fn write_parquet(schema: SchemaRef, batches: &[RecordBatch], sorted_samples: bool) -> Result<Vec<u8>, Error> {
    let table = concat_batches(&schema, batches).map_err(Error::output)?;
    let table = if sorted_samples { drop_last_ns(table)? } else { table };
    let properties = properties(&table)?;
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        .with_skip_arrow_metadata(true);
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new_with_options(&mut bytes, table.schema(), options).map_err(Error::output)?;
    writer.write(&table).map_err(Error::output)?;
    writer.close().map_err(Error::output)?;
    Ok(bytes)
}

fn properties(table: &RecordBatch) -> Result<WriterProperties, Error> {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(
            ZstdLevel::try_new(ZSTD_LEVEL).map_err(Error::output)?,
        ))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for (field, column) in table.schema().fields().iter().zip(table.columns()) {
        properties = encode(properties, ColumnPath::from(field.name().as_str()), column);
    }
    Ok(properties.build())
}

/// Steps of a column that only grows, a dictionary for values that repeat, or the values as they are.
///
/// BYTE_STREAM_SPLIT would save another tenth, but Spark before 4.0 does not read it for integers.
fn encode(properties: WriterPropertiesBuilder, path: ColumnPath, column: &ArrayRef) -> WriterPropertiesBuilder {
    if is_increasing::<UInt32Type>(column) || is_increasing::<UInt64Type>(column) {
        let encoding = Encoding::DELTA_BINARY_PACKED;
        properties
            .set_column_encoding(path.clone(), encoding)
            .set_column_dictionary_enabled(path, false)
    } else {
        properties.set_column_dictionary_enabled(path, repeats(column))
    }
}

fn numbers<T: ArrowPrimitiveType>(column: &ArrayRef) -> Option<&[T::Native]> {
    let numbers = column.as_any().downcast_ref::<PrimitiveArray<T>>()?;
    (numbers.null_count() == 0).then(|| numbers.values().as_ref())
}

fn is_increasing<T: ArrowPrimitiveType>(column: &ArrayRef) -> bool {
    numbers::<T>(column).is_some_and(|numbers| numbers.is_sorted())
}

fn repeats(column: &ArrayRef) -> bool {
    if let Some(numbers) = numbers::<UInt32Type>(column) {
        has_few(numbers.iter())
    } else if let Some(numbers) = numbers::<UInt64Type>(column) {
        has_few(numbers.iter())
    } else if let Some(strings) = column.as_any().downcast_ref::<StringArray>() {
        has_few(strings.iter())
    } else {
        true
    }
}

/// Whether each value comes [`MIN_REPEATS`] times on average.
fn has_few<T: Hash + Eq>(values: impl ExactSizeIterator<Item = T>) -> bool {
    let limit = (values.len() / MIN_REPEATS).min(MAX_DICTIONARY);
    let mut distinct = HashSet::new();
    for value in values {
        if distinct.insert(value) && distinct.len() > limit {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{UInt32Array, UInt64Array};
    use parquet::file::metadata::ParquetMetaDataReader;

    use super::*;

    fn encodings(column: impl Array + 'static) -> Vec<Encoding> {
        let batch = RecordBatch::try_from_iter([("column", Arc::new(column) as ArrayRef)]).unwrap();
        let bytes = write_parquet(batch.schema(), &[batch], false).unwrap();
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&bytes::Bytes::from(bytes))
            .unwrap();
        metadata.row_group(0).column(0).encodings().collect()
    }

    /// Steps for what grows, a dictionary for what repeats, and nothing for hashes.
    #[test]
    fn columns_are_encoded_for_what_they_hold() {
        assert!(encodings(UInt64Array::from_iter_values(0..1000)).contains(&Encoding::DELTA_BINARY_PACKED));
        let few = (0..1000).map(|row| row * 7 % 13);
        assert!(encodings(UInt32Array::from_iter_values(few)).contains(&Encoding::RLE_DICTIONARY));
        let hashes = (0..1000u64).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let hashes = encodings(UInt64Array::from_iter_values(hashes));
        assert!(!hashes.contains(&Encoding::RLE_DICTIONARY) && !hashes.contains(&Encoding::DELTA_BINARY_PACKED));
        let names = (0..1000).map(|row| format!("name {row}"));
        assert!(!encodings(StringArray::from_iter_values(names)).contains(&Encoding::RLE_DICTIONARY));
    }
}
