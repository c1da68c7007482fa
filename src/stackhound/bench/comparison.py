"""Two sides compared: run in turns A B B A until the answer is clear, a regression confirmed by fresh pairs.

Turns in one job cancel what drifts: a machine's clock, its neighbours, its temperature. Source: Bulej et al. 2020, Duet
benchmarking (arXiv 2001.05811).
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from stackhound.bench.measures import Measure, known_measure
from stackhound.bench.runner import run_once
from stackhound.bench.verdicts import Control, Finding, Key, Limits, Samples, Verdict, check_controls, is_exact, judge
from stackhound.errors import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from stackhound.bench.configuration import Benchmark
    from stackhound.bench.results import Results
    from stackhound.bench.statistics import Interval

#: Pairs before the first look, and how many times as many before each next one: few looks, each a chance of error.
FIRST_PAIRS: Final = 10
GROWTH: Final = 1.5
MAX_PAIRS: Final = 2000
#: Of the time limit, for finding what is suspicious; the rest confirms it.
FIRST_SHARE: Final = 0.5


class Side(NamedTuple):
    """One of the two: benchmarks, and the directory they run in."""

    directory: Path
    benchmarks: tuple[Benchmark, ...]


class Run(Protocol):
    """`stackhound.bench.runner.run_once`, or what stands for it."""

    def __call__(self, benchmark: Benchmark, directory: Path, /) -> Results: ...


@dataclass(frozen=True)
class Comparison:
    """The answer.

    Attributes:
        findings: in the order of the benchmarks. One that regressed was confirmed, unless files were compared.
        controls: of one side against itself, where they were measured.
        notes: what was left out, and why.
    """

    findings: list[Finding]
    controls: dict[Key, tuple[Control, Interval]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def having(self, verdict: Verdict) -> list[Finding]:
        """Those with this verdict."""
        return [one for one in self.findings if one.verdict == verdict]


@dataclass
class Duel:
    """How two sides are compared.

    Attributes:
        measures: those that are declared.
        seconds: for everything; a run that has begun is finished.
        tell: called with a line whenever there is something to tell.
        run, clock: how a benchmark is run, and the time.
    """

    a: Side
    b: Side
    measures: Mapping[str, Measure] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    seconds: float = 300.0
    tell: Callable[[str], None] = lambda _: None
    run: Run = run_once
    clock: Callable[[], float] = time.monotonic
    seed: int | None = None

    def compare(self) -> Comparison:
        """Measure until each verdict is clear or the time is over.

        Raises:
            BenchmarkError: a benchmark failed, or one side lacks it.
        """
        begin = self.clock()
        everything = list(zip(self.a.benchmarks, self.b.benchmarks, strict=True))
        self._warm_up()
        first = _Stage(self, everything)
        found = first.measure(begin + FIRST_SHARE * self.seconds)
        if not any(one.verdict == Verdict.REGRESSED for one in found.values()):
            found = first.measure(begin + self.seconds)  # nothing needs the rest to be confirmed
        if not found:
            raise BenchmarkError("there is nothing to compare", f"{'; '.join(first.notes())}")
        suspects = {key: one for key, one in found.items() if one.verdict == Verdict.REGRESSED}
        if suspects:
            self.tell(f"confirming {len(suspects)}")
            found |= self._confirm(first, suspects, begin + self.seconds)
        return Comparison(list(found.values()), check_controls(first.samples, self.limits), first.notes())

    def _warm_up(self) -> None:
        for side in (self.a, self.b):
            for benchmark in side.benchmarks:
                for _ in range(benchmark.warmups):
                    self.run(benchmark, side.directory)

    def _confirm(self, first: _Stage, suspects: Mapping[Key, Finding], end: float) -> dict[Key, Finding]:
        """The suspects' findings from fresh pairs alone."""
        second = _Stage(self, first.pairs_of(suspects), frozenset(suspects))
        found = second.measure(end)
        unknown = {key: one._replace(verdict=Verdict.INCONCLUSIVE) for key, one in suspects.items()}
        return {key: found.get(key, unknown[key]) for key in suspects}


Pair = tuple["Benchmark", "Benchmark"]


