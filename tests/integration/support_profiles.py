"""What a profile says, sample by sample, as plain values to compare with the truth."""

from __future__ import annotations

from collections import Counter
from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stackhound import Profile

#: A normal deviate is farther out once in 150,000 times. Some hundred comparisons a run: a false alarm in 1,000 runs.
DEVIATIONS = 4.5


class Frame(NamedTuple):
    name: str
    kind: str
    inlined: bool
    file: str
    line: int
    reason: str | None
    path: str


class Sample(NamedTuple):
    event: str
    boottime_ns: int
    cpu: int
    pid: int
    ns_pid: int
    tid: int
    ns_tid: int
    comm: str  # of the thread
    value: int
    count: int
    flags: int
    frames: tuple[Frame, ...]  # root → leaf, inlined ones expanded

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(frame.name for frame in self.frames)

    @property
    def leaf(self) -> str:
        return self.frames[-1].name if self.frames else ""


def samples_of(profile: Profile) -> list[Sample]:
    """Every row of the table ``samples``, with what its ids mean."""
    stacks = _Stacks(profile)
    threads = _threads(profile)
    events = profile.column("events", "name")
    columns = ("event", "boottime_ns", "cpu", "thread", "value", "count", "flags", "stack")
    rows = zip(*(profile.numbers("samples", name).tolist() for name in columns), strict=True)
    return [
        Sample(events[event], boottime_ns, cpu, *threads[thread], value, count, flags, stacks.frames(stack))
        for event, boottime_ns, cpu, thread, value, count, flags, stack in rows
    ]


def _threads(profile: Profile) -> list[tuple[int, int, int, int, str]]:
    process = profile.numbers("threads", "process")
    columns = (
        profile.numbers("processes", "pid")[process].tolist(),
        profile.numbers("processes", "ns_pid")[process].tolist(),
        profile.numbers("threads", "tid").tolist(),
        profile.numbers("threads", "ns_tid").tolist(),
        profile.texts("threads", "comm"),
    )
    return list(zip(*columns, strict=True))


class _Stacks:
    def __init__(self, profile: Profile) -> None:
        self._parent = profile.numbers("stacks", "parent").tolist()
        self._location = profile.numbers("stacks", "location").tolist()
        self._frames_at = _frames_by_location(profile)
        self._known: dict[int, tuple[Frame, ...]] = {0: ()}

    def frames(self, stack: int) -> tuple[Frame, ...]:
        if stack not in self._known:
            self._known[stack] = self.frames(self._parent[stack]) + self._frames_at[self._location[stack]]
        return self._known[stack]


def _frames_by_location(profile: Profile) -> list[tuple[Frame, ...]]:
    frames = profile.frames_with_lines
    paths = profile.texts("objects", "path")
    each = [
        Frame(*row, paths[at])
        for *row, at in zip(
            frames.name,
            frames.kind,
            frames.inlined.tolist(),
            frames.file,
            frames.line.tolist(),
            frames.reason,
            frames.object.tolist(),
            strict=True,
        )
    ]
    segments = np.split(frames.frames, frames.offsets[1:-1])
    return [tuple(each[frame] for frame in segment.tolist()) for segment in segments]


def count(samples: Iterable[Sample], function: str | None = None) -> int:
    """Observations; with a function, those that have it somewhere in their stack."""
    return sum(sample.count for sample in samples if function is None or function in sample.names)


def where(samples: Iterable[Sample], wanted: Callable[[Sample], bool]) -> list[Sample]:
    """The samples that are as wanted, at least one."""
    found = [sample for sample in samples if wanted(sample)]
    assert found
    return found


def misses(samples: Iterable[Sample]) -> Counter[tuple[str, str | None]]:
    """Frames without a name: (object, reason), by observations."""
    found: Counter[tuple[str, str | None]] = Counter()
    for sample in samples:
        for frame in sample.frames:
            if frame.reason is not None:
                found[frame.path, frame.reason] += sample.count
    return found


def named_share(samples: Iterable[Sample]) -> float:
    """The share of frames that have a name, by observations."""
    frames = [(frame.reason is None, sample.count) for sample in samples for frame in sample.frames]
    return sum(weight for named, weight in frames if named) / sum(weight for _, weight in frames)


def margin(share: float, samples: int) -> float:
    """How far the share of so many independent samples may lie from the true one by chance."""
    return DEVIATIONS * sqrt(share * (1 - share) / samples)


def count_margin(samples: float) -> float:
    """How far a number of samples may lie from the expected one by chance. Timers do better than independent ones."""
    return DEVIATIONS * sqrt(max(samples, 1))


def assert_share(samples: list[Sample], function: str, truth: float) -> None:
    """The function has its share of the samples."""
    total = count(samples)
    found = count(samples, function) / total
    assert abs(found - truth) <= margin(truth, total), f"{function}: {found:.3f} of {total}, truly {truth:.3f}"


#: Causes of lost samples as people see them, and the counter of each.
LOST_SAMPLES = {
    "ring full": "lost_ring_full",
    "combined, ring full": "lost_ring_combined",
    "nested": "lost_nested",
    "process not visible": "lost_no_process",
}


def assert_accounted_for(profile: Profile) -> None:
    """Program entries = stored + Σ losses, to the last one."""
    counters = profile.metadata["counters"]
    stored = int(observations(profile).sum()) - counters["absent"]  # those were no run of a program
    assert stored == counters["emitted"] + counters["combined"] - counters["lost_ring_combined"] - counters["held"]
    assert set(LOST_SAMPLES.values()) == {name for name in counters if name.startswith("lost_")}
    lost = sum(counters[name] for name in LOST_SAMPLES.values())
    others = sum(counters[name] for name in ("idle", "filtered", "saved", "wakings", "held", "steps"))
    assert counters["entries"] == stored + others + lost
    shown = {loss.cause: loss.count for loss in profile.losses if not loss.estimated}
    assert {cause: shown[cause] for cause in LOST_SAMPLES} == {
        cause: counters[name] for cause, name in LOST_SAMPLES.items()
    }


def observations(profile: Profile) -> np.ndarray:
    """Of each row of ``samples``, how many it is made of; of ``off-cpu``, ``block-io`` or ``heap`` always one."""
    away = [name in ("off-cpu", "block-io", "heap") for name in profile.column("events", "name")]
    count = profile.numbers("samples", "count")
    return np.where(np.array(away)[profile.numbers("samples", "event")], np.ones_like(count), count)


def assert_every_miss_has_one_reason(profile: Profile) -> None:
    """A location has a name or the reason why not, never both, never neither."""
    reasons = profile.column("locations", "reason")
    named = set(profile.numbers("lines", "location").tolist())
    for location, reason in enumerate(reasons):
        assert (location in named) == (reason is None), (location, reason)
        if reason is not None:
            assert reason, location
            assert "\n" not in reason, location
