"""What programs cost right now: the kernel's statistics, switched on as long as somebody looks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stackhound import _native
from stackhound.profile.native_errors import native_errors

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class Overhead(NamedTuple):
    """What the statistics take of each run, found out with an empty program: ns.

    Attributes:
        counted_ns: what they count as the program's own.
        whole_ns: all of it.
    """

    counted_ns: float
    whole_ns: float


class Rate(NamedTuple):
    """What one program did between two readings.

    Attributes:
        id: the program's.
        runs: how often it ran.
        run_ns: how long, all together, without what the statistics count of their own.
        recursion_misses: runs that the kernel skipped.
    """

    id: int
    runs: int
    run_ns: float
    recursion_misses: int

    @property
    def is_idle(self) -> bool:
        """Whether it neither ran nor was to run."""
        return not (self.runs or self.recursion_misses)

    @property
    def ns_per_run(self) -> float:
        """0 when it did not run."""
        return self.run_ns / self.runs if self.runs else 0.0


@dataclass(frozen=True)
class Reading:
    """What all programs did since the reading before.

    Attributes:
        elapsed_ns: since then.
        rates: of the programs that were there both times, by their ids.
        statistics_ns: what the statistics took of all CPUs, estimated from `Overhead`.
    """

    elapsed_ns: int
    rates: dict[int, Rate]
    statistics_ns: float


class Monitor:
    """The statistics, on while this is open.

    Raises:
        PermissionMissing: that takes CAP_SYS_ADMIN.
    """

    def __init__(self) -> None:
        with native_errors():
            self._statistics = _native.BpfStatistics()
            self.overhead = Overhead(*self._statistics.overhead())
        self._last_ns, self._last = self._look()

    def read(self) -> Reading:
        """What happened since the last call, or since this was opened."""
        now_ns, now = self._look()
        rates = {id_: self._rate(id_, self._last[id_], counts) for id_, counts in now.items() if id_ in self._last}
        elapsed_ns = now_ns - self._last_ns
        self._last_ns, self._last = now_ns, now
        runs = sum(rate.runs for rate in rates.values())
        return Reading(elapsed_ns, rates, runs * self.overhead.whole_ns)

    def close(self) -> None:
        """Switch the statistics off, unless somebody else wants them."""
        self._statistics.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _look(self) -> tuple[int, dict[int, tuple[int, int, int]]]:
        with native_errors():
            counts = self._statistics.read()
        return time.monotonic_ns(), {id_: (runs, run_ns, misses) for id_, runs, run_ns, misses in counts}

    def _rate(self, id_: int, before: tuple[int, int, int], after: tuple[int, int, int]) -> Rate:
        if before == after:  # most programs of a machine do nothing most of the time
            return Rate(id_, 0, 0.0, 0)
        runs, run_ns, misses = (later - earlier for later, earlier in zip(after, before, strict=True))
        return Rate(id_, max(0, runs), max(0.0, run_ns - runs * self.overhead.counted_ns), max(0, misses))
