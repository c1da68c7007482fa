//! What samples are measured in: how many and how much; allocations in what was allocated and what is in use, as Go and
//! tcmalloc have it.

use std::borrow::Cow;

use hashbrown::HashMap;

use crate::Error;
use crate::columns::TableSet;

/// (column of the table `heap`, unit)
const HEAP_MEASURES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// A column of values.
pub(super) struct Measure<'t> {
    pub(super) name: &'t str,
    pub(super) unit: &'t str,
    /// Of each row of `samples`.
    pub(super) values: Cow<'t, [u64]>,
}

/// Those of an event; the last one is what it is about.
pub(super) fn measures<'t>(tables: &'t TableSet, name: &'t str, unit: &'t str) -> Result<Vec<Measure<'t>>, Error> {
    if name == "heap" && unit == "bytes" && tables.has("heap") {
        return heap_measures(tables);
    }
    let samples = tables.table("samples")?;
    Ok(vec![
        Measure {
            name: "samples",
            unit: "count",
            values: samples.uint64("count")?.into(),
        },
        Measure {
            name,
            unit,
            values: samples.uint64("value")?.into(),
        },
    ])
}

fn heap_measures(tables: &TableSet) -> Result<Vec<Measure<'_>>, Error> {
    let (samples, heap) = (tables.table("samples")?, tables.table("heap")?);
    let row_of: HashMap<u64, usize> = samples.uint64("id")?.iter().copied().zip(0..).collect();
    let sample = heap.uint64("sample")?;
    let measure = |(name, unit)| {
        let mut values = vec![0; samples.rows()];
        for (id, value) in sample.iter().zip(heap.uint64(name)?) {
            if let Some(&row) = row_of.get(id) {
                values[row] = *value;
            }
        }
        Ok(Measure {
            name,
            unit,
            values: values.into(),
        })
    };
    HEAP_MEASURES.into_iter().map(measure).collect()
}
