"""What threads did when: each one's life in spells, one after the other, without gaps.

  cpu      ──├──────┤──├──────┤────    each sample around its time
  off-cpu  ├───┤──────────────├─┬─┤    exactly, the end of it in the run queue
           sleeping   running
           └───┘└─────────────┘└─┴─┘
Where they meet, what is known exactly has the place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.columns import distinct, number_keys
from stackhound.profile.portions import (
    DISK,
    FAULTS,
    KERNEL,
    ON_THE_CPU,
    PLACES,
    QUEUE,
    USER,
    Portions,
    portions_of,
)
from stackhound.profile.wall_time import find_lives

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile

#: What a thread may be doing.
STATES: Final = ("user", "kernel", "runnable", "sleeping", "disk", "faulting", "unknown")
UNKNOWN: Final = STATES.index("unknown")
_STATE_OF_PLACE: Final = {USER: "user", KERNEL: "kernel", QUEUE: "runnable", DISK: "disk", FAULTS: "faulting"}
#: By the number of a place.
_STATES_OF_PLACES: Final = np.array([STATES.index(_STATE_OF_PLACE.get(place, "sleeping")) for place in PLACES])


class Spell(NamedTuple):
    """A time in which a thread did one thing. ``reason`` is that of `Portions`; empty where nothing is known."""

    start_ns: int
    end_ns: int
    state: str
    reason: str


@dataclass(frozen=True, eq=False)
class Timeline:
    """A thread's life, since the recording began.

    Attributes:
        comm: the last one that it had.
        bounds_ns: int64 (n + 1,): when each spell begins, and when the last one ends.
        state: int64 (n,), indexes of `STATES`.
        reason: int64 (n,), indexes of ``reasons``; −1: nothing is known.
        totals: nanoseconds by state and reason, as samples add up: spells are drawn from them, and take no more than
            their place.
    """

    pid: int
    tid: int
    comm: str
    bounds_ns: Numbers
    state: Numbers
    reason: Numbers
    reasons: list[str]
    totals: Counter[tuple[str, str]]

    @property
    def spells(self) -> list[Spell]:
        """All of them, in order."""
        bounds_ns = self.bounds_ns.tolist()
        return [
            Spell(start_ns, end_ns, STATES[state], self.reasons[reason] if reason >= 0 else "")
            for start_ns, end_ns, state, reason in zip(
                bounds_ns, bounds_ns[1:], self.state.tolist(), self.reason.tolist(), strict=False
            )
        ]

    def cells(self, edges_ns: Numbers) -> Numbers:
        """The state with the most time between each edge and the next: int64 (n_edges − 1,); −1 where it did not live.

        Of what has as much, the first of `STATES`.
        """
        amounts = np.stack([np.diff(self._time_until(edges_ns, state)) for state in range(len(STATES))])
        most: Numbers = np.argmax(amounts, axis=0)
        return np.where(amounts.any(axis=0), most, -1)

    def _time_until(self, times_ns: Numbers, state: int) -> Numbers:
        """How long it had been in a state until each of the times."""
        lengths = np.diff(self.bounds_ns) * (self.state == state)
        return np.interp(times_ns, self.bounds_ns, np.concatenate(([0], np.cumsum(lengths))))


def draw_timelines(profile: Profile, wanted: Numbers) -> list[Timeline]:
    """The timelines of some threads, bool (n_threads,), by process, the main thread first.

    Raises:
        UsageError: neither ``cpu`` nor ``off-cpu`` was recorded, or samples were combined, which leaves no times.
    """
    if profile.is_aggregated:
        raise UsageError("samples of this profile were combined, and have no times", "record without --aggregate")
    portions = portions_of(profile, wanted)
    lives = find_lives(profile, portions)
    pids = profile.numbers("processes", "pid")[profile.numbers("threads", "process")].tolist()
    keys = list(zip(pids, profile.numbers("threads", "tid").tolist(), strict=True))
    comms = dict(zip(keys, profile.texts("threads", "comm"), strict=True))
    threads, index = number_keys(keys[row] for row in portions.thread.tolist())
    rows = np.split(np.argsort(index, kind="stable"), np.cumsum(np.bincount(index))[:-1])
    found = [
        _draw(portions.take(own), pid, tid, comms[pid, tid], lives[pid, tid], profile.start_boottime_ns)
        for (pid, tid), own in zip(threads, rows, strict=False)
    ]
    return sorted(found, key=lambda one: (one.pid, one.tid != one.pid, one.tid))


def _draw(portions: Portions, pid: int, tid: int, comm: str, life: tuple[int, int], origin_ns: int) -> Timeline:
    bounds, state, reason = _lay_out(portions, life)
    return Timeline(pid, tid, comm, bounds - origin_ns, state, reason, portions.reasons, _sum(portions))


def _sum(portions: Portions) -> Counter[tuple[str, str]]:
    totals: Counter[tuple[str, str]] = Counter()
    states = _STATES_OF_PLACES[portions.place].tolist()
    for state, reason, value_ns in zip(states, portions.reason.tolist(), portions.value_ns.tolist(), strict=True):
        totals[STATES[state], portions.reasons[reason]] += value_ns
    return totals


class _Layer(NamedTuple):
    """Spells of one kind, in order, none of which overlap."""

    start_ns: Numbers
    end_ns: Numbers
    state: Numbers
    reason: Numbers


def _lay_out(portions: Portions, life: tuple[int, int]) -> tuple[Numbers, Numbers, Numbers]:
    """Bounds, states and reasons of a thread's spells: of the layers that are there at a time the first one."""
    is_running = portions.reason == portions.reasons.index(ON_THE_CPU)
    layers = [
        _layer(portions.take(np.flatnonzero(chosen)))
        for chosen in (portions.is_exact, ~portions.is_exact & ~is_running, is_running)
    ]
    times = [np.array(life, np.int64), *(times for layer in layers for times in (layer.start_ns, layer.end_ns))]
    bounds = distinct(np.clip(np.concatenate(times), *life))
    state = np.full(len(bounds) - 1, UNKNOWN, np.int64)
    reason = np.full(len(bounds) - 1, -1, np.int64)
    for layer in reversed(layers):
        place = np.searchsorted(layer.start_ns, bounds[:-1], "right") - 1
        covers = (place >= 0) & (bounds[:-1] < np.append(layer.end_ns, 0)[place])
        state[covers], reason[covers] = layer.state[place[covers]], layer.reason[place[covers]]
    return _merge_alike(bounds, state, reason)


def _layer(portions: Portions) -> _Layer:
    """Portions in order. One that begins before another one's end begins there."""
    order = np.lexsort((portions.end_ns, portions.start_ns))
    start_ns, end_ns = portions.start_ns[order], portions.end_ns[order]
    until_ns = np.maximum.accumulate(end_ns) if len(end_ns) else end_ns
    start_ns[1:] = np.maximum(start_ns[1:], until_ns[:-1])
    rows = np.flatnonzero(start_ns < end_ns)
    state = _STATES_OF_PLACES[portions.place[order]]
    return _Layer(start_ns[rows], end_ns[rows], state[rows], portions.reason[order][rows])


def _merge_alike(bounds: Numbers, state: Numbers, reason: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """With neighbours alike made one."""
    differs = (np.diff(state, prepend=-1) != 0) | (np.diff(reason, prepend=-2) != 0)
    rows = np.flatnonzero(differs)
    return np.append(bounds[rows], bounds[-1]), state[rows], reason[rows]
