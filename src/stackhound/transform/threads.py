"""Threads counted into their process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import with_columns
from stackhound.transform.ids import renumber

if TYPE_CHECKING:
    from stackhound.profile import Profile


def merge_threads(profile: Profile) -> Profile:
    """Give every sample of a process to one thread, which has the process's id and comm."""
    process, first, new_ids = np.unique(profile.numbers("threads", "process"), return_index=True, return_inverse=True)
    tables = renumber(profile.tables, "threads", first, new_ids.astype(np.uint32))
    comms = profile.texts("processes", "comm")
    tables["threads"] = with_columns(
        tables["threads"],
        tid=profile.numbers("processes", "pid")[process],
        ns_tid=profile.numbers("processes", "ns_pid")[process],
        comm=[comms[row] for row in process.tolist()],
    )
    return profile.derive(tables, "merge-threads")
