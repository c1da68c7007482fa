"""Named Arrow tables, and their columns as numpy arrays and lists."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from stackhound.errors import UsageError
from stackhound.profile.check import require_columns
from stackhound.profile.columns import Numbers, is_text, to_list, to_numpy
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from arro3.core import ChunkedArray, Table


class Conversions(NamedTuple):
    """Columns by table and name."""

    numbers: dict[tuple[str, str], Numbers]
    texts: dict[tuple[str, str], list[str]]


class TableSet:
    """The tables of a profile. They never change, so a column is converted once."""

    def __init__(self, tables: Mapping[str, Table], before: TableSet | None = None) -> None:
        """Take over the tables.

        Args:
            tables: by name.
            before: what was converted of the tables that it has as well is not converted again.
        """
        require_columns(tables)
        self._tables = MappingProxyType(dict(tables))
        same = {name for name, table in tables.items() if before and before.tables.get(name) is table}
        self._numbers, self._texts = before.conversions(same) if before else Conversions({}, {})

    def conversions(self, tables: Container[str]) -> Conversions:
        """What was converted of these tables."""
        numbers = {key: column for key, column in self._numbers.items() if key[0] in tables}
        texts = {key: column for key, column in self._texts.items() if key[0] in tables}
        return Conversions(numbers, texts)

    @property
    def tables(self) -> Mapping[str, Table]:
        """All tables by name."""
        return self._tables

    def table(self, name: str) -> Table:
        """The table ``name``. polars, DuckDB and pandas read it without a copy.

        Raises:
            UsageError: there is no such table.
        """
        if name not in self._tables:
            raise UsageError(f"this profile has no table {name!r}", f"it has {_listed(self._tables)}")
        return self._tables[name]

    def column(self, table: str, name: str) -> Any:  # noqa: ANN401  numbers or text: callers know which
        """A column: what `numbers` gives, or for text a list of str, where a null is None.

        Raises:
            UsageError: there is no such column.
        """
        column = self._arrow_column(table, name)
        return to_list(column) if is_text(column.type) else self.numbers(table, name)

    def numbers(self, table: str, name: str) -> Numbers:
        """A column of numbers as a read-only numpy array. A null reads as 0."""
        key = (table, name)
        if key not in self._numbers:
            self._numbers[key] = to_numpy(self._arrow_column(table, name))
        return self._numbers[key]

    def texts(self, table: str, name: str) -> list[str]:
        """A column of text as a list. A null reads as the empty string."""
        key = (table, name)
        if key not in self._texts:
            self._texts[key] = [text or "" for text in to_list(self._arrow_column(table, name))]
        return self._texts[key]

    def _arrow_column(self, table: str, name: str) -> ChunkedArray:
        found = self.table(table)
        if name not in found.column_names:
            raise UsageError(f"the table {table!r} has no column {name!r}", f"it has {_listed(found.column_names)}")
        return found[name]


def _listed(names: Iterable[str]) -> str:
    return printable(", ".join(names), 300)
