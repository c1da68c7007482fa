"""Bounds on new values, from earlier ones. Pure functions.

    test        lower and upper are …                     bounds
    static      the bounds themselves
    percentage  shares of the mean                        mean · (1 ∓ share)
    z-score     probabilities, 0.5 to 1                   mean ∓ z · s
    t-test      probabilities, 0.5 to 1                   mean ∓ t · s · √(1 + 1/n), n − 1 degrees of freedom
    log-normal  probabilities, 0.5 to 1                   exp(mean ∓ z · s) of the logarithms
    iqr         multiples of the interquartile range      median ∓ multiple · range
    delta-iqr   the same, of the changes from one         median · (1 ∓ multiple · range of the changes)
                value to the next, as shares

The names are Bencher's (https://bencher.dev/docs/explanation/thresholds/). Where the earlier values do not vary, all
but the first two become that one value: what never varied may not change.
"""

from __future__ import annotations

import math
import statistics
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.bench.statistics import t_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Threshold(NamedTuple):
    """Which values it is for (patterns as of shells), and what they may be.

    Attributes:
        lower, upper: see above; None means no bound on that side.
        min_values, max_values: of the history; the newest are taken, and with fewer there are no bounds.
    """

    measure: str
    test: str
    lower: float | None = None
    upper: float | None = None
    benchmark: str = "*"
    branch: str = "*"
    testbed: str = "*"
    min_values: int = 5
    max_values: int = 64

    def fits(self, benchmark: str, measure: str, branch: str, testbed: str) -> bool:
        """Whether it is for this value."""
        pairs = ((benchmark, self.benchmark), (measure, self.measure), (branch, self.branch), (testbed, self.testbed))
        return all(fnmatchcase(text, pattern) for text, pattern in pairs)


class Bounds(NamedTuple):
    """What a value may be; None is no bound."""

    low: float | None
    high: float | None

    def hold(self, value: float) -> bool:
        """Whether the value lies within, up to what adding floats in another order changes."""
        slack = 1e-12 * abs(value)
        above = self.low is None or value >= self.low - slack
        return above and (self.high is None or value <= self.high + slack)


def find_bounds(threshold: Threshold, history: Sequence[float]) -> Bounds | None:
    """Bounds for the next value.

    Args:
        threshold: which test.
        history: earlier values, oldest first.

    Returns:
        None where there are too few of them.
    """
    if threshold.test == "static":
        return Bounds(threshold.lower, threshold.upper)
    values = list(history[-threshold.max_values :])
    if len(values) < max(threshold.min_values, 1 if threshold.test == "percentage" else 2):
        return None
    bound = TESTS[threshold.test]
    low = None if threshold.lower is None else bound(values, threshold.lower, -1)
    high = None if threshold.upper is None else bound(values, threshold.upper, 1)
    return Bounds(low, high)


def _by_percentage(values: list[float], share: float, sign: int) -> float:
    return statistics.fmean(values) * (1 + sign * share)


def _by_z_score(values: list[float], probability: float, sign: int) -> float:
    return statistics.fmean(values) + sign * _z(probability) * statistics.stdev(values)


def _by_t_test(values: list[float], probability: float, sign: int) -> float:
    spread = statistics.stdev(values) * math.sqrt(1 + 1 / len(values))
    return statistics.fmean(values) + sign * t_quantile(probability, len(values) - 1) * spread


def _by_log_normal(values: list[float], probability: float, sign: int) -> float:
    if min(values) <= 0:  # has no logarithm
        return _by_z_score(values, probability, sign)
    return math.exp(_by_z_score([math.log(value) for value in values], probability, sign))


def _by_iqr(values: list[float], multiple: float, sign: int) -> float:
    return statistics.median(values) + sign * multiple * _interquartile_range(values)


def _by_delta_iqr(values: list[float], multiple: float, sign: int) -> float:
    changes = [new / old - 1 for old, new in pairwise(values) if old]
    spread = _interquartile_range(changes) if changes else 0.0
    return statistics.median(values) * (1 + sign * multiple * spread)


def _z(probability: float) -> float:
    return statistics.NormalDist().inv_cdf(probability)


def _interquartile_range(values: list[float]) -> float:
    lower, upper = np.percentile(values, (25, 75))
    return float(upper - lower)


TESTS: Final[dict[str, Callable[[list[float], float, int], float]]] = {
    "percentage": _by_percentage,
    "z-score": _by_z_score,
    "t-test": _by_t_test,
    "log-normal": _by_log_normal,
    "iqr": _by_iqr,
    "delta-iqr": _by_delta_iqr,
}
#: Those whose bounds are probabilities.
BY_PROBABILITY: Final = frozenset({"z-score", "t-test", "log-normal"})
