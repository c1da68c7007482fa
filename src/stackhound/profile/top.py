"""The functions where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from arro3.core import Array, DataType, Table

from stackhound.profile.columns import Numbers, number_keys, to_arrow
from stackhound.profile.escape import printable
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from stackhound.profile.frames import Frames
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event
    from stackhound.profile.tree import CallTree

NAME_WIDTH = 80
OBJECT_WIDTH = 32


class TopTable:
    """Functions with the most of an event, as an Arrow table that also prints well.

    Columns: function, file, object, kind (text), self, total (uint64, in the event's unit), self_percent,
    total_percent (float64, of all samples). ``total`` counts a sample once, however often the function recurs in it.
    polars, DuckDB and pandas read it; text in it comes from the profiled programs and is escaped only when printed.
    """

    def __init__(self, table: Table, event: Event, note: str = "") -> None:
        self.table = table
        self.event = event
        self.note = note  # shown above it

    def __len__(self) -> int:
        return self.table.num_rows

    def __arrow_c_schema__(self) -> object:
        return self.table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def rows(self) -> list[dict[str, object]]:
        """The rows as dictionaries by column name."""
        columns = [self.table[name].to_pylist() for name in self.table.column_names]
        return [dict(zip(self.table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]

    def cells(self) -> list[tuple[str, str, str, str, str, str]]:
        """What is shown of each row: self %, total %, self, total, function, base name of the object. Safe to print."""
        unit = self.event.unit
        columns = ("self_percent", "total_percent", "self", "total", "function", "object")
        return [
            (
                f"{self_percent:.1f}%",
                f"{total_percent:.1f}%",
                format_value(own, unit),
                format_value(total, unit),
                printable(function, NAME_WIDTH),
                printable(path.rpartition("/")[2] or path, OBJECT_WIDTH),
            )
            for self_percent, total_percent, own, total, function, path in zip(
                *(self.table[name].to_pylist() for name in columns), strict=True
            )
        ]

    def __str__(self) -> str:
        lines = [HEADINGS, *self.cells()]
        widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
        return "\n".join([*([self.note] if self.note else []), *(_align(line, widths) for line in lines)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from stackhound.profile.notebook import table_html

        return table_html(HEADINGS, self.cells(), self.note)


HEADINGS = ("self", "total", "self", "total", "function", "object")
NUMBER_COLUMNS = 4


def build_top(profile: Profile, n: int, event: str | None) -> TopTable:
    """See `Profile.top`."""
    tree = profile.tree(event or _first_event(profile))
    group, representative = group_functions(tree.frames)
    own, total = function_values(tree, group, len(representative))
    largest = np.iinfo(np.uint64).max
    best = np.lexsort((largest - total, largest - own))[: max(0, n)]
    best = best[total[best] > 0]
    table = _top_table(profile, tree, representative[best], own[best], total[best])
    return TopTable(table, tree.event, "" if event else _say_which(profile))


def _first_event(profile: Profile) -> str | None:
    return profile.events[0].name if profile.events else None


def _say_which(profile: Profile) -> str:
    """What is shown, where somebody may have meant something else; empty where there is only one event."""
    first, *others = [event.name for event in profile.events]
    return printable(f'{first}; this profile also has {", ".join(others)}: event="NAME" shows them') if others else ""


def group_functions(frames: Frames) -> tuple[Numbers, Numbers]:
    """Unify the frames of one function: inlined or not, on whatever line, for whatever reason it has no name.

    Returns:
        uint32 (n_frames,): each frame's function. uint32 (n_functions,): one of each function's frames.
    """
    group = number_keys(zip(frames.name, frames.file, frames.object.tolist(), strict=True))[1]
    return group, np.unique(group, return_index=True)[1].astype(np.uint32)


def function_values(tree: CallTree, group: Numbers, n_functions: int) -> tuple[Numbers, Numbers]:
    """Sum the tree by function.

    Returns:
        uint64 (n_functions,) twice: the function's own value; and with all that it called, where a node below
        another one of the same function adds nothing, so that each sample counts once.
    """
    own, total = np.zeros(n_functions, np.uint64), np.zeros(n_functions, np.uint64)
    function = group[tree.frame[1:]]
    np.add.at(own, function, tree.self_value[1:])
    outermost = np.flatnonzero(~has_ancestor_alike(tree, function)) + 1
    np.add.at(total, function[outermost - 1], tree.total_value[outermost])
    return own, total


def has_ancestor_alike(tree: CallTree, function: Numbers) -> Numbers:
    """Which nodes (all but the root) lie below another node of the same function: bool (n_nodes − 1,).

    In preorder a node's descendants follow it up to its end. Of the nodes of one function, taken in preorder, one
    lies below another exactly when the largest end so far is past its own start.
    """
    start, end = _preorder(tree)
    order = np.lexsort((start[1:], function))
    base = function[order].astype(np.int64) * (len(tree) + 1)
    largest_end = np.maximum.accumulate(base + end[1:][order])
    below = np.zeros(len(order), bool)
    below[order[1:]] = largest_end[:-1] > base[1:] + start[1:][order[1:]]
    return below


def _preorder(tree: CallTree) -> tuple[Numbers, Numbers]:
    """Each node's place in preorder, and the place after its last descendant: int64 (n_nodes,)."""
    levels = tree.levels
    parent = tree.parent
    size = np.ones(len(tree), np.int64)
    for rows in reversed(levels[1:]):
        np.add.at(size, parent[rows], size[rows])
    start = np.zeros(len(tree), np.int64)
    for rows in levels[1:]:
        rows = rows[np.argsort(parent[rows], kind="stable")]
        before = np.cumsum(size[rows]) - size[rows]
        first = np.searchsorted(parent[rows], parent[rows])
        start[rows] = start[parent[rows]] + 1 + before - before[first]
    return start, start + size


def _top_table(profile: Profile, tree: CallTree, frame: Numbers, own: Numbers, total: Numbers) -> Table:
    frames, paths = tree.frames, profile.texts("objects", "path")
    rows = frame.tolist()
    percent = 100.0 / max(1, int(tree.total_value[0]))
    return Table.from_pydict(
        {
            "function": Array([frames.name[row] for row in rows], DataType.utf8()),
            "file": Array([frames.file[row] for row in rows], DataType.utf8()),
            "object": Array([paths[frames.object[row]] for row in rows], DataType.utf8()),
            "kind": Array([frames.kind[row] for row in rows], DataType.utf8()),
            "self": to_arrow(own),
            "total": to_arrow(total),
            "self_percent": to_arrow(own * percent),
            "total_percent": to_arrow(total * percent),
        }
    )


def _align(line: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.rjust(width) if column < NUMBER_COLUMNS else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()
