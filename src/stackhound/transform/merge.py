"""Several profiles as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.columns import take_rows, to_list, to_numpy, with_columns
from stackhound.profile.paths import build_stacks, make_stacks, read_paths
from stackhound.profile.profile import Profile
from stackhound.profile.schema import OPTIONAL_TABLES, REFERENCES, SIDE_TABLES, TABLES
from stackhound.transform.merge_metadata import boot_shifts_ns, merge_metadata
from stackhound.transform.rows import concatenate_rows
from stackhound.transform.stacks import users
from stackhound.transform.unify import unify_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from arro3.core import Table

    from stackhound.profile.columns import Numbers

#: Columns with times of the boot clock.
BOOT_TIMES = {
    "samples": ("boottime_ns", "last_ns"),
    "mappings": ("first_ns",),
    "processes": ("start_boottime_ns", "exit_boottime_ns"),
    "event_totals": ("start_boottime_ns",),
}


def merge(profiles: Sequence[Profile]) -> Profile:
    """Put the samples of several profiles into one, in the order of their times.

    Equal events, objects, functions, locations, stacks, processes, threads and mappings become one row. Times of
    other boots and hosts are moved by the difference of their clocks, to the clock of the oldest boot. Losses,
    counters and costs are added up; ``metadata["merged"]`` keeps what each profile said.

    Exact totals of events are kept where each profile has them: those of some would be taken for all.
    Tables that this version does not know, and other files inside of the profiles, are left out: nobody can tell
    which ids in them would have to change. A note says so.

    Raises:
        UsageError: no profile was given; some are inverted and some are not; or an event (a column that this
            version does not know) has another unit (type) in another profile.
    """
    if not profiles:
        raise UsageError("there is nothing to merge", "give one profile or more")
    if len({profile.inverted for profile in profiles}) > 1:
        raise UsageError("some of these profiles are inverted and some are not", "merge first, then invert")
    shifts_ns = boot_shifts_ns(profiles)
    tables = _concatenate(profiles, shifts_ns)
    offsets, locations = _concatenate_paths(profiles)
    tables, new_locations = unify_all(tables)
    parent, location, depth, ids = build_stacks(offsets, new_locations[locations])
    tables["stacks"] = make_stacks(parent, location, depth, tables["locations"], tables["objects"])
    for name, column in users(tables):
        tables[name] = with_columns(tables[name], **{column: ids[to_numpy(tables[name][column])]})
    tables = _sort_samples(tables)
    in_order = {name: tables[name] for name in TABLES | OPTIONAL_TABLES if name in tables}
    return Profile(in_order, merge_metadata(profiles, shifts_ns))


def _concatenate(profiles: Sequence[Profile], shifts_ns: Sequence[int]) -> dict[str, Table]:
    """The rows of all tables but ``stacks``, each id moved up by the rows of the profiles before."""
    known = [name for name in TABLES | OPTIONAL_TABLES if any(name in profile.tables for profile in profiles)]
    first_rows = _first_rows(profiles)
    parts = [
        _move(profile, {name: rows[index] for name, rows in first_rows.items()}, shifts_ns[index])
        for index, profile in enumerate(profiles)
    ]
    known.remove("stacks")
    for totals in ("event_totals", "block_io_totals", "heap_totals"):
        if totals in known and not all(totals in profile.tables for profile in profiles):
            known.remove(totals)
    return {name: concatenate_rows([part[name] for part in parts if name in part]) for name in known}


def _first_rows(profiles: Sequence[Profile]) -> dict[str, list[int]]:
    """By table: how many rows the profiles before each one have."""
    counts = {name: [profile.table(name).num_rows for profile in profiles] for name in TABLES}
    return {name: [0, *np.cumsum(rows)[:-1].tolist()] for name, rows in counts.items()}


def _move(profile: Profile, first_rows: Mapping[str, int], shift_ns: int) -> dict[str, Table]:
    tables = dict(profile.tables)
    for name in tables.keys() & set(SIDE_TABLES):
        tables[name] = with_columns(tables[name], sample=_sample_rows(profile, name) + first_rows["samples"])
    for name in TABLES:
        if "id" in TABLES[name]:
            ids = np.arange(tables[name].num_rows) + first_rows[name]
            tables[name] = with_columns(tables[name], id=ids)
    for (name, column), target in REFERENCES.items():
        if name not in tables:
            continue
        ids = profile.numbers(name, column).astype(np.int64) + first_rows[target]
        tables[name] = with_columns(tables[name], **{column: ids})
    if shift_ns:
        _shift_times(tables, shift_ns)
    return tables


def _sample_rows(profile: Profile, name: str) -> Numbers:
    """The row of the sample that each row of a side table says more about."""
    ids = profile.numbers("samples", "id")
    order = np.argsort(ids, kind="stable")
    return order[np.searchsorted(ids, profile.numbers(name, "sample"), sorter=order)]


def _shift_times(tables: dict[str, Table], shift_ns: int) -> None:
    for name in BOOT_TIMES.keys() & tables.keys():
        for column in BOOT_TIMES[name]:
            array = tables[name][column]
            moved = (
                to_numpy(array) + np.uint64(shift_ns)
                if array.null_count == 0
                else [None if time is None else time + shift_ns for time in to_list(array)]
            )
            tables[name] = with_columns(tables[name], **{column: moved})


def _concatenate_paths(profiles: Sequence[Profile]) -> tuple[Numbers, Numbers]:
    """The paths of all stacks as CSR, with the ids of the concatenated locations."""
    counts, locations = [np.zeros(1, np.int64)], [np.zeros(0, np.uint32)]
    first_location = 0
    for profile in profiles:
        offsets, path = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
        counts.append(np.diff(offsets))
        locations.append(path + np.uint32(first_location))
        first_location += profile.table("locations").num_rows
    return np.cumsum(np.concatenate(counts)).astype(np.uint32), np.concatenate(locations)


def _sort_samples(tables: dict[str, Table]) -> dict[str, Table]:
    """Samples by time, and the side tables by sample."""
    samples = tables["samples"]
    order = np.argsort(to_numpy(samples["boottime_ns"]), kind="stable")
    new_ids = np.empty(len(order), np.uint64)
    new_ids[order] = np.arange(len(order))
    result = {**tables, "samples": with_columns(take_rows(samples, order), id=np.arange(len(order)))}
    for name in tables.keys() & set(SIDE_TABLES):
        ids = new_ids[to_numpy(tables[name]["sample"])]
        moved = with_columns(tables[name], sample=ids)
        result[name] = take_rows(moved, np.argsort(ids, kind="stable"))
    return result
