"""Columns as JSON wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from arro3.core import DataType

if TYPE_CHECKING:
    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

NS_PER_MS = 1e6


def table(**columns: Any) -> dict[str, Any]:  # noqa: ANN401  arrays and lists
    """A table of these columns, with its length."""
    return {**columns, "length": len(next(iter(columns.values())))}


def has_numbers(profile: Profile, name: str, *columns: str) -> bool:
    """Whether a table is there, and has whole numbers in these columns: nobody has checked tables of other versions."""
    if name not in profile.tables:
        return False
    schema = profile.table(name).schema
    return all(column in schema.names and DataType.is_integer(schema.field(column).type) for column in columns)


def nullable(numbers: Numbers, is_null: Numbers) -> Numbers | list[int | None]:
    """The numbers, with null for some."""
    if not is_null.any():
        return np.ascontiguousarray(numbers)
    values = numbers.astype(object)
    values[is_null] = None
    found: list[int | None] = values.tolist()
    return found


def milliseconds(times_ns: Numbers) -> Numbers:
    """Times in the format's unit."""
    return np.ascontiguousarray(times_ns / NS_PER_MS)
