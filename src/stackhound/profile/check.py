"""Whether tables are what the schema says. What comes from a file may be damaged, or made by someone hostile."""

from __future__ import annotations


from arro3.core import DataType, Table

from stackhound.errors import DamagedProfile
from stackhound.profile.schema import OPTIONAL_TABLES, TABLES
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_columns(tables: Mapping[str, Table]) -> None:
    """Check that every table and column is there, with its type.

    Raises:
        DamagedProfile: one is not.
    """
    if missing := sorted(TABLES.keys() - tables.keys()):
        raise DamagedProfile(f"the profile has no table {missing[0]!r}", "record again")
    for name in (TABLES | OPTIONAL_TABLES).keys() & tables.keys():
        _require_columns_of(name, tables[name])


def _require_columns_of(name: str, table: Table) -> None:
    for column, kind in (TABLES | OPTIONAL_TABLES)[name].items():
        if column not in table.column_names:
            raise DamagedProfile(f"the table {name!r} has no column {column!r}", "record again")
        found = table.schema.field(column).type
        if not is_kind(found, kind):
            raise DamagedProfile(f"{name}.{column} is {arrow_name(found)}, not {kind.rstrip('?')}", "record again")


def is_kind(found: DataType, kind: str) -> bool:
    """Whether an Arrow type is the one that the schema calls ``kind``."""
    if kind.startswith("list<"):
        return found == DataType.list(getattr(DataType, kind[5:-1])())
    return bool(found == getattr(DataType, kind.rstrip("?"))())


def arrow_name(kind: DataType) -> str:
    """The type's own name, on one line."""
    return repr(kind).strip().removeprefix("arro3.core.DataType<").removesuffix(">")
