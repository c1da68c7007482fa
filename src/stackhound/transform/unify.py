"""Equal rows made one, by what they say instead of by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.columns import number_keys, take_rows, to_list, to_numpy, with_columns
from stackhound.profile.paths import build_stacks
from stackhound.transform.ids import renumber

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from arro3.core import Table

    from stackhound.profile.columns import Numbers

#: Rows of these tables are equal when these columns are, ids already unified.
KEYS = {
    "functions": ("name", "system_name", "file", "object", "address", "size"),
    "processes": (
        "pid", "ns_pid", "parent_pid", "start_boottime_ns", "comm", "executable", "command_line", "cgroup", "container",
    ),
    "threads": ("process", "tid", "ns_tid", "comm"),
    "mappings": ("process", "start", "end", "file_offset", "object", "path"),
}  # fmt: skip


def unify_all(tables: dict[str, Table]) -> tuple[dict[str, Table], Numbers]:
    """Unify every table that has ids, but for samples and stacks, and add up equal losses.

    Returns:
        The tables, and uint32 (n_old_locations,): the new id of each location.
    """
    tables = _unify(tables, "events", _event_keys(tables["events"]))[0]
    tables = _unify(tables, "objects", _object_keys(tables["objects"]))[0]
    tables = _unify(tables, "functions", _keys(tables["functions"], KEYS["functions"]))[0]
    tables, new_locations = _unify_locations(tables)
    for name in ("processes", "threads", "mappings"):
        tables = _unify(tables, name, _keys(tables[name], KEYS[name]))[0]
    return {**tables, "losses": _add_losses(tables["losses"])}, new_locations


def _unify(tables: dict[str, Table], target: str, keys: Iterable[Hashable]) -> tuple[dict[str, Table], Numbers]:
    rows, new_ids = _first_of_equal(keys)
    return renumber(tables, target, rows, new_ids), new_ids


def _first_of_equal(keys: Iterable[Hashable]) -> tuple[Numbers, Numbers]:
    """The first row of each key, and uint32 (n_rows,): each row's key, numbered by first appearance."""
    new_ids = number_keys(keys)[1]
    return np.unique(new_ids, return_index=True)[1], new_ids


def _keys(table: Table, columns: Iterable[str]) -> Iterable[Hashable]:
    return zip(*(to_list(table[name]) for name in columns), strict=True)


def _event_keys(events: Table) -> list[str]:
    units: dict[str, str] = {}
    for name, unit in zip(to_list(events["name"]), to_list(events["unit"]), strict=True):
        if units.setdefault(name, unit) != unit:
            raise UsageError(f"the event {name!r} counts {units[name]} in one profile and {unit} in another")
    return to_list(events["name"])


def _object_keys(objects: Table) -> list[Hashable]:
    """The build id, else the path. Code compiled at run time (jit) is never the same in two recordings."""
    columns = (to_list(objects[name]) for name in ("kind", "build_id", "path"))
    return [
        (kind, row) if kind == "jit" else (kind, build_id, "" if build_id else path)
        for row, (kind, build_id, path) in enumerate(zip(*columns, strict=True))
    ]


def _unify_locations(tables: dict[str, Table]) -> tuple[dict[str, Table], Numbers]:
    """Locations are equal when object, address, reason and all their lines are."""
    locations, lines = tables["locations"], tables["lines"]
    owner = to_numpy(lines["location"])
    columns = (to_list(locations[name]) for name in ("object", "address", "reason"))
    shown = _equal_lines(lines, locations.num_rows).tolist()
    rows, new_ids = _first_of_equal(zip(*columns, shown, strict=True))
    first = np.zeros(locations.num_rows, bool)
    first[rows] = True
    kept = take_rows(lines, np.flatnonzero(first[owner]))
    return renumber({**tables, "lines": kept}, "locations", rows, new_ids), new_ids


def _equal_lines(lines: Table, n_locations: int) -> Numbers:
    """An equal number for locations with equal lines: (n_locations,). A location's lines are a path of lines."""
    owner = to_numpy(lines["location"])
    order = np.lexsort((to_numpy(lines["depth"]), owner))
    content = np.stack([to_numpy(lines[name])[order] for name in ("function", "line", "column")])
    line = np.unique(content, axis=1, return_inverse=True)[1].reshape(-1)
    offsets = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=n_locations))))
    return build_stacks(offsets.astype(np.uint32), line.astype(np.uint32))[3]


def _add_losses(losses: Table) -> Table:
    rows, new_ids = _first_of_equal(_keys(losses, ("cause", "estimated", "meaning")))
    count = np.zeros(len(rows), np.uint64)
    np.add.at(count, new_ids, to_numpy(losses["count"]))
    return with_columns(take_rows(losses, rows), count=count)
