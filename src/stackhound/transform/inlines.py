"""Inlined functions counted into the function that they were inlined into."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import take_rows, with_columns

if TYPE_CHECKING:
    from stackhound.profile import Profile


def drop_inlined(profile: Profile) -> Profile:
    """Keep at each location only the outermost function, the one that was really called.

    Its line stays that of the call which was inlined.
    """
    location, depth = profile.numbers("lines", "location"), profile.numbers("lines", "depth")
    outermost = np.zeros(profile.table("locations").num_rows, depth.dtype)
    np.maximum.at(outermost, location, depth)
    rows = np.flatnonzero(depth == outermost[location])
    lines = with_columns(take_rows(profile.table("lines"), rows), depth=np.zeros(len(rows), depth.dtype))
    return profile.derive({"lines": lines}, "drop-inlined")
