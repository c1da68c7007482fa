"""Windows of time, each with one sampler at work, in turns: what drifts meets all of them alike."""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from harness.samplers import SETTLING_S, running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.bpf_statistics import Runs
    from harness.load import Progress, Workers
    from harness.samplers import Sampler

#: Of a window: what a neighbour on the same core takes comes and goes within a second.
PARTS = 10


@dataclass(frozen=True)
class Part:
    """What was done in a part of a window."""

    wall_s: float
    work: Progress


@dataclass(frozen=True)
class Window:
    """What happened while one sampler was at work."""

    wall_s: float
    work: Progress
    collector_cpu_s: float
    runs: Runs | None
    parts: Sequence[Part]

    @property
    def ns_a_run(self) -> float:
        if self.runs is None or not self.runs.count:
            raise ValueError("no BPF program ran")
        return self.runs.ns / self.runs.count


#: A round has a window of each sampler, by its name.
Round = dict[str, Window]


def measure_rounds(
    samplers: Sequence[Sampler], hz: int, load: Workers, pairs: int, window_s: float, settling_s: float = SETTLING_S
) -> list[Round]:
    """Rounds in pairs: one in an order by chance, one in the reverse (ABBA)."""
    chance = random.Random(1)
    rounds: list[Round] = []
    for pair in range(pairs):
        order = chance.sample(samplers, len(samplers))
        rounds.extend(measure_round(turn, hz, load, window_s, settling_s) for turn in (order, order[::-1]))
        _show_progress(f"{hz} Hz, round {2 * pair + 2} of {2 * pairs}")
    return rounds


def measure_round(
    samplers: Sequence[Sampler], hz: int, load: Workers, window_s: float, settling_s: float = SETTLING_S
) -> Round:
    return {sampler.name: measure(sampler, hz, load, window_s, settling_s) for sampler in samplers}


def measure(sampler: Sampler, hz: int, load: Workers, window_s: float, settling_s: float = SETTLING_S) -> Window:
    with running(sampler, hz, settling_s):
        begin = _look(sampler, load)
        parts = _watch(load, window_s)
        end = _look(sampler, load)
    return _between(begin, end, parts)


def _watch(load: Workers, window_s: float) -> Sequence[Part]:
    looks = [(time.monotonic(), load.progress())]
    for _ in range(PARTS):
        time.sleep(window_s / PARTS)
        looks.append((time.monotonic(), load.progress()))
    return [Part(to_s - from_s, to.since(since)) for (from_s, since), (to_s, to) in pairwise(looks)]


@dataclass(frozen=True)
class _Look:
    wall_s: float
    work: Progress
    collector_cpu_ns: int
    runs: Runs | None


def _look(sampler: Sampler, load: Workers) -> _Look:
    return _Look(time.monotonic(), load.progress(), sampler.collector_cpu_ns(), sampler.runs())


def _between(begin: _Look, end: _Look, parts: Sequence[Part]) -> Window:
    runs = end.runs.since(begin.runs) if end.runs and begin.runs else None
    collector_cpu_s = (end.collector_cpu_ns - begin.collector_cpu_ns) / 1e9
    return Window(end.wall_s - begin.wall_s, end.work.since(begin.work), collector_cpu_s, runs, parts)


def _show_progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
