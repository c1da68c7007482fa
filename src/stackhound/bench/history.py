"""Medians of earlier runs in one SQLite file.

    run    id, time, commit_id, branch, testbed
    median run, benchmark, measure, unit, value

``PRAGMA application_id`` says that the file is ours, ``user_version`` which version wrote it.
"""

from __future__ import annotations

import sqlite3
import statistics
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from stackhound.errors import HistoryError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackhound.bench.results import Results

APPLICATION_ID: Final = 0x73_68_62_68  # "shbh"
VERSION: Final = 1
#: For another process that writes.
PATIENCE_S: Final = 10.0

_SCHEMA: Final = f"""
CREATE TABLE run (
    id INTEGER PRIMARY KEY, time TEXT NOT NULL, commit_id TEXT NOT NULL, branch TEXT NOT NULL, testbed TEXT NOT NULL
);
CREATE TABLE median (
    run INTEGER NOT NULL REFERENCES run, benchmark TEXT NOT NULL, measure TEXT NOT NULL, unit TEXT NOT NULL,
    value REAL NOT NULL, PRIMARY KEY (benchmark, measure, run)
) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION};
"""


class Series(NamedTuple):
    """Medians of one measure of a benchmark on a branch and a testbed, oldest first.

    Attributes:
        commits, times: of the run that gave each value; empty texts where it did not say.
    """

    benchmark: str
    measure: str
    unit: str
    branch: str
    testbed: str
    values: list[float]
    commits: list[str]
    times: list[str]


class History:
    """An open file; `open_history` gives it."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def add(self, results: Results, branch: str, testbed: str) -> None:
        """Add the medians of a run, all or none."""
        with self._database as database:
            database.execute("BEGIN IMMEDIATE")
            run = (results.time, results.commit, branch, testbed)
            cursor = database.execute("INSERT INTO run (time, commit_id, branch, testbed) VALUES (?, ?, ?, ?)", run)
            database.executemany(
                "INSERT INTO median VALUES (?, ?, ?, ?, ?)",
                [
                    (cursor.lastrowid, name, measure, results.measures[measure].unit, statistics.median(values))
                    for name, measures in results.benchmarks.items()
                    for measure, values in measures.items()
                ],
            )

    def values(self, benchmark: str, measure: str, branch: str, testbed: str) -> list[float]:
        """Earlier medians, oldest first."""
        return [value for value, _, _ in self._runs(benchmark, measure, branch, testbed)]

    def _runs(self, benchmark: str, measure: str, branch: str, testbed: str) -> list[tuple[float, str, str]]:
        """Value, commit and time of each run, oldest first."""
        rows = self._database.execute(
            "SELECT value, commit_id, time FROM median JOIN run ON run.id = median.run "
            "WHERE benchmark = ? AND measure = ? AND branch = ? AND testbed = ? ORDER BY run.id",
            (benchmark, measure, branch, testbed),
        )
        return [(float(value), str(commit), str(time)) for value, commit, time in rows]

    def series(self) -> list[Series]:
        """All there is, by benchmark."""
        rows = self._database.execute(
            "SELECT DISTINCT benchmark, measure, branch, testbed, "
            "last_value(unit) OVER (PARTITION BY benchmark, measure, branch, testbed ORDER BY run.id "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) "
            "FROM median JOIN run ON run.id = median.run ORDER BY benchmark, measure, branch, testbed"
        ).fetchall()
        return [
            Series(benchmark, measure, unit, branch, testbed, *map(list, zip(*runs, strict=True)))
            for benchmark, measure, branch, testbed, unit in rows
            if (runs := self._runs(benchmark, measure, branch, testbed))
        ]


@contextmanager
def open_history(path: Path, *, create: bool = False) -> Iterator[History]:
    """Open a file.

    Args:
        path: where it is.
        create: make it where there is none.

    Raises:
        HistoryError: it is not there, damaged, something else, or from a later version; or it cannot be used.
    """
    if not create and not path.is_file():
        raise HistoryError(f"there is no history {path}", "add results with stackhound bench history FILE --add")
    try:
        with closing(sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)) as database:
            _check(database, path)
            yield History(database)
    except (sqlite3.Error, ValueError) as error:  # a value that is no number
        remedy = "it may be damaged, or in use: restore a copy, or begin a new one"
        raise HistoryError(f"cannot use the history {path}: {error}", remedy) from error


def _check(database: sqlite3.Connection, path: Path) -> None:
    if database.execute("PRAGMA schema_version").fetchone() == (0,):  # new, or an empty file
        database.executescript(_SCHEMA)
        return
    if database.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise HistoryError(f"{path} is a database of something else", "name another file")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != VERSION:
        raise HistoryError(f"the history {path} has version {version}", f"this stackhound reads {VERSION}: update it")
    (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise HistoryError(f"the history {path} is damaged", "restore a copy, or begin a new one")
