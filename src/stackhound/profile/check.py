"""Whether tables are what the schema says. What comes from a file may be damaged, or made by someone hostile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from arro3.core import DataType, Table

from stackhound.errors import DamagedProfile
from stackhound.profile.columns import Numbers, to_numpy
from stackhound.profile.schema import OPTIONAL_TABLES, REFERENCES, SIDE_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Mapping

REMEDY = "record again"
#: A frame's key packs a function's row number into 31 bits (`stackhound.profile.frames`).
MAX_ROWS = 2**31 - 1


def require_columns(tables: Mapping[str, Table]) -> None:
    """Check that every table and column is there, with its type.

    Raises:
        DamagedProfile: one is not.
    """
    if missing := sorted(TABLES.keys() - tables.keys()):
        raise DamagedProfile(f"the table {missing[0]!r} is missing", REMEDY)
    for name in (TABLES | OPTIONAL_TABLES).keys() & tables.keys():
        _require_columns_of(name, tables[name])


def require_consistent(tables: Mapping[str, Table]) -> None:
    """Check all that code relies on when it follows ids: `require_columns`, no nulls, ids in range, stacks a tree.

    Raises:
        DamagedProfile: something is wrong.
    """
    require_columns(tables)
    known = [name for name in TABLES | OPTIONAL_TABLES if name in tables and name not in SIDE_TABLES]
    for name in known:
        _require_rows(name, tables[name])
    for (name, column), target in REFERENCES.items():
        if name not in tables:
            continue
        ids = to_numpy(tables[name][column])
        if name == "stacks" and column == "location":
            ids = ids[1:]
        if len(ids) and int(ids.max()) >= tables[target].num_rows:
            raise DamagedProfile(f"{name}.{column} points outside of {target}", REMEDY)
    _require_tree(tables["stacks"])
    _require_side_tables(tables)


def _require_columns_of(name: str, table: Table) -> None:
    for column, kind in (TABLES | OPTIONAL_TABLES)[name].items():
        if column not in table.column_names:
            raise DamagedProfile(f"the column {name}.{column} is missing", REMEDY)
        found = table.schema.field(column).type
        if not is_kind(found, kind):
            raise DamagedProfile(f"{name}.{column} is {_arrow_name(found)}, not {kind.rstrip('?')}", REMEDY)
    if len(set(table.column_names)) < len(table.column_names):
        raise DamagedProfile(f"the table {name!r} has two columns of one name", REMEDY)


def is_kind(found: DataType, kind: str) -> bool:
    """Whether an Arrow type is the one that the schema calls ``kind``."""
    if kind.startswith("list<"):
        return bool(found.value_type == getattr(DataType, kind[5:-1])()) and DataType.is_list(found)
    return bool(found == getattr(DataType, kind.rstrip("?"))())


def _arrow_name(kind: DataType) -> str:
    return repr(kind).strip().removeprefix("arro3.core.DataType<").removesuffix(">")


def _require_rows(name: str, table: Table) -> None:
    if table.num_rows > MAX_ROWS:
        raise DamagedProfile(f"the table {name!r} has more than {MAX_ROWS:,} rows", REMEDY)
    columns = (TABLES | OPTIONAL_TABLES)[name]
    for column, kind in columns.items():
        if not kind.endswith("?") and table[column].null_count:
            raise DamagedProfile(f"{name}.{column} has nulls", REMEDY)
    if "id" in columns and name != "samples":
        ids = to_numpy(table["id"])
        if not np.array_equal(ids, np.arange(len(ids))):
            raise DamagedProfile(f"{name}.id is not the row number", REMEDY)


def _require_tree(stacks: Table) -> None:
    """Row 0 is the root, a parent comes before its children, and a depth is the parent's plus one."""
    parent, depth = to_numpy(stacks["parent"]).astype(np.int64), to_numpy(stacks["depth"]).astype(np.int64)
    if len(parent) == 0 or parent[0] != 0 or depth[0] != 0:
        raise DamagedProfile("stacks have no root", REMEDY)
    if (parent[1:] >= np.arange(1, len(parent))).any() or (depth[1:] != depth[parent[1:]] + 1).any():
        raise DamagedProfile("stacks are no tree", REMEDY)


def _require_side_tables(tables: Mapping[str, Table]) -> None:
    """Every row of a side table belongs to a sample."""
    for name in set(SIDE_TABLES) & tables.keys():
        if not np.isin(_side_ids(tables[name]), to_numpy(tables["samples"]["id"])).all():
            raise DamagedProfile(f"{name}.sample names no sample", REMEDY)


def _side_ids(table: Table) -> Numbers:
    if table["sample"].null_count:
        raise DamagedProfile("a side table has nulls", REMEDY)
    return to_numpy(table["sample"])
