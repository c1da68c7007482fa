"""Paths through the prefix tree of stacks."""

from __future__ import annotations

import numpy as np
from arro3.core import Array, Table

from stackhound import _native
from stackhound.profile.columns import Numbers, to_arrow, to_list, to_numpy
from stackhound.profile.frames import reverse_segments
from stackhound.profile.native_errors import native_errors


def read_paths(parent: Numbers, location: Numbers) -> tuple[Numbers, Numbers]:
    """Every stack's locations root → leaf, as CSR: uint32 offsets (n_stacks + 1,), uint32 locations."""
    with native_errors():
        offsets, locations = _native.stack_paths(stack_parent=to_arrow(parent), stack_location=to_arrow(location))
    return Array.from_arrow(offsets).to_numpy(), Array.from_arrow(locations).to_numpy()


def build_stacks(offsets: Numbers, locations: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """The prefix tree of paths given as `read_paths` gives them.

    Returns:
        parent uint32, location uint32, depth uint16 of each stack, and uint32 (n_paths,): each path's stack.
    """
    with native_errors():
        stream, ids = _native.intern_paths(offsets=to_arrow(offsets), locations=to_arrow(locations))
    table = Table.from_arrow(stream)
    parent, location, depth = (table[name].to_numpy() for name in ("parent", "location", "depth"))
    return parent, location, depth, Array.from_arrow(ids).to_numpy()


def select_paths(offsets: Numbers, locations: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """The paths of the given rows only, in the given order."""
    starts = offsets[rows].astype(np.int64)
    counts = offsets[rows + 1].astype(np.int64) - starts
    chosen = np.concatenate(([0], np.cumsum(counts)))
    index = np.repeat(starts - chosen[:-1], counts) + np.arange(chosen[-1])
    return chosen.astype(np.uint32), locations[index]


def reverse_stacks(parent: Numbers, location: Numbers, stack: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The prefix tree of the same paths leaf → root, and the samples' stacks in it."""
    used, inverse = np.unique(stack, return_inverse=True)
    offsets, locations = select_paths(*read_paths(parent, location), used.astype(np.int64))
    new_parent, new_location, _, ids = build_stacks(offsets, locations[reverse_segments(offsets)])
    return new_parent, new_location, ids[inverse]


def make_stacks(parent: Numbers, location: Numbers, depth: Numbers, locations: Table, objects: Table) -> Table:
    """The table ``stacks`` of a prefix tree that `build_stacks` made, with the hashes that a recording gives it.

    A hash tells the addresses of a path, not what is shown of them: stacks that differ only in the inlined functions
    left out of a location share it.
    """
    return Table.from_pydict(
        {
            "id": to_arrow(np.arange(len(parent), dtype=np.uint32)),
            "parent": to_arrow(parent),
            "location": to_arrow(location),
            "depth": to_arrow(depth),
            "hash": _hash_stacks(parent, location, locations, objects),
        }
    )


def _hash_stacks(parent: Numbers, location: Numbers, locations: Table, objects: Table) -> Array:
    kinds, build_ids, paths = (to_list(objects[name]) for name in ("kind", "build_id", "path"))
    with native_errors():
        hashes = _native.stack_hashes(
            stack_parent=to_arrow(parent),
            stack_location=to_arrow(location),
            location_object=to_arrow(to_numpy(locations["object"])),
            location_address=to_arrow(to_numpy(locations["address"])),
            objects=[(kind, build_id or path) for kind, build_id, path in zip(kinds, build_ids, paths, strict=True)],
        )
    return Array.from_arrow(hashes)
