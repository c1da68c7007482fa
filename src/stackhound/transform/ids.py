"""Rows dropped, reordered and unified, with every column that refers to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import take_rows, to_numpy, with_columns
from stackhound.profile.schema import REFERENCES, TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arro3.core import Table

    from stackhound.profile.columns import Numbers


def renumber(tables: Mapping[str, Table], target: str, rows: Numbers, new_ids: Numbers) -> dict[str, Table]:
    """Let the table ``target`` have the given rows only, and every reference to it follow.

    Args:
        tables: all tables.
        target: the table to change.
        rows: its rows that stay, in their new order.
        new_ids: uint32 (n_old_rows,): the new row of each old one; 0 for a row that nothing refers to any more.
    """
    result = {**tables, target: _numbered(target, take_rows(tables[target], rows))}
    for (name, column), referred in REFERENCES.items():
        if referred == target and name in result:
            result[name] = with_columns(result[name], **{column: new_ids[to_numpy(result[name][column])]})
    return result


def keep_rows(tables: Mapping[str, Table], target: str, keep: Numbers) -> dict[str, Table]:
    """Drop the rows of ``target`` that are not to be kept: bool (n_rows,). Nothing may refer to them."""
    if keep.all():
        return dict(tables)
    new_ids = np.where(keep, np.cumsum(keep) - 1, 0).astype(np.uint32)
    return renumber(tables, target, np.flatnonzero(keep), new_ids)


def mark_used(tables: Mapping[str, Table], target: str) -> Numbers:
    """Which rows of ``target`` another table refers to: bool (n_rows,)."""
    used = np.zeros(tables[target].num_rows, bool)
    for (name, column), referred in REFERENCES.items():
        if referred == target and name != target and name in tables:
            ids = to_numpy(tables[name][column])
            used[ids[1:] if name == "stacks" else ids] = True  # row 0 of stacks has no location
    return used


def _numbered(name: str, table: Table) -> Table:
    return with_columns(table, id=np.arange(table.num_rows)) if "id" in TABLES[name] else table
