"""What samples weigh: how long something took, or how often it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.columns import distinct, with_columns

if TYPE_CHECKING:
    from collections.abc import Collection

    from stackhound.profile import Event, Profile
    from stackhound.profile.columns import Numbers

#: Units of events that say how often something was, and how long it took.
OFTEN: Final = "count"
LONG: Final = "nanoseconds"


def weigh_by_count(profile: Profile) -> Profile:
    """Let samples weigh how often what they stand for was, instead of how long it took.

    Of ``off-cpu`` these are absences, of ``cpu`` samples; of events that count, as faults do, nothing changes.
    """
    timed = [event for event in profile.events if event.unit != OFTEN]
    return _weigh(profile, timed, OFTEN, profile.numbers("samples", "count"))


def weigh_by_time(profile: Profile) -> Profile:
    """Let samples weigh how long what they stand for took, also of events that count how often it was.

    Page faults stand for as many times their own latency as they stand for faults.

    Raises:
        UsageError: no event has a time.
    """
    took_ns = _took_ns(profile)
    measured = set(distinct(profile.numbers("samples", "event")[took_ns > 0]).tolist())
    counted = [event for event in profile.events if event.unit != LONG and event.id in measured]
    if not counted and all(event.unit != LONG for event in profile.events):
        names = ", ".join(event.name for event in profile.events)
        raise UsageError(f"how long it took was not measured of {names}", "drop --by time")
    return _weigh(profile, counted, LONG, profile.numbers("samples", "value") * took_ns)


def _weigh(profile: Profile, events: Collection[Event], unit: str, weight: Numbers) -> Profile:
    """Let the samples of some events have these values, uint64 (n_samples,), in another unit."""
    if not events:
        return profile
    ids = {event.id for event in events}
    of_events = np.isin(profile.numbers("samples", "event"), list(ids))
    value = np.where(of_events, weight, profile.numbers("samples", "value"))
    units = [unit if event.id in ids else event.unit for event in profile.events]
    tables = {
        "samples": with_columns(profile.table("samples"), value=value),
        "events": with_columns(profile.table("events"), unit=units),
    }
    before = {event.name: event.unit for event in events}
    return profile.derive(tables, f"weigh by {unit}", sampled_units=before)


def _took_ns(profile: Profile) -> Numbers:
    """How long each sample's page fault took, where that was measured: uint64 (n_samples,)."""
    took_ns = np.zeros(profile.table("samples").num_rows, np.uint64)
    if "faults" in profile.tables:
        ids = profile.numbers("samples", "id")
        order = np.argsort(ids, kind="stable")
        rows = order[np.searchsorted(ids, profile.numbers("faults", "sample"), sorter=order)]
        took_ns[rows] = profile.numbers("faults", "ns")
    return took_ns
