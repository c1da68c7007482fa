"""Rows of several tables as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arro3.core import Array, ChunkedArray, DataType, Field, Schema, Table

from stackhound.errors import UsageError
from stackhound.profile.columns import is_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def concatenate_rows(tables: Sequence[Table]) -> Table:
    """The rows of all tables, one after the other. A column that only some have is null in the others.

    Raises:
        UsageError: a column has different types.
    """
    filled = [table for table in tables if table.num_rows]
    if not filled:
        return tables[0]
    donors: dict[str, ChunkedArray] = {}
    for table in filled:
        for name in table.column_names:
            if donors.setdefault(name, table[name]).type != table[name].type:
                raise UsageError(f"the column {name!r} has different types in these profiles", "drop it first")
    schema = Schema([Field(name, column.type, nullable=True) for name, column in donors.items()])
    parts = [
        Table.from_arrays(
            [
                table[name].combine_chunks() if name in table.column_names else _nulls(column, table.num_rows)
                for name, column in donors.items()
            ],
            schema=schema,
        )
        for table in filled
    ]
    return Table.from_batches([batch for part in parts for batch in part.to_batches()], schema=schema)


def make_rows(like: Table, columns: Mapping[str, Sequence[Any]]) -> Table:
    """Rows of the columns of another table. Those that are not given are 0, or empty."""
    count = max(len(values) for values in columns.values())
    arrays = []
    for name in like.column_names:
        kind = like[name].type
        arrays.append(Array(columns.get(name, ["" if is_text(kind) else 0] * count), kind))
    return Table.from_arrays(arrays, names=like.column_names)


def _nulls(column: ChunkedArray, count: int) -> Array:
    """Nulls of the column's type, whatever that is."""
    return column.combine_chunks().take(Array([None] * count, DataType.uint32()))
