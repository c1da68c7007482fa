"""Where a series of values changed for good: E-divisive, which assumes no distribution.

    values   ▂▂▁▂▂▁▂▂▇▇█▇▇▇█▄▄▅▄▄▄
    changes          ^      ^

The series is cut where both parts differ most, by the energy distance between them, and its parts again, as long as
shuffled values seldom show as large a difference.

Source: Matteson and James 2014, A nonparametric approach for multiple change point analysis of multivariate data; with
the end of each part fixed, as in Daly et al. 2020, The use of change point detection to identify software performance
regressions in a continuous integration system.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

Numbers = npt.NDArray[np.float64]

#: Fewer values on a side say nothing of what comes next.
LEAST: Final = 3
#: Only so many of the newest are looked at: the work grows with their square.
MOST: Final = 300
SHUFFLES: Final = 199
#: How often a series that does not change may be said to.
ALPHA: Final = 0.01
SEED: Final = 1


class Change(NamedTuple):
    """A place where a series changed.

    Attributes:
        at: the first value of the new kind.
        before, after: medians of the values between this place and its neighbours.
        probability: that shuffled values look like it.
    """

    at: int
    before: float
    after: float
    probability: float


def find_changes(values: Sequence[float]) -> list[Change]:
    """The places where a series changed, oldest first; the same answer each time."""
    if len(values) < 2 * LEAST:
        return []
    first = max(0, len(values) - MOST)
    known = np.array(values[first:], float)
    cuts: dict[int, float] = {}
    random = np.random.default_rng(SEED)
    while True:
        parts = _parts(cuts, len(known))
        best = max((_best_cut(known[begin:end], begin) for begin, end in parts), default=(0.0, 0))
        if best[0] <= 0:
            break
        shuffled = [max(_best_cut(random.permutation(known[a:b]), a)[0] for a, b in parts) for _ in range(SHUFFLES)]
        probability = (1 + sum(one >= best[0] for one in shuffled)) / (1 + SHUFFLES)
        if probability > ALPHA:
            break
        cuts[best[1]] = probability
    return _describe(known, cuts, first)


def _parts(cuts: dict[int, float], length: int) -> list[tuple[int, int]]:
    ends = [0, *sorted(cuts), length]
    return list(pairwise(ends))


def _best_cut(values: Numbers, begin: int) -> tuple[float, int]:
    """How different the two parts at the best place are, and the place; 0.0 where there is none."""
    count = len(values)
    if count < 2 * LEAST:
        return 0.0, begin
    left = np.arange(LEAST, count - LEAST + 1)
    statistic = _energy(values, left)
    place = int(np.argmax(statistic))
    return float(statistic[place]), begin + int(left[place])


def _energy(values: Numbers, left: npt.NDArray[np.int64]) -> Numbers:
    """The scaled energy distance between the first ``left`` values and the others, for each of these numbers."""
    sums = np.abs(values[:, None] - values).cumsum(axis=0).cumsum(axis=1)  # of all pairs of the first i and first j
    right = len(values) - left
    within_left, whole = sums[left - 1, left - 1], sums[-1, -1]
    between = sums[left - 1, -1] - within_left
    within_right = whole - within_left - 2 * between
    pairs = left * right
    distance = 2 * between / pairs - _mean(within_left, left) - _mean(within_right, right)
    scaled: Numbers = distance * pairs / len(values)
    return scaled


def _mean(total: Numbers, count: npt.NDArray[np.int64]) -> Numbers:
    """Of the distances of so many values from one another; each pair is in the total twice."""
    mean: Numbers = total / (count * (count - 1))
    return mean


def _describe(known: Numbers, cuts: dict[int, float], first: int) -> list[Change]:
    medians = [float(np.median(known[begin:end])) for begin, end in _parts(cuts, len(known))]
    return [Change(first + at, medians[place], medians[place + 1], cuts[at]) for place, at in enumerate(sorted(cuts))]
