"""Quantities as people read them."""

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


def format_share(part: float, whole: float) -> str:
    """A share: ``12.3%``, ``1.23%``, ``<0.01%``, ``0%``."""
    percent = 100 * part / whole
    if percent < 0.01:
        return "<0.01%" if part else "0%"
    return f"{percent:.{2 if percent < 10 else 1}f}%"


def format_samples(count: int) -> str:
    """``1 sample``, ``2,970 samples``."""
    return f"{count:,} sample{'' if count == 1 else 's'}"


def format_sample_cost(bpf_ns: float, interrupt_ns: float = 0) -> str:
    """``4.1 µs each + 4.0 µs interrupt (calibrated)``; without the interrupt where its part is not known."""
    interrupt = f" + {interrupt_ns / 1e3:.1f} µs interrupt (calibrated)" if interrupt_ns else ""
    return f"{bpf_ns / 1e3:.1f} µs each{interrupt}"


def format_collector_cost(cpu_ns: float, elapsed_ns: float, resident_bytes: float) -> str:
    """``collector 0.2% of a CPU, 41 MB``."""
    percent = 100 * cpu_ns / elapsed_ns
    return f"collector {percent:.{1 if percent >= 0.1 else 2}f}% of a CPU, {resident_bytes / 1e6:,.0f} MB"