class _Stage:
    """Fresh samples of some benchmarks: of all keys, or of ``wanted``."""

    def __init__(self, duel: Duel, pairs: list[Pair], wanted: frozenset[Key] = frozenset()) -> None:
        self.duel = duel
        self.pairs = pairs
        self.samples: dict[Key, Samples] = {}
        self._wanted = wanted
        self._source: dict[Key, Pair] = {}
        self._blocks = dict.fromkeys(range(len(pairs)), 0)
        self._measures: dict[str, Measure] = {}
        self._others: dict[str, str] = {}
        self._random = random.Random(duel.seed)  # noqa: S311 - for fairness, not for secrets

    def pairs_of(self, keys: Iterable[Key]) -> list[Pair]:
        """The benchmarks that gave these."""
        sources = {self._source[key] for key in keys}
        return [pair for pair in self.pairs if pair in sources]

    def notes(self) -> list[str]:
        """What not every run, or not each side, had."""
        incomplete = [f"{measure} of {name} was left out: not every run has it" for name, measure in self._incomplete()]
        return [*self._others.values(), *incomplete]

    def measure(self, end: float) -> dict[Key, Finding]:
        """Run blocks until all is clear or the time is over."""
        pending, target = list(range(len(self.pairs))), FIRST_PAIRS
        while True:
            self._fill(pending, target, end)
            found = judge(self._complete(), self._measures, self.duel.limits)
            unclear = {key for key, one in found.items() if one.verdict == Verdict.INCONCLUSIVE}
            pending = [place for place, pair in enumerate(self.pairs) if pair in {self._source[key] for key in unclear}]
            if not pending or self.duel.clock() >= end or target >= MAX_PAIRS:
                return found
            target = min(MAX_PAIRS, int(target * GROWTH))
            self.duel.tell(f"{len(unclear)} of {len(found)} unclear: {target} pairs")

    def _fill(self, pending: list[int], target: int, end: float) -> None:
        while short := [place for place in pending if 2 * self._blocks[place] < target and not self._is_known(place)]:
            for place in short:
                if self._blocks[place] and self.duel.clock() >= end:
                    return
                self._run_block(self.pairs[place])
                self._blocks[place] += 1

    def _is_known(self, place: int) -> bool:
        """Whether all that a benchmark gives are counts that never varied: more of the same would tell nothing."""
        keys = [key for key, pair in self._source.items() if pair is self.pairs[place]]
        return bool(keys) and all(is_exact(self.samples[key], self._measures[key[1]]) for key in keys)

    def _run_block(self, pair: Pair) -> None:
        """A B B A or B A A B, by chance: two pairs, and between them one side twice."""
        first = self._random.randrange(2)
        sides = (first, 1 - first, 1 - first, first)
        read = [self._read(pair, side) for side in sides]
        if pair[0].bpf:
            self._leave_out_others(sides, read)
        else:
            self._expect_same(pair, read[0], read[1])
        swapped = self._random.randrange(2)
        for key in {key: None for one in read for key in one}:
            values = [one.get(key) for one in read]
            samples = self.samples.setdefault(key, Samples())
            self._source[key] = pair
            for side, value in zip(sides, values, strict=True):
                if value is not None:
                    (samples.a, samples.b)[side].append(value)
            inner = [value for value in values[1:3] if value is not None]
            if len(inner) == 2:
                samples.control.append((inner[swapped], inner[1 - swapped]))

    def _read(self, pair: Pair, side: int) -> dict[Key, float]:
        """Medians of one run."""
        results = self.duel.run(pair[side], (self.duel.a, self.duel.b)[side].directory)
        for name in results.measures:
            self._measures[name] = self.duel.measures.get(name, results.measures[name])
        return {
            (name, measure): statistics.median(values)
            for name, measures in results.benchmarks.items()
            for measure, values in measures.items()
            if not self._wanted or (name, measure) in self._wanted
        }

    def _expect_same(self, pair: Pair, one: dict[Key, float], other: dict[Key, float]) -> None:
        names = {name for name, _ in one} ^ {name for name, _ in other}
        if names:
            raise BenchmarkError(
                f"benchmark {min(names)!r} of {pair[0].name!r} is in one side alone", "compare like with like"
            )

    def _leave_out_others(self, sides: Sequence[int], read: list[dict[Key, float]]) -> None:
        """An object file says itself which programs it has: what is new or gone in it is no failure."""
        names = [
            {name for one, side in zip(read, sides, strict=True) if side == which for name, _ in one}
            for which in (0, 1)
        ]
        for name in sorted(names[0] ^ names[1]):
            what = "new: nothing to compare it with" if name in names[1] else "gone"
            self._others[name] = f"{name} is {what}"
        for one in read:
            for key in [key for key in one if key[0] in self._others]:
                del one[key]

    def _runs(self, key: Key) -> int:
        return 2 * self._blocks[self.pairs.index(self._source[key])]

    def _incomplete(self) -> list[Key]:
        return [key for key, one in self.samples.items() if min(len(one.a), len(one.b)) < self._runs(key)]

    def _complete(self) -> dict[Key, Samples]:
        incomplete = set(self._incomplete())
        return {key: one for key, one in self.samples.items() if key not in incomplete}


def compare_results(a: Results, b: Results, limits: Limits) -> Comparison:
    """Compare what was measured before. Nothing can be confirmed, and what drifts between the two is not seen.

    Raises:
        BenchmarkError: a benchmark or measure of ``a`` is missing in ``b``, or nothing is in both.
    """
    samples = {}
    for name, measures in a.benchmarks.items():
        for measure, values in measures.items():
            if measure not in b.benchmarks.get(name, {}):
                raise BenchmarkError(f"{measure} of benchmark {name!r} is missing in the second file", "run it, too")
            samples[name, measure] = Samples(values, b.benchmarks[name][measure], paired=False)
    notes = [f"{name} is new: nothing to compare it with" for name in b.benchmarks if name not in a.benchmarks]
    notes.append("files were compared: nothing was measured again to confirm it")
    measures_of = {name: a.measures.get(name) or known_measure(name) for _, name in samples}
    return Comparison(list(judge(samples, measures_of, limits).values()), {}, notes)
