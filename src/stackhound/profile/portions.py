"""How threads spent their time: samples of ``cpu`` and ``off-cpu``, told apart by what was done with it.

cpu      a sample ──────────→ one portion: user code, the kernel, or its handling of a page fault
off-cpu  a sample ─┬────────→ one portion: what was waited for
                   └────────→ another one: then ready to run, for ``queued_ns`` of it
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.absences import absences_by, queued_ns_of
from stackhound.profile.paths import read_paths, select_paths
from stackhound.profile.schema import SampleFlag
from stackhound.profile.waits import PAGE_FAULT

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event

ON_CPU: Final = "cpu"
OFF_CPU: Final = "off-cpu"


class Place(NamedTuple):
    """Where time goes. ``doing`` is what a thread did there, to stand in a sentence."""

    name: str
    doing: str


USER: Final = Place("user code", "running its own code")
KERNEL: Final = Place("kernel", "running in the kernel")
FAULTS: Final = Place("page faults", "having memory brought in")
QUEUE: Final = Place("run queue", "ready but without a CPU")
DISK: Final = Place("disk", "waiting for the disk")
LOCKS: Final = Place("locks", "waiting for locks")
NETWORK: Final = Place("network", "waiting for sockets")
EVENTS: Final = Place("events", "waiting for events")
PROGRAMS: Final = Place("programs", "waiting for other programs")
SLEEP: Final = Place("sleep", "sleeping")
OTHER: Final = Place("other", "waiting for something else")

#: What a portion's ``place`` counts.
PLACES: Final = (USER, KERNEL, FAULTS, QUEUE, DISK, LOCKS, NETWORK, EVENTS, PROGRAMS, SLEEP, OTHER)
#: Those that are time on the CPU; `FAULTS` is both.
RUNNING: Final = frozenset({USER, KERNEL})

#: By the reason in ``off_cpu``; what is not here is `OTHER`.
PLACE_OF_REASON: Final = {
    **dict.fromkeys(("cpu", "cpu quota", "yield"), QUEUE),
    "disk": DISK,
    **dict.fromkeys(("page fault", "memory"), FAULTS),
    **dict.fromkeys(("futex", "semaphore", "file lock", "kernel lock"), LOCKS),
    "socket": NETWORK,
    **dict.fromkeys(("poll", "io_uring", "eventfd", "timer"), EVENTS),
    **dict.fromkeys(("pipe", "child", "message queue", "signal", "terminal"), PROGRAMS),
    "sleep": SLEEP,
}
#: Reasons of portions that ``off_cpu`` has none for: of time on the CPU, and of that in the run queue.
ON_THE_CPU: Final = "on the CPU"
PREEMPTED: Final = "preempted"
WOKEN: Final = "woken"
OWN_REASONS: Final = (ON_THE_CPU, PREEMPTED, WOKEN)
#: Of a time, 146 years: a damaged file must not make sums overflow.
MOST: Final = 2**62


@dataclass(frozen=True, eq=False)
class Portions:
    """Times that samples stand for, a row each.

    Attributes:
        reasons: how each place was come to: of time off the CPU what ``off_cpu`` says.
        reason: int64, indexes of ``reasons``.
        place: int64, indexes of `PLACES`.
        thread, stack: int64, rows of their tables.
        value_ns: int64: what the portion stands for. A sample's portions add up to its value.
        start_ns, end_ns: int64, CLOCK_BOOTTIME: where it is drawn. Time on the CPU is around its sample; absences that
            share a sample are drawn as one, in front of it.
        is_exact: bool: whether it was just then, and not around it.
    """

    reasons: list[str]
    reason: Numbers
    place: Numbers
    thread: Numbers
    stack: Numbers
    value_ns: Numbers
    start_ns: Numbers
    end_ns: Numbers
    is_exact: Numbers

    def __len__(self) -> int:
        return len(self.place)

    def take(self, rows: Numbers) -> Portions:
        """The given rows only, or those that are marked."""
        return Portions(self.reasons, *(column[rows] for column in self._columns()))

    def joined(self, other: Portions) -> Portions:
        """These rows, then the others, which have the same ``reasons``."""
        columns = zip(self._columns(), other._columns(), strict=True)
        return Portions(self.reasons, *(np.concatenate(parts) for parts in columns))

    def _columns(self) -> list[Numbers]:
        return [column for name, column in vars(self).items() if name != "reasons"]


def portions_of(profile: Profile, wanted: Numbers) -> Portions:
    """The time of some threads, bool (n_threads,), as far as it was recorded.

    Without the event ``cpu`` there is no time on the CPU, without ``off-cpu`` none off it.

    Raises:
        UsageError: neither was recorded.
    """
    find_missing(profile)
    by_name = {event.name: event for event in profile.events}
    away = by_name.get(OFF_CPU)
    said, of_sample = absences_by(profile, away, "reason") if away else ([], np.zeros(0, np.int64))
    reasons = [*OWN_REASONS, *said]
    parts = [_running(profile, by_name[ON_CPU], wanted, reasons)] if ON_CPU in by_name else []
    if away:
        parts.append(_away(profile, away, wanted, reasons, of_sample + len(OWN_REASONS)))
    found = reduce(Portions.joined, parts)
    return found.take(np.flatnonzero(found.value_ns))


def find_missing(profile: Profile) -> tuple[str, ...]:
    """Which of ``cpu`` and ``off-cpu`` was not recorded.

    Raises:
        UsageError: both.
    """
    names = {event.name for event in profile.events}
    missing = tuple(name for name in (ON_CPU, OFF_CPU) if name not in names)
    if len(missing) == 2:
        raise UsageError("this profile has time neither on the CPU nor off it", "record with -e cpu,off-cpu")
    return missing


def _rows(profile: Profile, event: Event, wanted: Numbers) -> Numbers:
    """The samples of an event that are of these threads."""
    of_event = profile.numbers("samples", "event") == event.id
    return np.flatnonzero(of_event & wanted[profile.numbers("samples", "thread")])


def _column(profile: Profile, name: str, rows: Numbers) -> Numbers:
    found: Numbers = np.minimum(profile.numbers("samples", name)[rows].astype(np.uint64), MOST).astype(np.int64)
    return found


# --- On the CPU -------------------------------------------------------------------------------------------------------


def _running(profile: Profile, event: Event, wanted: Numbers, reasons: list[str]) -> Portions:
    rows = _rows(profile, event, wanted)
    value_ns, time_ns, stack = (_column(profile, name, rows) for name in ("value", "boottime_ns", "stack"))
    in_kernel = _column(profile, "flags", rows) & SampleFlag.IN_KERNEL != 0
    place = np.where(in_kernel, PLACES.index(KERNEL), PLACES.index(USER))
    place[in_kernel & _handles_fault(profile, stack)] = PLACES.index(FAULTS)
    start_ns = time_ns - value_ns // 2
    return Portions(
        reasons=reasons,
        reason=np.full(len(rows), reasons.index(ON_THE_CPU), np.int64),
        place=place,
        thread=_column(profile, "thread", rows),
        stack=stack,
        value_ns=value_ns,
        start_ns=start_ns,
        end_ns=start_ns + value_ns,
        is_exact=np.zeros(len(rows), bool),
    )


def _handles_fault(profile: Profile, stack: Numbers) -> Numbers:
    """Bool (n,): whether a stack has the kernel's handling of a page fault in it."""
    used, index = np.unique(stack, return_inverse=True)
    tree = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    offsets, locations = select_paths(*tree, used)
    frames = profile.frames
    named = zip(frames.name, frames.kind, strict=True)
    is_fault = np.array([kind == "kernel" and bool(PAGE_FAULT.fullmatch(name)) for name, kind in named], bool)
    in_location = _any(is_fault[frames.frames], frames.offsets)
    return _any(in_location[locations], offsets)[index]


