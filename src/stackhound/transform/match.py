"""Stacks found by the names of their functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from stackhound.errors import UsageError

if TYPE_CHECKING:
    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


def matching_frames(profile: Profile, pattern: str) -> Numbers:
    """The frames whose name, or whose label where a name is missing, has a match: bool (n_frames,).

    Raises:
        UsageError: ``pattern`` is no regular expression.
    """
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression", str(error)) from error
    return np.array([search(name) is not None for name in profile.frames.name], bool)


def matching_locations(profile: Profile, frames: Numbers) -> Numbers:
    """The first of each location's frames, in the order shown, that is among ``frames``; -1: none. int64 (n,)."""
    offsets = profile.frames.offsets.astype(np.int64)
    first = first_true(offsets, frames[profile.frames.frames])
    return np.where(first < 0, -1, first - offsets[:-1])


def matching_stacks(profile: Profile, pattern: str) -> Numbers:
    """The stacks with a frame that matches: bool (n_stacks,)."""
    matches = matching_locations(profile, matching_frames(profile, pattern)) >= 0
    parent, location = profile.numbers("stacks", "parent"), profile.numbers("stacks", "location")
    found = np.zeros(len(parent), bool)
    found[1:] = matches[location[1:]]
    return spread_to_children(parent, found)


def spread_to_children(parent: Numbers, marked: Numbers) -> Numbers:
    """Mark the descendants of what is marked. In each round the ancestors looked at are twice as far away."""
    ancestor = parent
    while ancestor.any():
        marked = marked | marked[ancestor]
        ancestor = ancestor[ancestor]
    return marked


def first_true(offsets: Numbers, flags: Numbers) -> Numbers:
    """The position of the first true flag in each segment of a CSR array; -1 where there is none. int64 (n,)."""
    positions = np.append(np.flatnonzero(flags), offsets[-1])
    first = positions[np.searchsorted(positions, offsets[:-1])]
    return np.where(first < offsets[1:], first, -1)
