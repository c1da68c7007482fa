"""Samples, woven of time on the CPU and time asleep.

The front-end draws a thread's CPU use from ``threadCPUDelta``, what it used since the sample before. Where a thread was
not seen for more than two periods, a row without a stack says that it used nothing until one period ago; otherwise its
next sample would be smeared over the gap. A thread asleep has two rows, as samply writes them: one where the sleep
begins, with what was used of the CPU until then, and one where it ends, with the weight of the rest of the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.formats.firefox.columns import NS_PER_MS, has_numbers
from stackhound.profile.columns import distinct

if TYPE_CHECKING:
    from stackhound.profile import Event, Profile
    from stackhound.profile.columns import Numbers

#: Events that become samples together, where the first one is there.
WOVEN: Final = ("cpu", "off-cpu")
#: Periods without a sample after which a thread is taken to have been off the CPU.
GAP_PERIODS: Final = 2
#: The front-end's name of a weight, by an event's unit.
WEIGHT_TYPES: Final = {"nanoseconds": "tracing-ms", "bytes": "bytes"}
DEFAULT_INTERVAL_NS: Final = 1_000_000
NO_STACK: Final = 0
#: Of one sample, 146 years: a damaged file must not make times overflow.
LONGEST_NS: Final = 2**62


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of all threads, by thread, then by time.

    Attributes:
        thread: numbers of `Identities`.
        time_ns: int64, since the recording began.
        stack: rows of the table ``stacks``.
        weight: what the row counts for.
        cpu_ns: what the thread used of the CPU since the row before.
    """

    thread: Numbers
    time_ns: Numbers
    stack: Numbers
    weight: Numbers
    cpu_ns: Numbers

    def ordered(self) -> Rows:
        """By thread, then by time; rows of one time stay in order."""
        by_time = np.argsort(self.time_ns, kind="stable")  # of what is in order by then, in one go
        return self.take(by_time[np.argsort(_narrow(self.thread[by_time]), kind="stable")])

    def take(self, rows: Numbers | slice) -> Rows:
        """The given rows only."""
        return Rows(*(column[rows] for column in vars(self).values()))

    def joined(self, *others: Rows) -> Rows:
        """These rows, then the others."""
        columns = zip(*(vars(rows).values() for rows in (self, *others)), strict=True)
        return Rows(*(np.concatenate(parts) for parts in columns))


@dataclass(frozen=True, eq=False)
class SampleRows:
    """What becomes samples.

    Attributes:
        events: those that were made samples of.
        interval_ns: the time that a sample stands for.
        weight_type: what the weights are, as the format calls it.
        rows: the samples.
    """

    events: list[Event]
    interval_ns: int
    weight_type: str
    rows: Rows


def build_samples(profile: Profile, of_thread: Numbers) -> SampleRows:
    """The samples of ``cpu`` and ``off-cpu``; without them, those of the first event that has any.

    Args:
        profile: what was recorded.
        of_thread: see `Identities`.
    """
    by_name = {event.name: event for event in profile.events}
    events = [by_name[name] for name in WOVEN if name in by_name] or [_first_sampled(profile)]
    interval_ns = _interval_ns(profile, events[0])
    if events[0].name in WOVEN:
        rows = _Weaver(profile, of_thread, interval_ns).weave(events)
        return SampleRows(events, interval_ns, "samples", rows)
    rows = _plain(profile, of_thread, events[0])
    return SampleRows(events, interval_ns, WEIGHT_TYPES.get(events[0].unit, "samples"), rows)


def event_rows(profile: Profile, event: Event) -> Numbers:
    """The rows of the table ``samples`` that an event has."""
    return np.flatnonzero(profile.numbers("samples", "event") == event.id)


def ends_ns(profile: Profile, rows: Numbers) -> Numbers:
    """When samples were taken, since the recording began: int64. What has a duration was over by then."""
    times = profile.numbers("samples", "boottime_ns")[rows].astype(np.int64)
    since: Numbers = np.maximum(times - profile.start_boottime_ns, 0)
    return since


def starts_ns(profile: Profile, rows: Numbers) -> Numbers:
    """When what samples tell of began, since the recording began; not before that: int64."""
    begun: Numbers = np.maximum(ends_ns(profile, rows) - durations_ns(profile, rows), 0)
    return begun


def durations_ns(profile: Profile, rows: Numbers) -> Numbers:
    """How long what samples tell of took: int64; 0: it was at one time, or nobody has measured it.

    How long a page fault took is in its side table: the value of its sample is a number.
    """
    took = profile.numbers("samples", "duration_ns")[rows]
    if has_numbers(profile, "faults", "sample", "ns"):
        took = np.maximum(took, _fault_times_ns(profile, profile.numbers("samples", "id")[rows]))
    durations: Numbers = np.minimum(took, LONGEST_NS).astype(np.int64)
    return durations


def _fault_times_ns(profile: Profile, ids: Numbers) -> Numbers:
    """By the ids of samples; 0 where there is none."""
    samples, times = (profile.numbers("faults", name).astype(np.uint64) for name in ("sample", "ns"))
    if len(samples) == 0:
        return np.zeros(len(ids), np.uint64)
    order = np.argsort(samples, kind="stable")
    place = np.minimum(np.searchsorted(samples[order], ids), len(samples) - 1)
    found: Numbers = np.where(samples[order][place] == ids, times[order][place], np.uint64(0))
    return found


def _first_sampled(profile: Profile) -> Event:
    seen = set(distinct(profile.numbers("samples", "event")).tolist())
    return next(event for event in profile.events if event.id in seen)


