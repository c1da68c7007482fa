"""Stacks rewritten as paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import to_numpy, with_columns
from stackhound.profile.paths import build_stacks, make_stacks, read_paths, select_paths
from stackhound.profile.schema import REFERENCES

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
    used = np.unique(np.concatenate([profile.numbers(*user) for user in users(profile.tables)])).astype(np.int64)
    paths = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    offsets, locations = select_paths(*paths, used)
    return used, offsets.astype(np.int64), locations


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
