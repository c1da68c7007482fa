"""Counters: what a process used over time, as tracks of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from stackhound.formats.firefox.columns import NS_PER_MS, has_numbers, milliseconds, table
from stackhound.formats.firefox.samples import ends_ns, event_rows
from stackhound.profile.columns import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.formats.firefox.identities import Identities
    from stackhound.profile import Event, Profile
    from stackhound.profile.columns import Numbers

#: A point of a curve is the sum over so long, or over a part of a long recording.
SHORTEST_STEP_NS: Final = 100_000_000
MOST_STEPS: Final = 10_000
#: Of one sample: a damaged file must not make sums overflow.
MOST_BYTES: Final = 2**40


class Curve(NamedTuple):
    """How a counter is drawn.

    Attributes:
        name: of the track.
        description: what it counts.
        color: one of the front-end's.
        unit: of the curve.
        label: what its tooltip says.
        source: where the tooltip's number is from (``CounterTooltipDataSource``).
        format: how it is written.
        weight: where it stands among the others: the lightest first.
    """

    name: str
    description: str
    color: str
    unit: str
    label: str
    source: str
    format: str
    weight: int


FAULT_COLORS: Final = {"major-faults": "red", "minor-faults": "yellow", "page-faults": "orange"}


def build_counters(profile: Profile, identities: Identities, first_of_process: dict[int, int]) -> list[dict[str, Any]]:
    """The counters of all processes that have a thread to show."""
    counters = []
    for event in profile.events:
        if curve := _curve(profile, event):
            counters += [
                _counter(curve, identities.pids[process], first_of_process[process], points)
                for process, points in _points_by_process(profile, event)
                if process in first_of_process
            ]
    return counters


def _points_by_process(profile: Profile, event: Event) -> Iterator[tuple[int, dict[str, Any]]]:
    rows = event_rows(profile, event)
    if len(rows) == 0:
        return
    process = profile.numbers("threads", "process")[profile.numbers("samples", "thread")[rows]]
    step_ns = max(SHORTEST_STEP_NS, profile.duration_ns // MOST_STEPS)
    step = ends_ns(profile, rows) // step_ns + 1
    steps = int(step.max()) + 1
    used, index = np.unique(process.astype(np.int64) * steps + step, return_inverse=True)
    amount = _amounts(profile, event, rows)
    sums = np.bincount(index, amount, len(used)).astype(amount.dtype)
    number, step = np.divmod(used, steps)
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    parts = zip(number[starts].tolist(), np.split(step, starts[1:]), np.split(sums, starts[1:]), strict=True)
    for one, steps_of, sums_of in parts:
        yield one, _points(steps_of, sums_of, step_ns)


def _curve(profile: Profile, event: Event) -> Curve | None:
    if event.name == "cpu":
        return Curve("CPU", "time on CPUs, ms", "blue", "", "CPUs in use", "rate", "number", 10)  # ms in a ms
    if event.name == "block-io" and has_numbers(profile, "block_io", "sample", "bytes"):
        label = "read and written"
        return Curve("Disk", "bytes read and written", "green", "bytes", label, "rate", "bytes-per-second", 20)
    if event.name in FAULT_COLORS:
        label = "since the point before"
        return Curve(event.name, "page faults", FAULT_COLORS[event.name], "", label, "count", "number", 30)
    return None


def _amounts(profile: Profile, event: Event, rows: Numbers) -> Numbers:
    """What each sample adds to the curve."""
    if event.name != "block-io":
        value = profile.numbers("samples", "value")[rows]
        return value / NS_PER_MS if event.unit == "nanoseconds" else value.astype(np.int64)
    sizes = profile.numbers("block_io", "bytes").tolist()
    by_sample = dict(zip(profile.numbers("block_io", "sample").tolist(), sizes, strict=True))
    ids, value, duration_ns = (profile.numbers("samples", name)[rows] for name in ("id", "value", "duration_ns"))
    one = np.array([by_sample.get(number, 0) for number in ids.tolist()], np.float64)
    requests = np.where(duration_ns > 0, value / np.maximum(duration_ns, 1), 1)  # that it stands for
    amounts: Numbers = np.rint((one * requests).clip(0, MOST_BYTES)).astype(np.int64)
    return amounts


def _points(used: Numbers, sums: Numbers, step_ns: int) -> dict[str, Any]:
    """A point a step; of steps without anything only those beside others, which is where the curve turns."""
    shown = distinct(np.concatenate((used - 1, used, used + 1)))
    counts = np.zeros(len(shown), sums.dtype)
    counts[np.searchsorted(shown, used)] = sums
    return table(time=milliseconds(shown * step_ns), count=counts)


def _counter(curve: Curve, pid: str, thread: int, samples: dict[str, Any]) -> dict[str, Any]:
    row = {"type": "value", "source": curve.source, "format": {"unit": curve.format}, "label": curve.label}
    return {
        "name": curve.name,
        "category": curve.name,
        "description": curve.description,
        "pid": pid,
        "mainThreadIndex": thread,
        "samples": samples,
        "display": {
            "graphType": "line-rate",
            "unit": curve.unit,
            "color": curve.color,
            "markerSchemaLocation": None,
            "sortWeight": curve.weight,
            "label": curve.name,
            "tooltipRows": [row],
        },
    }
