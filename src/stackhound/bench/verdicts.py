"""From measured values to a verdict on each measure of each benchmark.

        1      1 + tolerance      1 + detect          B / A, turned so that more is worse
────────┼───────────┼─────────────────┼────────
    [───────]                                         not worse: the interval ends below 1 + detect
                       [─────────]                    regressed: it begins above 1 + tolerance
               [──────────────────────────]           inconclusive: more pairs are needed
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from stackhound.bench.statistics import Interval, holm, paired_ratio, rank_sum_p, signed_rank_p, unpaired_ratio
from stackhound.errors import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stackhound.bench.measures import Measure

#: With fewer the rank tests cannot reach 1%.
MIN_VALUES: Final = 8
#: So many equal values on each side are taken for a count that never varies.
MIN_EQUAL: Final = 5

#: How often a machine that is fair may be called biased.
BIASED_ALPHA: Final = 0.01

#: (benchmark, measure).
Key = tuple[str, str]


class Verdict(str, Enum):
    NOT_WORSE = "not worse"
    IMPROVED = "improved"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"


class Limits(NamedTuple):
    """What is asked.

    Attributes:
        tolerance: a slowdown up to this share is none.
        detect: a slowdown of this share must not be missed; larger than ``tolerance``.
        alpha: how often one slowdown of ``tolerance`` among all benchmarks may raise an alarm, before confirmation;
            sides that are equal raise far fewer.
        beta: how often a slowdown of ``detect`` may be taken for none, at each look.
    """

    tolerance: float = 0.01
    detect: float = 0.03
    alpha: float = 0.05
    beta: float = 0.002


@dataclass
class Samples:
    """Values of one measure of one benchmark.

    Attributes:
        a, b: of the two sides; where ``paired`` those at the same place were measured one after the other.
        control: pairs of one side with itself, in random order.
    """

    a: list[float] = field(default_factory=list)
    b: list[float] = field(default_factory=list)
    control: list[tuple[float, float]] = field(default_factory=list)
    paired: bool = True


class Finding(NamedTuple):
    """What is known of one measure of one benchmark.

    Attributes:
        a, b: medians, in the measure's unit.
        ratio: b / a.
        probability: of this or worse without a regression, adjusted for the number of tests; 0 or 1 where exact.
        values: how many on the side that has fewer.
        exact: both sides never varied, so that nothing is left to chance.
    """

    benchmark: str
    measure: Measure
    a: float
    b: float
    ratio: Interval
    probability: float
    values: int
    exact: bool
    verdict: Verdict


class Control(str, Enum):
    """What comparing a side with itself says of the machine."""

    STEADY = "steady"
    NOISY = "noisy"
    BIASED = "biased"


def judge(samples: Mapping[Key, Samples], measures: Mapping[str, Measure], limits: Limits) -> dict[Key, Finding]:
    """A verdict on each.

    Raises:
        BenchmarkError: a measure that varies is 0 at times, so that there is no ratio.
    """
    noisy = [key for key, one in samples.items() if not is_exact(one, measures[key[1]]) and _count(one) >= MIN_VALUES]
    for key in noisy:
        _expect_positive(key, samples[key])
    adjusted = holm({key: _probability(samples[key], measures[key[1]], limits) for key in noisy})
    return {key: _judge_one(key, one, measures[key[1]], adjusted.get(key), limits) for key, one in samples.items()}


def check_controls(samples: Mapping[Key, Samples], limits: Limits) -> dict[Key, tuple[Control, Interval]]:
    """Whether each side is itself: biased where it significantly is not, noisy where that cannot be told.

    Those without pairs, and those that never vary, are left out.
    """
    told = {key: one.control for key, one in samples.items() if _varies(one.control)}
    found = {}
    for key, pairs in told.items():
        first, second = zip(*pairs, strict=True)
        tail = BIASED_ALPHA / len(told)
        interval = paired_ratio(first, second, (tail, tail))
        found[key] = (_check_one(first, second, interval, limits, len(told)), interval)
    return found


def worsening(ratio: Interval, measure: Measure) -> Interval:
    """The ratio, turned so that more is worse."""
    return ratio if measure.better == "lower" else ratio.inverted()


def is_exact(samples: Samples, measure: Measure) -> bool:
    """Whether the values leave nothing to chance."""
    equal = len(set(samples.a)) == len(set(samples.b)) == 1
    return equal and (measure.exact or _count(samples) >= MIN_EQUAL)


def _count(samples: Samples) -> int:
    return min(len(samples.a), len(samples.b))


def _expect_positive(key: Key, samples: Samples) -> None:
    if min(*samples.a, *samples.b) <= 0:
        raise BenchmarkError(f"benchmark {key[0]!r}: {key[1]} is 0 in some runs and not in others", "leave it out")


def _probability(samples: Samples, measure: Measure, limits: Limits) -> float:
    """Of these values if b were as much worse as is tolerated."""
    good, bad = (samples.a, samples.b) if measure.better == "lower" else (samples.b, samples.a)
    test = signed_rank_p if samples.paired else rank_sum_p
    return test(good, bad, 1 + limits.tolerance)


def _miss_probability(samples: Samples, measure: Measure, limits: Limits) -> float:
    """Of these values if b were as much worse as must be detected."""
    good, bad = (samples.a, samples.b) if measure.better == "lower" else (samples.b, samples.a)
    test = signed_rank_p if samples.paired else rank_sum_p
    return test(bad, good, 1 / (1 + limits.detect))


def _judge_one(key: Key, samples: Samples, measure: Measure, probability: float | None, limits: Limits) -> Finding:
    a, b = statistics.median(samples.a), statistics.median(samples.b)
    exact = is_exact(samples, measure)
    if exact:
        ratio = _exact_ratio(a, b)
        verdict = _judge_exact(a, b, measure)
        probability = 0.0 if verdict == Verdict.REGRESSED else 1.0
    elif probability is None:
        value = _exact_ratio(a, b).value
        ratio, verdict, probability = Interval(value, 0.0, math.inf), Verdict.INCONCLUSIVE, 1.0
    else:
        estimate = paired_ratio if samples.paired else unpaired_ratio
        tails = (limits.alpha, limits.beta) if measure.better == "lower" else (limits.beta, limits.alpha)
        ratio = estimate(samples.a, samples.b, tails)
        missed = _miss_probability(samples, measure, limits)
        verdict = _judge_interval(worsening(ratio, measure), probability, missed, limits)
        furthest = a * max(abs(ratio.low - 1), abs(ratio.high - 1))
        if furthest <= measure.floor or (verdict == Verdict.REGRESSED and abs(b - a) <= measure.floor):
            verdict = Verdict.NOT_WORSE
    return Finding(key[0], measure, a, b, ratio, probability, _count(samples), exact, verdict)


def _exact_ratio(a: float, b: float) -> Interval:
    ratio = b / a if a else (math.inf if b else 1.0)
    return Interval(ratio, ratio, ratio)


def _judge_exact(a: float, b: float, measure: Measure) -> Verdict:
    worse = b - a if measure.better == "lower" else a - b
    if abs(worse) <= max(measure.floor, measure.tolerance * a):
        return Verdict.NOT_WORSE
    return Verdict.REGRESSED if worse > 0 else Verdict.IMPROVED


def _judge_interval(worse: Interval, probability: float, missed: float, limits: Limits) -> Verdict:
    """By the interval and the rank tests both: the bootstrap of few values is too sure of itself."""
    if worse.low > 1 + limits.tolerance and probability < limits.alpha:
        return Verdict.REGRESSED
    if worse.high >= 1 + limits.detect or missed >= limits.beta:
        return Verdict.INCONCLUSIVE
    return Verdict.IMPROVED if worse.high < 1 / (1 + limits.tolerance) else Verdict.NOT_WORSE


def _varies(pairs: Sequence[tuple[float, float]]) -> bool:
    values = [value for pair in pairs for value in pair]
    return len(set(values)) > 1 and min(values) > 0


def _check_one(
    first: Sequence[float], second: Sequence[float], interval: Interval, limits: Limits, count: int
) -> Control:
    probability = 2 * min(signed_rank_p(first, second), signed_rank_p(second, first))
    apart = interval.low > 1 + limits.tolerance or interval.high < 1 / (1 + limits.tolerance)
    if apart and probability * count < BIASED_ALPHA:
        return Control.BIASED
    within = 1 / (1 + limits.detect) < interval.low and interval.high < 1 + limits.detect
    return Control.STEADY if within else Control.NOISY
