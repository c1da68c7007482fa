"""Where the wall time of a process's threads went.

    wall time  =  on the CPU (``cpu``)  +  off it (``off-cpu``)  +  not known

A thread's wall time is from when it was first seen to when it was last seen; the main thread's is its process's, and so
is every thread's where only one of the two events was recorded, which sees too little of it. What is not known is what
sampling leaves open, or what was left out of the recording.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.errors import EmptyProfile
from stackhound.profile.brief_stacks import BriefStacks
from stackhound.profile.columns import distinct, number_keys
from stackhound.profile.portions import PLACES, Portions, find_missing, portions_of
from stackhound.profile.targets import threads_of
from stackhound.profile.totals import exact_totals

if TYPE_CHECKING:
    from stackhound.profile.brief_stacks import BriefStack
    from stackhound.profile.columns import Numbers
    from stackhound.profile.portions import Place
    from stackhound.profile.profile import Profile

FAULTS: Final = ("major-faults", "minor-faults", "page-faults")
REQUESTS: Final = "block-io"


class StackTime(NamedTuple):
    """A stack in a few words, and its time."""

    stack: BriefStack
    value_ns: int


@dataclass(frozen=True)
class PlaceTime:
    """The time that went to one place.

    Attributes:
        reasons: its parts by how the place was come to, the largest first.
        stacks: the same by stack; those with the most.
    """

    place: Place
    value_ns: int
    reasons: tuple[tuple[str, int], ...]
    stacks: tuple[StackTime, ...]


@dataclass(frozen=True)
class WallTime:
    """A process's time.

    Attributes:
        threads: how many were sampled.
        wall_ns: of all of them together.
        places: the largest first; those that have any.
        missing: events that would tell the rest, and were not recorded.
        counts: how many page faults, by event, and requests to disks there were, where they were recorded.
    """

    pid: int
    comm: str
    command_line: str
    threads: int
    wall_ns: int
    places: tuple[PlaceTime, ...]
    missing: tuple[str, ...]
    counts: dict[str, int]

    @property
    def known_ns(self) -> int:
        """What the places add up to. Sampling may make it a little more than the wall time."""
        return sum(one.value_ns for one in self.places)

    @property
    def unknown_ns(self) -> int:
        """What is left of the wall time."""
        return max(0, self.wall_ns - self.known_ns)


def account_for(profile: Profile, pid: int, n_stacks: int) -> WallTime:
    """Say where the wall time of a process went, with ``n_stacks`` stacks a place.

    Raises:
        UsageError: neither ``cpu`` nor ``off-cpu`` was recorded.
        EmptyProfile: neither has a sample of the process.
    """
    missing = find_missing(profile)
    is_of_process = threads_of(profile, pid)
    portions = portions_of(profile, is_of_process)
    if len(portions) == 0:
        raise EmptyProfile(f"there is no sample of process {pid} on the CPU or off it", "record for longer")
    row = int(np.flatnonzero(profile.numbers("processes", "pid") == pid)[-1])
    lives = find_lives(profile, portions)
    return WallTime(
        pid=pid,
        comm=profile.texts("processes", "comm")[row],
        command_line=profile.texts("processes", "command_line")[row],
        threads=len(lives),
        wall_ns=sum(until_ns - from_ns for from_ns, until_ns in lives.values()),
        places=_sum_places(portions, BriefStacks(profile), n_stacks),
        missing=missing,
        counts=_count(profile, pid, is_of_process),
    )


def find_lives(profile: Profile, portions: Portions) -> dict[tuple[int, int], tuple[int, int]]:
    """From when to when each thread lived, as far as it was recorded: CLOCK_BOOTTIME, by (pid, tid)."""
    pids = profile.numbers("processes", "pid")[profile.numbers("threads", "process")]
    tids = profile.numbers("threads", "tid")
    rows = portions.thread
    threads, index = number_keys(zip(pids[rows].tolist(), tids[rows].tolist(), strict=True))
    first = np.full(len(threads), 2**62, np.int64)
    last, known = np.zeros(len(threads), np.int64), np.zeros(len(threads), np.int64)
    np.minimum.at(first, index, portions.start_ns)
    np.maximum.at(last, index, portions.end_ns)
    np.add.at(known, index, portions.value_ns)
    is_partial = bool(find_missing(profile))
    seen = zip(threads, first.tolist(), last.tolist(), known.tolist(), strict=True)
    return {thread: _life(_process_life(profile, thread[0]), thread, is_partial, *times) for thread, *times in seen}


def _life(
    process: tuple[int, int], thread: tuple[int, int], is_partial: bool, first_ns: int, last_ns: int, known_ns: int
) -> tuple[int, int]:
    if is_partial or thread[0] == thread[1]:
        return process
    first_ns = min(max(first_ns, process[0]), process[1])
    return first_ns, min(max(last_ns, first_ns + known_ns), process[1])


def _process_life(profile: Profile, pid: int) -> tuple[int, int]:
    """Within the recording."""
    start_ns, end_ns = profile.start_boottime_ns, profile.start_boottime_ns + profile.duration_ns
    rows = np.flatnonzero(profile.numbers("processes", "pid") == pid)
    begun_ns = int(profile.numbers("processes", "start_boottime_ns")[rows].min())
    ended_ns = int(profile.numbers("processes", "exit_boottime_ns")[rows[-1]]) or end_ns
    first_ns = min(max(start_ns, begun_ns), end_ns)
    return first_ns, max(first_ns, min(ended_ns, end_ns))


def _sum_places(portions: Portions, stacks: BriefStacks, n_stacks: int) -> tuple[PlaceTime, ...]:
    found = []
    for number in distinct(portions.place).tolist():
        there = portions.take(portions.place == number)
        found.append(
            PlaceTime(
                place=PLACES[number],
                value_ns=int(there.value_ns.sum()),
                reasons=_sum_reasons(there),
                stacks=_sum_stacks(there, stacks)[:n_stacks],
            )
        )
    return tuple(sorted(found, key=lambda one: -one.value_ns))


def _sum_reasons(portions: Portions) -> tuple[tuple[str, int], ...]:
    sums = np.zeros(len(portions.reasons), np.int64)
    np.add.at(sums, portions.reason, portions.value_ns)
    found = [(name, value_ns) for name, value_ns in zip(portions.reasons, sums.tolist(), strict=True) if value_ns]
    return tuple(sorted(found, key=lambda one: (-one[1], one[0])))


def _sum_stacks(portions: Portions, stacks: BriefStacks) -> tuple[StackTime, ...]:
    """By what is shown of them: many stacks look alike."""
    used, index = np.unique(portions.stack, return_inverse=True)
    values = np.zeros(len(used), np.int64)
    np.add.at(values, index, portions.value_ns)
    sums: Counter[BriefStack] = Counter()
    for stack, value_ns in zip(used.tolist(), values.tolist(), strict=True):
        sums[stacks.brief(stack)] += value_ns
    return tuple(StackTime(*one) for one in sorted(sums.items(), key=lambda one: (-one[1], one[0])))


def _count(profile: Profile, pid: int, is_of_process: Numbers) -> dict[str, int]:
    """Of faults exactly, where the kernel's own number is known; else as samples tell."""
    found = {}
    for event in profile.events:
        samples = profile.samples_of(event)
        own = is_of_process[samples.thread]
        if event.name in FAULTS:
            found[event.name] = exact_totals(profile, event).get(pid, int(samples.value[own].sum()))
        elif event.name == REQUESTS:
            found[event.name] = int(samples.count[own].sum())
    return found
