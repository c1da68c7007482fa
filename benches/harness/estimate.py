"""From noisy values to one with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Of each end: what a busy neighbour or a steal of the hypervisor throws far off.
TRIMMED_SHARE = 0.2
RESAMPLES = 4000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A 20%-trimmed mean, or what it is said to be, with its 95% bootstrap interval."""

    mean: float
    low: float
    high: float
    count: int

    def scaled(self, factor: float) -> Estimate:
        low, high = sorted((self.low * factor, self.high * factor))
        return Estimate(self.mean * factor, low, high, self.count)

    def written(self, digits: int = 2) -> str:
        return f"{self.mean:,.{digits}f} [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"


def estimate(values: Sequence[float]) -> Estimate:
    """Raises ValueError where there is no value."""
    if not values:
        raise ValueError("nothing was measured")
    drawn = np.random.default_rng(1).choice(np.asarray(values), (RESAMPLES, len(values)))
    means = trimmed_means(drawn)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(trimmed_means(np.asarray([values]))[0]), float(low), float(high), len(values))


def estimate_ratio(tops: Sequence[Sequence[float]], bottoms: Sequence[Sequence[float]], share: float) -> Estimate:
    """Of two quantiles, each of the values of all rounds together; whole rounds are drawn anew for the interval.

    Args:
        tops: of each round.
        bottoms: of the same rounds, as many values each.
        share: of the values that are below the quantile.
    """
    pairs = np.asarray([tops, bottoms])
    _, rounds, _ = pairs.shape
    drawn = pairs[:, np.random.default_rng(1).integers(rounds, size=(RESAMPLES, rounds))]
    top, bottom = np.quantile(drawn, share, axis=(2, 3))
    low, high = np.quantile(top / bottom, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    top, bottom = np.quantile(pairs, share, axis=(1, 2))
    return Estimate(float(top / bottom), float(low), float(high), rounds)


def trimmed_means(rows: np.ndarray) -> np.ndarray:
    """The mean of each row without its highest and lowest fifth."""
    cut = int(rows.shape[1] * TRIMMED_SHARE)
    return np.sort(rows, axis=1)[:, cut : rows.shape[1] - cut].mean(axis=1)
