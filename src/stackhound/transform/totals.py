"""Exact totals of events, when samples, events or processes go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import take_rows, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from arro3.core import Table

    from stackhound.profile.columns import Numbers


def without_whole(tables: Mapping[str, Table]) -> dict[str, Table]:
    """Without the totals of all that was recorded: samples of it have gone. Those of processes stay true."""
    result = _keep(tables, "event_totals", "pid", lambda pid: pid != 0)
    result.pop("block_io_totals", None)
    return result


def of_events(tables: Mapping[str, Table], keep: Numbers) -> dict[str, Table]:
    """With the totals of the events that are to be kept: bool (n_events,)."""
    return _keep(tables, "event_totals", "event", lambda event: keep[event])


def of_pids(tables: Mapping[str, Table], pids: Numbers) -> dict[str, Table]:
    """With the totals of these processes, and of all that was recorded."""
    kept = _keep(tables, "event_totals", "pid", lambda pid: np.isin(pid, pids) | (pid == 0))
    return _keep(kept, "heap_totals", "pid", lambda pid: np.isin(pid, pids))


def _keep(
    tables: Mapping[str, Table], name: str, column: str, choose: Callable[[Numbers], Numbers]
) -> dict[str, Table]:
    result = dict(tables)
    if name in result:
        result[name] = take_rows(result[name], np.flatnonzero(choose(to_numpy(result[name][column]))))
    return result
