"""What side tables say of an event's samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event


def said_of(profile: Profile, event: Event, side: tuple[str, Numbers] | None, otherwise: int) -> Numbers:
    """What a side table has for each sample of an event. ``side``: the table, and what each of its rows says."""
    ids = profile.numbers("samples", "id")
    said = np.full(len(ids), otherwise, np.int64)
    if side:
        name, values = side
        order = np.argsort(ids, kind="stable")
        said[order[np.searchsorted(ids, profile.numbers(name, "sample"), sorter=order)]] = values
    is_of_event: Numbers = profile.numbers("samples", "event") == event.id
    return said[is_of_event]
