//! The tables `functions` and `lines`.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use crate::address::ObjectAddr;
use crate::rows::{FunctionId, LocationId, ObjectId};

/// One function at one location.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineRow {
    pub(crate) location: LocationId,
    pub(crate) depth: u16,
    pub(crate) function: FunctionId,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A function as its symbols describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: Box<str>,
    pub(crate) system_name: Box<str>,
    pub(crate) file: Box<str>,
    pub(crate) address: u64,
    pub(crate) size: u64,
}

/// A row of `functions`.
pub(crate) struct FunctionRow {
    pub(crate) object: ObjectId,
    pub(crate) name: Box<str>,
    pub(crate) system_name: Box<str>,
    pub(crate) file: Box<str>,
    pub(crate) address: ObjectAddr,
    pub(crate) size: u64,
}

/// The table `functions`: one row an (object, system name, address), or an (object, system name, file) when inlined.
#[derive(Default)]
pub(crate) struct Functions {
    rows: Vec<FunctionRow>,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Functions {
    pub(crate) fn intern(&mut self, object: ObjectId, function: Function) -> FunctionId {
        let (rows, hasher) = (&self.rows, &self.hasher);
        let key = (
            object,
            &*function.system_name,
            distinct_file(&function.file, function.address),
            ObjectAddr(function.address),
        );
        let of_row = |&id: &u32| key_of(&rows[id as usize]);
        let next = rows.len() as u32;
        let id = *self
            .ids
            .entry(
                hasher.hash_one(key),
                |id| of_row(id) == key,
                |id| hasher.hash_one(of_row(id)),
            )
            .or_insert(next)
            .get();
        if id == next {
            let Function {
                name,
                system_name,
                file,
                address,
                size,
            } = function;
            self.rows.push(FunctionRow {
                object,
                name,
                system_name,
                file,
                address: ObjectAddr(address),
                size,
            });
        }
        FunctionId(id)
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn rows(&self, first: usize) -> &[FunctionRow] {
        &self.rows[first..]
    }
}

fn key_of(row: &FunctionRow) -> (ObjectId, &str, &str, ObjectAddr) {
    let file = distinct_file(&row.file, row.address.0);
    (row.object, &row.system_name, file, row.address)
}

/// A function with code of its own is known by its address; its lines may come from several files, of which the first
/// seen is kept. Inlined ones are told apart by their file.
fn distinct_file(file: &str, address: u64) -> &str {
    if address == 0 { file } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same function is one row, whatever files its lines come from; another object or address is another one, and
    /// among inlined functions another file.
    #[test]
    fn a_function_is_stored_once() {
        let mut functions = Functions::default();
        let function = |file: &str, address| Function {
            name: "f()".into(),
            system_name: "_Z1fv".into(),
            file: file.into(),
            address,
            size: 3,
        };
        let mut intern = |object, file, address| functions.intern(ObjectId(object), function(file, address)).index();
        let ids = [
            intern(0, "a.c", 1),
            intern(0, "a.c", 1),
            intern(1, "a.c", 1),
            intern(0, "b.c", 1),
            intern(0, "a.c", 2),
            intern(0, "a.c", 0),
            intern(0, "b.c", 0),
        ];
        assert_eq!(ids, [0, 0, 1, 0, 2, 3, 4]);
    }
}
