"""Direct recursion folded into one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import number_keys, take_rows, with_columns
from stackhound.profile.top import group_functions
from stackhound.transform.locations import order_lines, slice_locations
from stackhound.transform.stacks import read_used_paths, replace_stacks

if TYPE_CHECKING:
    from arro3.core import Table

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


def collapse_recursion(profile: Profile) -> Profile:
    """Show a function that calls itself directly, however deep, as one call.

    Of the calls the one farthest from the root stays, with its line. Functions are the same when name, file and
    object are, inlined or not; frames without a name are never taken for the same function. ``a → b → a`` stays.
    """
    profile = profile.derive({"lines": _collapse_inlined(profile)}, "collapse-recursion")
    first, last = _ends(profile)
    used, offsets, locations = read_used_paths(profile)
    # an element repeats when the next one of its path begins with the function that it ends in
    repeats = np.zeros(len(locations), bool)
    repeats[:-1] = last[locations[:-1]] == first[locations[1:]]
    repeats[offsets[1:][offsets[1:] > offsets[:-1]] - 1] = False
    n_frames = np.diff(profile.frames.offsets).astype(np.int64)[locations]
    cut = np.flatnonzero(repeats & (n_frames > 1))
    locations = locations.copy()
    tables, locations[cut] = slice_locations(profile, locations[cut], np.zeros(len(cut), np.int64), n_frames[cut] - 1)
    keep = ~repeats | (n_frames > 1)
    return profile.derive(replace_stacks(tables, used, offsets, locations, keep))


def _ends(profile: Profile) -> tuple[Numbers, Numbers]:
    """The first and the last function shown at each location. Frames without a name differ from all others."""
    frames = profile.frames
    function = group_functions(frames)[0].astype(np.int64)
    first = function[frames.frames[frames.offsets[:-1]]]
    last = function[frames.frames[frames.offsets[1:].astype(np.int64) - 1]]
    missing = np.array([reason is not None for reason in frames.reason], bool)[frames.frames[frames.offsets[:-1]]]
    last[missing] = -1
    return first, last


def _collapse_inlined(profile: Profile) -> Table:
    """The table ``lines`` without the functions that were inlined into themselves."""
    order, _ = order_lines(profile)
    location = profile.numbers("lines", "location")[order]
    function = _functions_alike(profile)[profile.numbers("lines", "function")[order]]
    repeats = np.zeros(len(order), bool)
    repeats[:-1] = (location[:-1] == location[1:]) & (function[:-1] == function[1:])
    if not repeats.any():
        return profile.table("lines")
    lines = take_rows(profile.table("lines"), order[~repeats])
    count = np.bincount(location[~repeats])
    place = np.arange(lines.num_rows) - np.repeat(np.cumsum(count) - count, count)
    depth = place if profile.inverted else np.repeat(count, count) - 1 - place
    return with_columns(lines, depth=depth)


def _functions_alike(profile: Profile) -> Numbers:
    """An equal number for functions with equal name, file and object: (n_functions,)."""
    objects = profile.numbers("functions", "object").tolist()
    keys = zip(profile.texts("functions", "name"), profile.texts("functions", "file"), objects, strict=True)
    return number_keys(keys)[1]
