"""Callers instead of callees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackhound.profile.frames import reverse_segments
from stackhound.transform.stacks import read_used_paths, replace_stacks

if TYPE_CHECKING:
    from stackhound.profile import Profile


def invert(profile: Profile) -> Profile:
    """Turn every stack around, leaf first: a picture then shows at its root what ran, above it who called it.

    Inverted again, it is as it was.
    """
    used, offsets, locations = read_used_paths(profile)
    tables = replace_stacks(profile.tables, used, offsets, locations[reverse_segments(offsets)])
    return profile.derive(tables, "invert", inverted=not profile.inverted)
