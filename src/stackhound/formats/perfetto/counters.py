"""Curves of processes over time: CPUs in use, faults a second, bytes a second to and from disks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.formats.firefox.columns import has_numbers
from stackhound.formats.perfetto import packets
from stackhound.profile.columns import distinct
from stackhound.profile.requests import request_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.formats.perfetto.tracks import Tracks
    from stackhound.profile import Event, Profile
    from stackhound.profile.columns import Numbers

#: A point of a curve is the rate over so long, or over a part of a long recording.
SHORTEST_STEP_NS: Final = 100_000_000
MOST_STEPS: Final = 10_000
NS_PER_S: Final = 1_000_000_000
FAULTS: Final = frozenset({"major-faults", "minor-faults", "page-faults"})


class _Curve(NamedTuple):
    """``amount``: what each sample adds, float (n_samples,); a rate is so much in ``per_ns``."""

    name: str
    unit: str
    amount: Numbers
    per_ns: int


def write_counters(profile: Profile, event: Event, tracks: Tracks) -> Iterator[bytes]:
    """The curves of an event, one a process; none where it says nothing that a curve would show."""
    rows = np.flatnonzero(profile.numbers("samples", "event") == event.id)
    curve = _curve(profile, event, rows)
    if curve is None or len(rows) == 0:
        return
    step_ns = max(SHORTEST_STEP_NS, profile.duration_ns // MOST_STEPS)
    start_ns = profile.start_boottime_ns
    since_ns = profile.numbers("samples", "boottime_ns")[rows].astype(np.int64) - start_ns
    step = np.maximum(since_ns, 0) // step_ns
    pids = np.array(tracks.pids, np.int64)[profile.numbers("samples", "thread")[rows]]
    for pid in distinct(pids).tolist():
        own = pids == pid
        track = tracks.counter(pid, curve.name, curve.unit)
        points = list(_points(step[own], curve.amount[own] * (curve.per_ns / step_ns)))
        times = packets.times(start_ns + np.array([one for one, _ in points], np.int64) * step_ns)
        yield from (packets.counter_value(time, track, rate) for time, (_, rate) in zip(times, points, strict=True))


def _points(step: Numbers, amount: Numbers) -> Iterator[tuple[int, float]]:
    """A point where the rate changes: at each step with samples, and behind it where the next one has none."""
    used, index = np.unique(step, return_inverse=True)
    sums = dict(zip(used.tolist(), np.bincount(index, amount).tolist(), strict=True))
    for one in sorted({*sums, *(number + 1 for number in sums)}):
        yield one, sums.get(one, 0.0)


def _curve(profile: Profile, event: Event, rows: Numbers) -> _Curve | None:
    value = profile.numbers("samples", "value")[rows].astype(np.float64)
    if event.name == "cpu":
        return _Curve("CPUs in use", "", value, 1)
    if event.name in FAULTS:
        return _Curve(event.name, "1/s", value, NS_PER_S)
    if event.name == "block-io" and has_numbers(profile, "block_io", "sample", "bytes"):
        return _Curve("disk", "bytes/s", request_bytes(profile, event), NS_PER_S)
    return None
