"""Columns as JSON wants them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers

NS_PER_MS = 1e6


def table(**columns: Any) -> dict[str, Any]:  # noqa: ANN401  arrays and lists
    """A table of these columns, with its length."""
    return {**columns, "length": len(next(iter(columns.values())))}


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
