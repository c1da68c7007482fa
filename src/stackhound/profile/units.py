"""Values as people read them."""

from __future__ import annotations

#: Largest first: (from this many nanoseconds, in this unit).
TIMES = ((3_600_000_000_000, "h"), (60_000_000_000, "min"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def format_value(value: int, unit: str) -> str:
    """A value of an event, with three digits that count: ``1.23 s``, ``4.50 MiB``, ``12,345``."""
    scales, smallest = {"nanoseconds": (TIMES, "ns"), "bytes": (SIZES, "B")}.get(unit, ((), ""))
    for size, name in scales:
        if value >= size:
            digits = max(0, 3 - len(str(value // size)))
            return f"{value / size:.{digits}f} {name}"
    return f"{value:,} {smallest}".rstrip()
