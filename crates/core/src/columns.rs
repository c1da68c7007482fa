//! Typed columns of tables that came from outside: from a file, or from other libraries.

use arrow_array::types::{ArrowPrimitiveType, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, LargeStringArray, PrimitiveArray, RecordBatch, StringArray, StringViewArray};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use hashbrown::HashMap;

use crate::Error;

/// Tables by name, each in one piece.
#[derive(Default)]
pub struct TableSet(HashMap<String, RecordBatch>);

impl TableSet {
    /// Add a table of these batches.
    pub fn insert(&mut self, name: String, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<(), Error> {
        let table = concat_batches(schema, batches).map_err(Error::damaged)?;
        self.0.insert(name, table);
        Ok(())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(crate) fn table<'t>(&'t self, name: &'t str) -> Result<Columns<'t>, Error> {
        let batch = self
            .0
            .get(name)
            .ok_or_else(|| Error::usage(format_args!("there is no table {name}")))?;
        Ok(Columns { name, batch })
    }
}

/// One table's columns.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'t> {
    name: &'t str,
    batch: &'t RecordBatch,
}

impl<'t> Columns<'t> {
    pub(crate) fn rows(&self) -> usize {
        self.batch.num_rows()
    }

    pub(crate) fn uint16(&self, column: &str) -> Result<&'t [u16], Error> {
        self.numbers::<UInt16Type>(column)
    }

    pub(crate) fn uint32(&self, column: &str) -> Result<&'t [u32], Error> {
        self.numbers::<UInt32Type>(column)
    }

    pub(crate) fn uint64(&self, column: &str) -> Result<&'t [u64], Error> {
        self.numbers::<UInt64Type>(column)
    }

    /// A column of row numbers, each below `rows`.
    pub(crate) fn references(&self, column: &str, rows: usize) -> Result<&'t [u32], Error> {
        let ids = self.uint32(column)?;
        match ids.iter().find(|&&id| id as usize >= rows) {
            Some(id) => Err(self.wrong(column, format_args!("has the id {id}, of {rows}"))),
            None => Ok(ids),
        }
    }

    pub(crate) fn strings(&self, column: &str) -> Result<Strings<'t>, Error> {
        let array = self.array(column)?.as_any();
        if let Some(strings) = array.downcast_ref() {
            Ok(Strings::Small(strings))
        } else if let Some(strings) = array.downcast_ref() {
            Ok(Strings::Large(strings))
        } else if let Some(strings) = array.downcast_ref() {
            Ok(Strings::View(strings))
        } else {
            Err(self.wrong(column, "is no text"))
        }
    }

    fn numbers<T: ArrowPrimitiveType>(&self, column: &str) -> Result<&'t [T::Native], Error> {
        let array = self.array(column)?;
        let numbers = array
            .as_any()
            .downcast_ref::<PrimitiveArray<T>>()
            .filter(|numbers| numbers.null_count() == 0);
        let numbers = numbers.ok_or_else(|| self.wrong(column, format_args!("is no {}", T::DATA_TYPE)))?;
        Ok(numbers.values())
    }

    fn array(&self, column: &str) -> Result<&'t dyn Array, Error> {
        let array = self.batch.column_by_name(column);
        array.map(AsRef::as_ref).ok_or_else(|| self.wrong(column, "is missing"))
    }

    fn wrong(&self, column: &str, what: impl std::fmt::Display) -> Error {
        Error::damaged(format_args!("{}.{column} {what}", self.name))
    }
}

/// A column of text.
#[derive(Clone, Copy)]
pub(crate) enum Strings<'t> {
    Small(&'t StringArray),
    Large(&'t LargeStringArray),
    View(&'t StringViewArray),
}

impl<'t> Strings<'t> {
    /// The text in a row of the table; empty for a null.
    pub(crate) fn get(&self, row: u32) -> &'t str {
        let row = row as usize;
        match self {
            Self::Small(strings) if strings.is_valid(row) => strings.value(row),
            Self::Large(strings) if strings.is_valid(row) => strings.value(row),
            Self::View(strings) if strings.is_valid(row) => strings.value(row),
            _ => "",
        }
    }
}
