"""What functions locations show, and locations that show only some of those that were there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import take_rows, with_columns
from stackhound.transform.rows import concatenate_rows

if TYPE_CHECKING:
    import re
    from collections.abc import Container

    from arro3.core import Table

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


def slice_locations(
    profile: Profile, location: Numbers, begin: Numbers, end: Numbers
) -> tuple[dict[str, Table], Numbers]:
    """Make locations that show only the frames from ``begin`` up to ``end`` of what a location shows.

    Args:
        profile: whose locations.
        location, begin, end: (n,): what is wanted. Positions count in the order shown, and hold a frame at least.

    Returns:
        All tables, and uint32 (n,): the location to use, which is the old one where it shows just that.
    """
    partial = (begin > 0) | (end < np.diff(profile.frames.offsets)[location])
    result = location.astype(np.uint32)
    if not partial.any():
        return dict(profile.tables), result
    wanted = np.stack((location, begin, end))[:, partial].astype(np.int64)
    (location, begin, end), index = np.unique(wanted, axis=1, return_inverse=True)
    result[partial] = profile.table("locations").num_rows + index.reshape(-1)
    return _append_slices(profile, location, begin, end), result


def _append_slices(profile: Profile, location: Numbers, begin: Numbers, end: Numbers) -> dict[str, Table]:
    locations, lines = profile.table("locations"), profile.table("lines")
    n_locations = locations.num_rows
    copies = take_rows(locations, np.concatenate((np.arange(n_locations), location)))
    order, starts = order_lines(profile)
    length = end - begin
    offsets = np.concatenate(([0], np.cumsum(length)))
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], length)
    rows = order[np.repeat(starts[location] + begin, length) + place]
    depth = place if profile.inverted else np.repeat(length, length) - 1 - place
    new_location = np.repeat(np.arange(n_locations, n_locations + len(location)), length)
    parts = with_columns(take_rows(lines, rows), location=new_location, depth=depth)
    return {
        **profile.tables,
        "locations": with_columns(copies, id=np.arange(copies.num_rows)),
        "lines": concatenate_rows((lines, parts)),
    }


def order_lines(profile: Profile) -> tuple[Numbers, Numbers]:
    """The rows of ``lines`` by location in the order shown, and where each location's begin: int64, both."""
    location, depth = profile.numbers("lines", "location"), profile.numbers("lines", "depth").astype(np.int64)
    order = np.lexsort((depth if profile.inverted else -depth, location))
    counts = np.bincount(location, minlength=profile.table("locations").num_rows)
    return order, np.concatenate(([0], np.cumsum(counts)))


def functions_named(profile: Profile, pattern: re.Pattern[str], kinds: Container[str] = ("elf",)) -> Numbers:
    """Bool (n_functions,): whether it is a function with one of these names, in an object of one of these kinds."""
    objects, names = profile.numbers("functions", "object"), profile.texts("functions", "name")
    is_wanted = np.array([kind in kinds for kind in profile.texts("objects", "kind")], bool)
    matches = np.zeros(len(names), bool)
    for function in np.flatnonzero(is_wanted[objects]).tolist():
        matches[function] = pattern.fullmatch(names[function]) is not None
    return matches


def outermost(profile: Profile, functions: Numbers) -> Numbers:
    """Bool (n_locations,): whether the code at the location is one of these functions, whatever was inlined into it."""
    order, starts = order_lines(profile)
    filled = starts[1:] > starts[:-1]
    rows = order[(starts[1:] - 1 if profile.inverted else starts[:-1])[filled]]
    found = np.zeros(len(filled), bool)
    found[filled] = functions[profile.numbers("lines", "function")[rows]]
    return found
