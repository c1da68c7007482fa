"""Statistics of noisy measurements: ratios with intervals, tests that assume no distribution, quantiles.

All are pure functions; what is drawn at random is drawn from the same seed each time, so that an answer is the same
when it is asked again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

Numbers = npt.NDArray[Any]
Key = TypeVar("Key", bound="Hashable")

#: Of each end: what a busy neighbour or a steal of the hypervisor throws far off.
TRIMMED_SHARE: Final = 0.2
#: Leaves 20 draws beyond an end that the truth is beyond in one of a hundred cases.
RESAMPLES: Final = 2000
SEED: Final = 1


class Interval(NamedTuple):
    """An estimate of a ratio between its bounds."""

    value: float
    low: float
    high: float

    def inverted(self) -> Interval:
        """Of the ratio the other way round."""
        return Interval(1 / self.value, 1 / self.high, 1 / self.low)


def paired_ratio(a: Sequence[float], b: Sequence[float], tails: tuple[float, float]) -> Interval:
    """The ratio b / a of values that were measured in pairs, all above 0.

    The trimmed mean of the pairs' log ratios, with its percentile bootstrap interval.

    Args:
        a, b: the values; those at the same place are a pair.
        tails: how often the truth may be below the interval, and above it.
    """
    logs = np.log(b) - np.log(a)
    drawn = np.random.default_rng(SEED).choice(logs, (RESAMPLES, len(logs)))
    return _interval(_trimmed_means(logs[np.newaxis])[0], _trimmed_means(drawn), tails)


def unpaired_ratio(a: Sequence[float], b: Sequence[float], tails: tuple[float, float]) -> Interval:
    """The ratio b / a of the trimmed geometric means of values that were measured apart, all above 0."""
    generator = np.random.default_rng(SEED)
    means, drawn = [], []
    for values in (np.log(a), np.log(b)):
        means.append(_trimmed_means(values[np.newaxis])[0])
        drawn.append(_trimmed_means(generator.choice(values, (RESAMPLES, len(values)))))
    return _interval(means[1] - means[0], drawn[1] - drawn[0], tails)


def signed_rank_p(a: Sequence[float], b: Sequence[float], ratio: float = 1.0) -> float:
    """Probability of such pairs, or ones further off, if b were ``ratio`` times a at most: Wilcoxon's signed ranks.

    By the normal approximation with correction for continuity, whose tails are wider than the exact ones. In pairs
    whose order is random the log ratio of equals is symmetric, which is all that the test assumes.

    Source: Wilcoxon 1945, Individual comparisons by ranking methods.
    """
    differences = np.log(b) - np.log(a) - math.log(ratio)
    differences = differences[differences != 0]
    count = len(differences)
    if count == 0:
        return 1.0
    ranks = _rank(np.abs(differences))
    expected = count * (count + 1) / 4
    variance = float((ranks**2).sum()) / 4  # with ties, too
    return _upper_tail((float(ranks[differences > 0].sum()) - expected - 0.5) / math.sqrt(variance))


def rank_sum_p(a: Sequence[float], b: Sequence[float], ratio: float = 1.0) -> float:
    """Probability of such values, or ones further off, if b were ``ratio`` times a at most: the rank-sum test.

    Source: Mann and Whitney 1947, On a test of whether one of two random variables is stochastically larger.
    """
    both = np.concatenate((np.log(a) + math.log(ratio), np.log(b)))
    count_a, count_b, count = len(a), len(b), len(both)
    ranks = _rank(both)
    expected = count_b * (count + 1) / 2
    variance = count_a * count_b * float(np.var(ranks)) / (count - 1)  # with ties, too
    if variance == 0:
        return 1.0
    return _upper_tail((float(ranks[count_a:].sum()) - expected - 0.5) / math.sqrt(variance))


def holm(probabilities: Mapping[Key, float]) -> dict[Key, float]:
    """Probabilities adjusted for their number, so that one false alarm among all is as rare as asked for.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    adjusted: dict[Key, float] = {}
    highest = 0.0
    for place, key in enumerate(sorted(probabilities, key=lambda key: probabilities[key])):
        highest = max(highest, min(1.0, probabilities[key] * (len(probabilities) - place)))
        adjusted[key] = highest
    return adjusted


def t_quantile(probability: float, degrees: int) -> float:
    """The value that Student's t with so many degrees of freedom stays below with a probability in (0, 1)."""
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees)
    low, high = 0.0, 1.0
    while _t_probability(high, degrees) < probability:
        low, high = high, 2 * high
    for _ in range(80):  # halvings: beyond what a float tells apart
        middle = (low + high) / 2
        low, high = (middle, high) if _t_probability(middle, degrees) < probability else (low, middle)
    return high


def _t_probability(t: float, degrees: int) -> float:
    """That Student's t stays below ``t`` ≥ 0. Source: Abramowitz and Stegun 1964, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine2 = math.cos(angle) ** 2
    odd = degrees % 2
    term = total = math.cos(angle) if odd else 1.0
    for factor in range(2 + odd, degrees - 1, 2):
        term *= cosine2 * (factor - 1) / factor
        total += term
    if odd:
        return 0.5 + (angle + (math.sin(angle) * total if degrees > 1 else 0.0)) / math.pi
    return 0.5 + math.sin(angle) * total / 2


def _trimmed_means(rows: Numbers) -> Numbers:
    """The mean of each row without its highest and lowest fifth: (n_rows,)."""
    cut = int(rows.shape[1] * TRIMMED_SHARE)
    means: Numbers = np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut].mean(axis=1)
    return means


def _interval(estimate: float, drawn: Numbers, tails: tuple[float, float]) -> Interval:
    low, high = np.quantile(drawn, [tails[0], 1 - tails[1]])
    return Interval(math.exp(estimate), math.exp(min(low, estimate)), math.exp(max(high, estimate)))


def _rank(values: Numbers) -> Numbers:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Numbers = (last - (counts - 1) / 2)[inverse]
    return ranks


def _upper_tail(z: float) -> float:
    return math.erfc(z / math.sqrt(2)) / 2
