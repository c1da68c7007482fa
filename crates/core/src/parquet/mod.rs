//! Tables as Parquet bytes and back.

mod last_ns;
mod pages;
mod read;
mod write;

pub use read::read_parquet;
pub use write::write_parquet;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringArray, UInt16Array, UInt64Array};

    use arrow_select::concat::concat_batches;
    use bytes::Bytes;

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
        let zeros: ArrayRef = Arc::new(UInt64Array::from(vec![0; 20 << 20]));
        refuse(RecordBatch::try_from_iter([("value", zeros)]).unwrap());
        let long = "x".repeat(1 << 20);
        let same: ArrayRef = Arc::new(StringArray::from_iter_values((0..400).map(|_| &long)));
        refuse(RecordBatch::try_from_iter([("name", same)]).unwrap());
    }

    fn refuse(batch: RecordBatch) {
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
