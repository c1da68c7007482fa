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
#: While a sampler settles. Who looks is sampled, too: when a window begins, its code must be known.
SETTLING_PARTS = 300


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
    samplers: Sequence[Sampler],
    hz: int,
    load: Workers,
    pairs: int,
    window_s: float,
    settling_s: float = SETTLING_S,
    *,
    counts_runs: bool = False,
) -> list[Round]:
    """Rounds in pairs: one in an order by chance, one in the reverse (ABBA).

    Args:
        counts_runs: of BPF programs, while their statistics are on: looking at them takes long.
    """
    chance = random.Random(1)
    rounds: list[Round] = []
    for pair in range(pairs):
        order = chance.sample(samplers, len(samplers))
        for turn in (order, order[::-1]):
            windows = {one.name: measure(one, hz, load, window_s, settling_s, counts_runs) for one in turn}
            rounds.append(windows)
        _show_progress(f"{hz} Hz, round {2 * pair + 2} of {2 * pairs}")
    return rounds


def measure(sampler: Sampler, hz: int, load: Workers, window_s: float, settling_s: float, counts_runs: bool) -> Window:
    with running(sampler, hz, settling_s=0):
        _watch(load, settling_s, SETTLING_PARTS)
        begin = _look(sampler, load, counts_runs)
        parts = _watch(load, window_s)
        end = _look(sampler, load, counts_runs)
    return _between(begin, end, parts)


def _watch(load: Workers, window_s: float, parts: int = PARTS) -> Sequence[Part]:
    looks = [(time.monotonic(), load.progress())]
    for _ in range(parts):
        time.sleep(window_s / parts)
        looks.append((time.monotonic(), load.progress()))
    return [Part(to_s - from_s, to.since(since)) for (from_s, since), (to_s, to) in pairwise(looks)]


@dataclass(frozen=True)
class _Look:
    wall_s: float
    work: Progress
    collector_cpu_ns: int
    runs: Runs | None


def _look(sampler: Sampler, load: Workers, counts_runs: bool) -> _Look:
    runs = sampler.runs() if counts_runs else None
    return _Look(time.monotonic(), load.progress(), sampler.collector_cpu_ns(), runs)


def _between(begin: _Look, end: _Look, parts: Sequence[Part]) -> Window:
    runs = end.runs.since(begin.runs) if end.runs and begin.runs else None
    collector_cpu_s = (end.collector_cpu_ns - begin.collector_cpu_ns) / 1e9
    return Window(end.wall_s - begin.wall_s, end.work.since(begin.work), collector_cpu_s, runs, parts)


def _show_progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