def _any(flags: Numbers, offsets: Numbers) -> Numbers:
    """Bool: whether any flag of a segment is set."""
    counts = np.concatenate(([0], np.cumsum(flags)))
    found: Numbers = counts[offsets[1:]] > counts[offsets[:-1]]
    return found


# --- Off the CPU ------------------------------------------------------------------------------------------------------


def _away(profile: Profile, event: Event, wanted: Numbers, reasons: list[str], reason: Numbers) -> Portions:
    """Waiting, and then ready. ``reason`` is that of each sample of the event, an index of ``reasons``."""
    rows = _rows(profile, event, wanted)
    is_wanted = wanted[profile.samples_of(event).thread]
    reason = reason[is_wanted]
    value_ns, duration_ns, end_ns = (_column(profile, name, rows) for name in ("value", "duration_ns", "boottime_ns"))
    ready = _ready_share(profile, event, is_wanted, duration_ns)
    is_single = _column(profile, "count", rows) <= 1
    length_ns = np.where(is_single, duration_ns, value_ns)
    places = np.array([PLACES.index(PLACE_OF_REASON.get(name, OTHER)) for name in reasons], np.int64)
    waiting = Portions(
        reasons=reasons,
        reason=reason,
        place=places[reason],
        thread=_column(profile, "thread", rows),
        stack=_column(profile, "stack", rows),
        value_ns=value_ns - (value_ns * ready).astype(np.int64),
        start_ns=end_ns - length_ns,
        end_ns=end_ns - (length_ns * ready).astype(np.int64),
        is_exact=is_single,
    )
    return waiting.joined(
        replace(
            waiting,
            reason=_why_ready(reasons, reason, ready == 1),
            place=np.full(len(rows), PLACES.index(QUEUE), np.int64),
            value_ns=value_ns - waiting.value_ns,
            start_ns=waiting.end_ns,
            end_ns=end_ns,
        )
    )


def _ready_share(profile: Profile, event: Event, is_wanted: Numbers, duration_ns: Numbers) -> Numbers:
    """How much of each absence the thread was ready to run, from 0 to 1. One that was preempted was so all along."""
    states, state = absences_by(profile, event, "state")
    queued_ns = np.clip(queued_ns_of(profile, event)[is_wanted], 0, duration_ns)
    is_preempted = np.array([name == PREEMPTED for name in states], bool)[state[is_wanted]]
    return np.where(is_preempted, 1.0, queued_ns / np.maximum(duration_ns, 1))


def _why_ready(reasons: list[str], reason: Numbers, is_all: Numbers) -> Numbers:
    """Of time in the run queue: a reason of its own, preempted, or woken from a wait."""
    has_own = np.array([PLACE_OF_REASON.get(name) is QUEUE and name != "cpu" for name in reasons], bool)[reason]
    other = np.where(is_all, reasons.index(PREEMPTED), reasons.index(WOKEN))
    return np.where(has_own, reason, other)
