"""Rows that nothing refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import take_rows, to_numpy
from stackhound.transform.ids import keep_rows, mark_used
from stackhound.transform.totals import of_pids

if TYPE_CHECKING:
    from arro3.core import Table

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


def compact(profile: Profile) -> Profile:
    """Drop every stack, thread, process, function and object that no sample leads to.

    Do it before giving away a part of a profile: other transforms choose samples, and leave the command lines of
    processes and the names of functions that are no longer shown.
    """
    tables = keep_rows(profile.tables, "threads", mark_used(profile.tables, "threads"))
    process = np.zeros(tables["processes"].num_rows, bool)
    process[to_numpy(tables["threads"]["process"])] = True
    tables = keep_rows(tables, "mappings", process[to_numpy(tables["mappings"]["process"])])
    tables = keep_rows(tables, "processes", process)
    tables = of_pids(tables, to_numpy(tables["processes"]["pid"]))
    tables = keep_rows(tables, "stacks", _used_stacks(tables))
    used = mark_used({**tables, "lines": tables["lines"].slice(0, 0)}, "locations")
    tables["lines"] = take_rows(tables["lines"], np.flatnonzero(used[to_numpy(tables["lines"]["location"])]))
    tables = keep_rows(tables, "locations", used)
    for target in ("functions", "objects"):
        tables = keep_rows(tables, target, mark_used(tables, target))
    return profile.derive(tables, "compact")


def _used_stacks(tables: dict[str, Table]) -> Numbers:
    """The stacks that samples have, and all that these are built on."""
    used = mark_used(tables, "stacks")
    used[0] = True
    ancestor = to_numpy(tables["stacks"]["parent"])
    while ancestor.any():
        used[ancestor[used]] = True
        ancestor = ancestor[ancestor]
    return used
