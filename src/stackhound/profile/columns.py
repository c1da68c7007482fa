"""Between Arrow columns and numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from arro3.core import Array, ChunkedArray, DataType, Table
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    Key = TypeVar("Key", bound=Hashable)

Numbers = NDArray[Any]


def to_numpy(column: ChunkedArray) -> Numbers:
    """The numbers of a column, read-only. A null reads as 0."""
    array = column.combine_chunks() if column.num_chunks else Array([], column.type)
    numbers = np.asarray(array) if array.null_count == 0 else _without_nulls(array)
    numbers.flags.writeable = False
    return numbers


def to_list(column: ChunkedArray) -> list[Any]:
    """The values of a column as Python objects; a null is None."""
    values: list[Any] = list(column.to_pylist())
    return values


def to_arrow(numbers: Numbers) -> Array:
    """An Arrow array of the same type."""
    return Array.from_numpy(np.ascontiguousarray(numbers))


def take_rows(table: Table, rows: Numbers) -> Table:
    """The given rows of a table, in the given order, all columns."""
    batches = table.combine_chunks().to_batches()
    if not batches or len(rows) == 0:
        return table.slice(0, 0)
    return Table.from_batches([batches[0].take(to_arrow(rows.astype(np.uint32, copy=False)))], schema=table.schema)


def with_columns(table: Table, **columns: Numbers | list[Any]) -> Table:
    """The table with these columns replaced, their types kept."""
    if table.num_rows == 0:
        return table  # nothing to replace, and perhaps no chunk to combine
    arrays = {name: table[name].combine_chunks() for name in table.column_names}
    for name, values in columns.items():
        kind = arrays[name].type
        arrays[name] = to_arrow(values).cast(kind) if isinstance(values, np.ndarray) else Array(values, kind)
    return Table.from_pydict(dict(arrays), schema=table.schema)


def distinct(numbers: Numbers) -> Numbers:
    """Each number once, in increasing order. Without an option `np.unique` would import ``numpy.ma`` (20 ms)."""
    found: Numbers = np.unique(numbers, return_counts=True)[0]
    return found


def number_keys(keys: Iterable[Key]) -> tuple[list[Key], Numbers]:
    """The distinct keys by first appearance, and which of them each key is: uint32 (n_keys,)."""
    all_keys = list(keys)
    distinct = list(dict.fromkeys(all_keys))
    ids = {key: index for index, key in enumerate(distinct)}
    return distinct, np.array([ids[key] for key in all_keys], np.uint32)


def is_text(kind: DataType) -> bool:
    """Whether a column of this type holds strings."""
    return any(test(kind) for test in (DataType.is_string, DataType.is_large_string, DataType.is_string_view))


def _without_nulls(array: Array) -> Numbers:
    values = [0 if value is None else value for value in array.to_pylist()]
    return np.asarray(Array(values, array.type))
