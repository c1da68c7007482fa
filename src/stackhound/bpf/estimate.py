"""Means of noisy measurements with intervals, by resampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES = 2_000
SEED = 1


class Interval(NamedTuple):
    """A value, and where it is with 95% confidence."""

    value: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """The median, with the bootstrap's percentile interval."""
    known = np.asarray(values, float)
    chosen = np.random.default_rng(SEED).integers(len(known), size=(RESAMPLES, len(known)))
    medians = np.median(known[chosen], axis=1)
    low, high = np.percentile(medians, (2.5, 97.5))
    return Interval(float(np.median(known)), float(low), float(high))
