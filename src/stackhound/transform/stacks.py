"""Stacks rewritten as paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import distinct, to_numpy, with_columns
from stackhound.profile.paths import build_stacks, make_stacks, read_paths, select_paths
from stackhound.profile.schema import REFERENCES
from stackhound.transform.rows import concatenate_rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arro3.core import Table

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


def users(tables: Mapping[str, Table]) -> list[tuple[str, str]]:
    """Columns with ids of stacks, but for the tree itself."""
    columns = [key for key, target in REFERENCES.items() if target == "stacks" and key[0] != "stacks"]
    return [(name, column) for name, column in columns if name in tables]


def read_used_paths(profile: Profile) -> tuple[Numbers, Numbers, Numbers]:
    """The stacks that are referred to (sorted), and their paths: int64 offsets, uint32 locations."""
    used = distinct(np.concatenate([profile.numbers(*user) for user in users(profile.tables)])).astype(np.int64)
    paths = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    offsets, locations = select_paths(*paths, used)
    return used, offsets.astype(np.int64), locations


def used_through(profile: Profile, locations: Numbers) -> Numbers:
    """The stacks that are referred to, and have one of these locations, bool (n_locations,), in them: int64, sorted."""
    found: Numbers = locations[profile.numbers("stacks", "location")]
    found[:1] = False  # of the empty stack
    ancestor = profile.numbers("stacks", "parent")
    while ancestor.any():  # each is twice as far as the one before
        found |= found[ancestor]
        ancestor = ancestor[ancestor]
    used = np.zeros(len(found), bool)
    for user in users(profile.tables):
        used[profile.numbers(*user)] = True
    return np.flatnonzero(found & used)


def read_paths_of(profile: Profile, stacks: Numbers) -> tuple[Numbers, Numbers]:
    """The paths of these stacks alone, as CSR: int64 offsets, uint32 locations."""
    parent, location = profile.numbers("stacks", "parent"), profile.numbers("stacks", "location")
    offsets = np.concatenate(([0], np.cumsum(profile.numbers("stacks", "depth")[stacks], dtype=np.int64)))
    locations = np.empty(offsets[-1], np.uint32)
    place, stack = offsets[1:] - 1, stacks
    while (is_left := stack != 0).any():
        place, stack = place[is_left], stack[is_left]
        locations[place] = location[stack]
        place, stack = place - 1, parent[stack]
    return offsets, locations


def rewrite_stacks(profile: Profile, stacks: Numbers, offsets: Numbers, locations: Numbers) -> dict[str, Table]:
    """Let these stacks, and no others, have these paths instead; what that makes comes behind what there is.

    Returns:
        All tables.
    """
    tables = profile.tables
    parent, location, depth, ids = build_stacks(offsets.astype(np.uint32), locations)
    made = make_stacks(parent, location, depth, tables["locations"], tables["objects"])
    made = made.slice(1)  # the empty one is there
    count = tables["stacks"].num_rows

    def moved(made_ids: Numbers) -> Numbers:
        return np.where(made_ids == 0, 0, made_ids + np.uint32(count - 1))

    new_ids = np.arange(count, dtype=np.uint32)
    new_ids[stacks] = moved(ids)
    behind = with_columns(made, id=np.arange(count, count + made.num_rows), parent=moved(parent[1:]))
    result = {**tables, "stacks": concatenate_rows((tables["stacks"], behind))}
    for name, column in users(tables):
        result[name] = with_columns(result[name], **{column: new_ids[profile.numbers(name, column)]})
    return result


def replace_stacks(
    tables: Mapping[str, Table], used: Numbers, offsets: Numbers, locations: Numbers, keep: Numbers | None = None
) -> dict[str, Table]:
    """Let the stacks ``used`` have these paths instead.

    Args:
        tables: all tables.
        used: old ids, in the order of the paths. No other stack is referred to. One beyond the table is a new stack.
        offsets, locations: the paths root → leaf, as CSR.
        keep: bool (n_locations_in_paths,): the elements of the paths that stay; None: all.
    """
    if keep is not None:
        offsets, locations = np.concatenate(([0], np.cumsum(keep)))[offsets], locations[keep]
    parent, location, depth, ids = build_stacks(offsets.astype(np.uint32), locations)
    new_ids = np.zeros(max(tables["stacks"].num_rows, int(used.max(initial=0)) + 1), np.uint32)
    new_ids[used] = ids
    stacks = make_stacks(parent, location, depth, tables["locations"], tables["objects"])
    result = {**tables, "stacks": stacks}
    for name, column in users(tables):
        result[name] = with_columns(result[name], **{column: new_ids[to_numpy(result[name][column])]})
    return result
