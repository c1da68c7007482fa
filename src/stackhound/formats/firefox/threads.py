"""Threads, with their samples and markers, under their processes' names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stackhound.formats.firefox.columns import NS_PER_MS, milliseconds, nullable, table
from stackhound.formats.firefox.markers import NO_MARKERS
from stackhound.formats.firefox.stacks import NO_STACK
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from stackhound.formats.firefox.identities import Identities
    from stackhound.formats.firefox.markers import Markers
    from stackhound.formats.firefox.samples import Rows, SampleRows
    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


@dataclass(frozen=True, eq=False)
class Threads:
    """The threads that have something to show.

    Attributes:
        rows: as the format has them.
        first_of_process: by row of ``processes``, the thread that stands for it: its main one where that is shown.
    """

    rows: list[dict[str, Any]]
    first_of_process: dict[int, int]


def build_threads(
    profile: Profile, identities: Identities, samples: SampleRows, markers: Markers, node: Numbers
) -> Threads:
    """All threads with samples or markers, process by process, the main one first."""
    rows_of = _split(samples.rows, len(identities))
    shown = [number for number, rows in enumerate(rows_of) if len(rows.time_ns) or number in markers.of_thread]
    pids = profile.numbers("processes", "pid").tolist()
    is_main = [tid == pids[process] for tid, process in zip(identities.tid, identities.process, strict=True)]
    order = sorted(shown, key=lambda number: (identities.process[number], not is_main[number]))
    first: dict[int, int] = {}
    found: list[dict[str, Any]] = []
    for number in order:
        first.setdefault(identities.process[number], len(found))
        found.append(
            {
                **_describe(profile, identities, number, is_main[number]),
                "samples": _samples(rows_of[number], samples.weight_type, node),
                "markers": markers.of_thread.get(number, NO_MARKERS),
                "showMarkersInTimeline": number in markers.of_thread,
            }
        )
    return Threads(found, first)


def _split(rows: Rows, threads: int) -> list[Rows]:
    """The rows of each thread, which are one after the other."""
    ends = np.cumsum(np.bincount(rows.thread, minlength=threads)).tolist()
    return [rows.take(slice(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def _describe(profile: Profile, identities: Identities, number: int, is_main: bool) -> dict[str, Any]:
    process = identities.process[number]
    begun = max(0, int(profile.numbers("processes", "start_boottime_ns")[process]) - profile.start_boottime_ns)
    exited = profile.table("processes")["exit_boottime_ns"][process].as_py()
    ended = None if exited is None else (exited - profile.start_boottime_ns) / NS_PER_MS
    return {
        "processType": "default",
        "processName": printable(profile.texts("processes", "comm")[process]),
        "processStartupTime": begun / NS_PER_MS,
        "processShutdownTime": ended,
        "registerTime": begun / NS_PER_MS,
        "unregisterTime": ended,
        "pausedRanges": [],
        "name": printable(identities.comm[number]),
        "isMainThread": is_main,
        "pid": identities.pids[process],
        "tid": identities.tid[number],
    }


def _samples(rows: Rows, weight_type: str, node: Numbers) -> dict[str, Any]:
    stack = node[rows.stack]
    return table(
        stack=nullable(stack, stack == NO_STACK),
        time=milliseconds(rows.time_ns),
        weight=np.ascontiguousarray(rows.weight),
        weightType=weight_type,
        threadCPUDelta=np.ascontiguousarray(rows.cpu_ns),
    )
