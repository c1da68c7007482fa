"""New results held against the bounds that thresholds and the history give."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

from stackhound.bench.thresholds import Bounds, Threshold, find_bounds
from stackhound.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackhound.bench.history import History
    from stackhound.bench.results import Results


class Checked(NamedTuple):
    """One value against one threshold.

    Attributes:
        bounds: None where the history has too few values.
        earlier: how many it has.
    """

    benchmark: str
    measure: str
    unit: str
    value: float
    threshold: Threshold
    bounds: Bounds | None
    earlier: int

    @property
    def verdict(self) -> str:
        """``within``, ``outside``, or ``too few values``."""
        if self.bounds is None:
            return "too few values"
        return "within" if self.bounds.hold(self.value) else "outside"


def check_results(
    results: Results, thresholds: Sequence[Threshold], history: History, branch: str, testbed: str
) -> list[Checked]:
    """Hold the median of each measure against each threshold that is for it.

    Raises:
        UsageError: there is none, so that nothing would be checked.
    """
    found = [
        _check_one(results, name, measure, threshold, history.values(name, measure, branch, testbed))
        for name, measures in results.benchmarks.items()
        for measure in measures
        for threshold in thresholds
        if threshold.fits(name, measure, branch, testbed)
    ]
    if not found:
        raise UsageError(
            f"no threshold is for these results on branch {branch!r:.80} and testbed {testbed!r:.80}",
            "declare one with [[threshold]], or name another --branch or --testbed",
        )
    return found


def _check_one(results: Results, name: str, measure: str, threshold: Threshold, earlier: list[float]) -> Checked:
    value = statistics.median(results.benchmarks[name][measure])
    unit = results.measures[measure].unit
    return Checked(name, measure, unit, value, threshold, find_bounds(threshold, earlier), len(earlier))
