"""Numbers of benchmarks as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from stackhound.bench.changes import Change


def format_number(value: float, unit: str) -> str:
    """A value with its unit: ``1.23 s``, ``4.50 MiB``, ``12,345``, ``0.125 requests/second``."""
    if unit in {"nanoseconds", "bytes"} and value >= 100:
        return format_value(round(value), unit)
    if unit == "nanoseconds":
        return f"{value:.3g} ns"
    number = f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
    return number if unit in {"count", ""} else f"{number} {'B' if unit == 'bytes' else unit}"


def format_ratio(ratio: float) -> str:
    """A ratio as a change: ``+3.0%``, ``-12%``."""
    percent = 100 * (ratio - 1)
    return f"{percent:+.{0 if abs(percent) >= 10 else 1 if abs(percent) >= 1 else 2}f}%"


def describe_change(change: Change, unit: str) -> str:
    """What a series changed from and to: ``781 ms → 1.20 s, +54%``."""
    amounts = f"{format_number(change.before, unit)} → {format_number(change.after, unit)}"
    return f"{amounts}, {format_ratio(change.after / change.before)}" if change.before else amounts
