"""What became of the stacks that went through each object: complete or broken, where and why, and named or not.

Observations of all events together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import distinct, to_list
from stackhound.profile.completeness import (
    COMPLETE,
    END_NAMES,
    IN_PART_GUESSED,
    OF_PYTHON,
    UNWALKED,
    WITHOUT_STACK,
    ends,
)
from stackhound.profile.paths import read_paths, select_paths
from stackhound.profile.profile import Samples

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile

#: Ends of stacks whose native part is as whole as can be told.
WHOLE = WITHOUT_STACK | OF_PYTHON | {UNWALKED, COMPLETE, IN_PART_GUESSED}


@dataclass
class ObjectWalks:
    """Stacks that went through one object, in observations."""

    object: int
    samples: int
    ends: dict[str, int]  # by how they ended, of `END_NAMES`
    broken_here: dict[str, int]  # of the broken ones, those whose outermost frame is in this object
    frames: int  # in this object
    misses: Counter[str] = field(default_factory=Counter)  # of these, those without a name, by the reason

    @property
    def complete(self) -> int:
        """Those that reached their root, as far as can be told."""
        return sum(count for end, count in self.ends.items() if end in WHOLE)


def walks_by_object(profile: Profile) -> list[ObjectWalks]:
    """Every object that some stack went through, the most used first."""
    columns = (profile.numbers("samples", name) for name in ("thread", "stack", "value", "count", "flags"))
    samples = Samples(*columns)
    used, row = np.unique(samples.stack, return_inverse=True)
    weights = np.zeros((len(used), len(END_NAMES)), np.int64)
    np.add.at(weights, (row, ends(samples)), samples.count.astype(np.int64))
    tree = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    return _sum(profile, weights, *select_paths(*tree, used.astype(np.int64)))


def _sum(profile: Profile, weights: Numbers, offsets: Numbers, locations: Numbers) -> list[ObjectWalks]:
    n_objects = profile.table("objects").num_rows
    object_of = profile.numbers("locations", "object").astype(np.int64)
    lengths: Numbers = offsets[1:].astype(np.int64) - offsets[:-1]
    stack = np.repeat(np.arange(len(lengths)), lengths)
    by_frame = object_of[locations]
    through = np.zeros((n_objects, len(END_NAMES)), np.int64)
    pairs = distinct(stack * n_objects + by_frame)
    np.add.at(through, pairs % n_objects, weights[pairs // n_objects])
    outermost = np.zeros((n_objects, len(END_NAMES)), np.int64)
    with_frames = np.flatnonzero(lengths)
    np.add.at(outermost, object_of[locations[offsets[with_frames]]], weights[with_frames])
    frames = np.zeros(len(object_of), np.int64)
    np.add.at(frames, locations, weights.sum(axis=1)[stack])
    used = sorted(np.flatnonzero(through.sum(axis=1)).tolist(), key=lambda one: -int(through[one].sum()))
    found = {one: _walks(one, through[one], outermost[one], int(frames[object_of == one].sum())) for one in used}
    for location, reason in enumerate(to_list(profile.table("locations")["reason"])):
        if reason is not None and frames[location]:
            found[int(object_of[location])].misses[reason] += int(frames[location])
    return list(found.values())


def _walks(one: int, through: Numbers, outermost: Numbers, frames: int) -> ObjectWalks:
    named = dict(zip(END_NAMES, through.tolist(), strict=True))
    broken = dict(zip(END_NAMES, outermost.tolist(), strict=True))
    return ObjectWalks(
        one,
        int(through.sum()),
        {end: count for end, count in named.items() if count},
        {end: count for end, count in broken.items() if count and end not in WHOLE},
        frames,
    )
