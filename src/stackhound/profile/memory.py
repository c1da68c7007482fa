"""The memory that page faults are of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event

UNKNOWN: Final = "(unknown)"


def memory_names(profile: Profile) -> list[str]:
    """What `touched_memory` numbers: the paths of the objects, and what stands for none of them."""
    return [*profile.texts("objects", "path"), UNKNOWN]


def touched_memory(profile: Profile, event: Event) -> Numbers:
    """What each sample of an event touched: int64 (n_samples,), indexes of `memory_names`."""
    ids = profile.numbers("samples", "id")
    touched = np.full(len(ids), profile.table("objects").num_rows, np.int64)
    if "faults" in profile.tables:
        order = np.argsort(ids, kind="stable")
        rows = order[np.searchsorted(ids, profile.numbers("faults", "sample"), sorter=order)]
        touched[rows] = profile.numbers("faults", "object")
    is_of_event: Numbers = profile.numbers("samples", "event") == event.id
    return touched[is_of_event]
