"""Samples chosen by what they are, not by what is in their stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stackhound.errors import UsageError
from stackhound.transform.ids import keep_rows
from stackhound.transform.samples import keep_samples
from stackhound.transform.totals import of_events

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


def filter_samples(
    profile: Profile,
    *,
    pids: Collection[int] | None = None,
    tids: Collection[int] | None = None,
    comms: Collection[str] | None = None,
    cpus: Collection[int] | None = None,
    events: Collection[str] | None = None,
    from_ns: int | None = None,
    until_ns: int | None = None,
) -> Profile:
    """Keep the samples that meet every condition given.

    Args:
        profile: where from.
        pids: of these processes, by their id in the recorder's PID namespace.
        tids: of these threads.
        comms: of threads with these names.
        cpus: taken on these CPUs.
        events: of these events; the others are no longer events of the profile.
        from_ns: from this time on, counted from the start of the recording (`Profile.start_boottime_ns`).
        until_ns: before this time. A sample counts by when it was taken, or where it stands for several, the first.

    Raises:
        UsageError: there is no such event, or no time is between ``from_ns`` and ``until_ns``.
    """
    keep = _threads(profile, pids, tids, comms)[profile.numbers("samples", "thread")]
    if cpus is not None:
        keep &= _among(profile.numbers("samples", "cpu"), cpus)
    if events is not None:
        ids = [profile.event(name).id for name in events]
        keep &= _among(profile.numbers("samples", "event"), ids)
    keep &= _times(profile, from_ns, until_ns)
    tables = keep_samples(profile, keep)
    if events is not None:
        chosen = _among(profile.numbers("events", "id"), ids)
        tables = keep_rows(of_events(tables, chosen), "events", chosen)
    lists = {"pids": pids, "tids": tids, "comms": comms, "cpus": cpus, "events": events}
    times = {"from_ns": from_ns, "until_ns": until_ns}
    return profile.derive(tables, _describe(lists, times))


def _threads(
    profile: Profile, pids: Collection[int] | None, tids: Collection[int] | None, comms: Collection[str] | None
) -> Numbers:
    """The threads that meet the conditions: bool (n_threads,)."""
    keep = np.ones(profile.table("threads").num_rows, bool)
    if pids is not None:
        keep &= _among(profile.numbers("processes", "pid"), pids)[profile.numbers("threads", "process")]
    if tids is not None:
        keep &= _among(profile.numbers("threads", "tid"), tids)
    if comms is not None:
        keep &= np.array([comm in comms for comm in profile.texts("threads", "comm")], bool)
    return keep


def _times(profile: Profile, from_ns: int | None, until_ns: int | None) -> Numbers:
    """The samples between the times: bool (n_samples,)."""
    if from_ns is not None and until_ns is not None and from_ns >= until_ns:
        raise UsageError(f"no time is from {from_ns} ns on and before {until_ns} ns", "give the earlier time first")
    times = profile.numbers("samples", "boottime_ns")
    keep = np.ones(len(times), bool)
    if from_ns is not None:
        keep &= times >= _boottime(profile, from_ns)
    if until_ns is not None:
        keep &= times < _boottime(profile, until_ns)
    return keep


def _boottime(profile: Profile, ns: int) -> int:
    return min(max(0, profile.start_boottime_ns + ns), 2**64 - 1)


def _among(column: Numbers, wanted: Collection[int]) -> Numbers:
    """Membership, also of numbers that the column's type cannot hold."""
    limit = np.iinfo(column.dtype).max
    return np.isin(column, np.array([one for one in wanted if 0 <= one <= limit], column.dtype))


def _describe(lists: Mapping[str, Collection[object] | None], times: Mapping[str, int | None]) -> str:
    """The conditions given: ``filter pids=1,2 from_ns=0``."""
    said = [f"{name}={','.join(map(str, values))}" for name, values in lists.items() if values is not None]
    said += [f"{name}={value}" for name, value in times.items() if value is not None]
    return " ".join(("filter", *said))