def _interval_ns(profile: Profile, event: Event) -> int:
    """What one observation stands for, where that is a time."""
    if event.mode == "frequency" and event.rate:
        return max(1, 1_000_000_000 // event.rate)
    rows = event_rows(profile, event)
    if event.unit != "nanoseconds" or len(rows) == 0:
        return DEFAULT_INTERVAL_NS
    value, count = profile.numbers("samples", "value")[rows], profile.numbers("samples", "count")[rows]
    return max(1, int(np.median(value / np.maximum(count, 1))))


def _plain(profile: Profile, of_thread: Numbers, event: Event) -> Rows:
    """Samples of an event that tells nothing of time on the CPU, weighted by its value."""
    rows = event_rows(profile, event)
    value = profile.numbers("samples", "value")[rows]
    weight = value / NS_PER_MS if event.unit == "nanoseconds" else value.astype(np.int64)
    return _rows(profile, of_thread, rows, ends_ns(profile, rows), weight, np.zeros(len(rows), np.int64)).ordered()


def _rows(
    profile: Profile, of_thread: Numbers, rows: Numbers, time_ns: Numbers, weight: Numbers, cpu_ns: Numbers
) -> Rows:
    thread, stack = (profile.numbers("samples", name)[rows] for name in ("thread", "stack"))
    return Rows(of_thread[thread].astype(np.int64), time_ns, stack.astype(np.int64), weight, cpu_ns)


class _Weaver:
    """Makes one thread's rows of what it did on the CPU and off it."""

    def __init__(self, profile: Profile, of_thread: Numbers, interval_ns: int) -> None:
        self._profile = profile
        self._of_thread = of_thread
        self._interval_ns = interval_ns

    def weave(self, events: list[Event]) -> Rows:
        parts: list[Rows] = []
        for event in events:
            rows = event_rows(self._profile, event)
            parts += [self._running(rows)] if event.name == "cpu" else self._sleeping(rows)
        return _with_rests(_within_elapsed(parts[0].joined(*parts[1:]).ordered()), self._interval_ns)

    def _running(self, rows: Numbers) -> Rows:
        count, value = (self._profile.numbers("samples", name)[rows].astype(np.int64) for name in ("count", "value"))
        return self._rows(rows, ends_ns(self._profile, rows), count, value)

    def _sleeping(self, rows: Numbers) -> list[Rows]:
        """Two rows a sleep; none for one that does not fill an interval with those before it."""
        rows = rows[np.lexsort((ends_ns(self._profile, rows), self._threads(rows)))]
        weight = self._whole_intervals(rows)
        rows, weight = rows[weight > 0], weight[weight > 0]
        nothing = np.zeros(len(rows), np.int64)
        begun, ended = starts_ns(self._profile, rows), ends_ns(self._profile, rows)
        return [
            self._rows(rows, begun, nothing + 1, nothing + self._interval_ns),
            self._rows(rows, ended, weight - 1, nothing),
        ]

    def _whole_intervals(self, rows: Numbers) -> Numbers:
        """How many intervals each value is; what is left over goes to the thread's next, so that the sums are right."""
        value = self._profile.numbers("samples", "value")[rows].astype(np.int64)
        passed = np.cumsum(value)
        is_first = np.diff(self._threads(rows), prepend=-1) != 0
        start = (passed - value)[is_first][np.cumsum(is_first) - 1] if len(rows) else passed
        whole: Numbers = (passed - start) // self._interval_ns - (passed - value - start) // self._interval_ns
        return whole

    def _threads(self, rows: Numbers) -> Numbers:
        found: Numbers = self._of_thread[self._profile.numbers("samples", "thread")[rows]].astype(np.int64)
        return found

    def _rows(self, rows: Numbers, time_ns: Numbers, weight: Numbers, cpu_ns: Numbers) -> Rows:
        return _rows(self._profile, self._of_thread, rows, time_ns, weight, cpu_ns)


def _narrow(thread: Numbers) -> Numbers:
    """The numbers in 16 bits where they fit: numpy then sorts by counting, fifty times as fast."""
    return thread.astype(np.uint16) if thread.max(initial=0) < 2**16 else thread


def _within_elapsed(rows: Rows) -> Rows:
    """Nobody uses more of a CPU than time passes; a thread's first row keeps what it has."""
    elapsed = np.diff(rows.time_ns, prepend=0)
    is_same = np.diff(rows.thread, prepend=-1) == 0
    cpu_ns = np.where(is_same, np.minimum(rows.cpu_ns, elapsed), rows.cpu_ns)
    return Rows(rows.thread, rows.time_ns, rows.stack, rows.weight, cpu_ns)


def _with_rests(rows: Rows, interval_ns: int) -> Rows:
    """The rows, and one without a stack before each that comes after a gap, or is a thread's first."""
    elapsed = np.diff(rows.time_ns, prepend=0)
    is_first = np.diff(rows.thread, prepend=-1) != 0
    is_late = (elapsed > GAP_PERIODS * interval_ns) & (rows.cpu_ns > 0)
    late = np.flatnonzero(is_first | is_late)
    rested_until = rows.time_ns[late] - rows.cpu_ns[late]
    nothing = np.zeros(len(late), np.int64)
    rests = Rows(rows.thread[late], np.maximum(rested_until, 0), nothing + NO_STACK, nothing, nothing)
    columns = zip(vars(rows).values(), vars(rests).values(), strict=True)
    return Rows(*(np.insert(column, late, rest) for column, rest in columns))
