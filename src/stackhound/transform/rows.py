"""Rows of several tables as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arro3.core import Array, DataType, Field, Schema, Table

from stackhound.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


def concatenate_rows(tables: Sequence[Table]) -> Table:
    """The rows of all tables, one after the other. A column that only some have is null in the others.

    Raises:
        UsageError: a column has different types.
    """
    types: dict[str, DataType] = {}
    for table in tables:
        for name in table.column_names:
            kind = types.setdefault(name, table.schema.field(name).type)
            if kind != table.schema.field(name).type:
                raise UsageError(f"the column {name!r} has different types in these profiles", "drop it first")
    schema = Schema([Field(name, kind, nullable=True) for name, kind in types.items()])
    parts = [
        Table.from_arrays(
            [
                table[name] if name in table.column_names else Array([None] * table.num_rows, kind)
                for name, kind in types.items()
            ],
            schema=schema,
        )
        for table in tables
    ]
    return Table.from_batches([batch for part in parts for batch in part.to_batches()], schema=schema)
