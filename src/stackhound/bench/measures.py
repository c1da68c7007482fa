"""What is measured: a name, its unit, and which way is better."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from stackhound.errors import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Sequence

Better = Literal["lower", "higher"]


class Measure(NamedTuple):
    """One kind of number that benchmarks give.

    Attributes:
        unit: ``nanoseconds``, ``bytes``, or whatever the configuration calls it.
        better: which way is better.
        floor: differences up to this are none, in the unit.
        exact: a count that is the same in every run, so that one value is enough and any difference is one.
        tolerance: values that never vary may differ by this share and are still the same.
    """

    name: str
    unit: str
    better: Better = "lower"
    floor: float = 0.0
    exact: bool = False
    tolerance: float = 0.0


#: What the clocks and the scheduler do to a process that does nothing.
CLOCK_FLOOR_NS: Final = 10_000.0
#: What `stackhound.bpf.bench` cannot tell apart: half of a clock cycle, about.
BPF_FLOOR_NS: Final = 0.25
#: Page tables, stack and the loader's choices move a process by some pages.
MEMORY_FLOOR_BYTES: Final = 16 * 4096.0
#: What it takes Python to keep and find paths in its dictionaries: up to 2,000 instructions more or less were seen in
#: another directory whose path is as long. Equal builds in C and C++ take the same number there.
PATHS_FLOOR: Final = 5000.0

KNOWN: Final = {
    one.name: one
    for one in (
        Measure("wall", "nanoseconds", floor=CLOCK_FLOOR_NS),
        Measure("cpu", "nanoseconds", floor=CLOCK_FLOOR_NS),
        Measure("peak-memory", "bytes", floor=MEMORY_FLOOR_BYTES),
        Measure("latency", "nanoseconds"),
        Measure("throughput", "operations/second", "higher"),
        Measure("instructions", "count", exact=True),
        Measure("callgrind-instructions", "count", floor=PATHS_FLOOR),
        Measure("allocations", "count", exact=True),
        Measure("allocated", "bytes", exact=True),
        Measure("ns-per-run", "nanoseconds", floor=BPF_FLOOR_NS),
        Measure("verifier-instructions", "count", exact=True),
        Measure("verifier-states", "count", exact=True),
    )
}


def known_measure(name: str) -> Measure:
    """The measure that is called so; one that nobody described is better when lower, without a unit."""
    return KNOWN.get(name, Measure(name, ""))


def check_values(benchmark: str, measure: str, values: Sequence[object]) -> list[float]:
    """The values of a measure as numbers.

    Raises:
        BenchmarkError: there is none, or one is no finite number of at least 0.
    """
    found = [_as_number(value) for value in values]
    if not found or not all(math.isfinite(value) and value >= 0 for value in found):
        shown = next((value for value, number in zip(values, found, strict=True) if not number >= 0), "")
        what = f"{measure} is {shown!r:.40}" if found else f"{measure} has no value"
        raise BenchmarkError(f"benchmark {benchmark!r}: {what}", "a measure is a number of at least 0")
    return found


def _as_number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else math.nan
