"""Samples of an event that end in what called their leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import with_columns

if TYPE_CHECKING:
    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


def end_before(profile: Profile, event: str, is_left_out: Numbers, transform: str) -> Profile:
    """Let samples of an event end in the innermost location that is not left out: bool (n_locations,).

    Where a stack has nothing else, its root stays. Samples of other events stay as they are.
    """
    ids = [one.id for one in profile.events if one.name == event]
    location, parent = profile.numbers("stacks", "location"), profile.numbers("stacks", "parent")
    shown = np.arange(len(parent), dtype=np.uint32)
    is_dropped = np.zeros(len(parent), bool)  # the empty stack has no location
    is_dropped[1:] = is_left_out[location[1:]] & (parent[1:] != 0)  # where there is nothing else, that is something
    for stack in np.flatnonzero(is_dropped).tolist():
        shown[stack] = shown[parent[stack]]  # parents come before their children
    stack = profile.numbers("samples", "stack")
    is_of_event = np.isin(profile.numbers("samples", "event"), ids)
    samples = with_columns(profile.table("samples"), stack=np.where(is_of_event, shown[stack], stack))
    return profile.derive({"samples": samples}, transform)
