"""How long what a sample stands for took: ``report --latency``.

       count       bytes        p50        p95        p99        max  device  operation
       1,024    4.00 MiB    81.2 µs     130 µs     512 µs    2.10 ms  vda     read

Half of them took as long as ``p50`` or less, 95 of 100 as long as ``p95`` or less. A sample counts for as many as it
stands for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import numpy as np

from stackhound.cli.breakdown import SAMPLE_KEYS, group_samples
from stackhound.errors import UsageError
from stackhound.profile.durations import are_sums, durations_ns
from stackhound.profile.escape import printable
from stackhound.profile.requests import request_bytes
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.cli.breakdown import Cell
    from stackhound.profile import Event, Profile
    from stackhound.profile.columns import Numbers

PERCENTS: Final = (50, 95, 99)
#: What is kept apart when nothing else is asked for, by event.
DEFAULT_KEYS: Final = {"block-io": ("device", "operation"), "off-cpu": ("reason",)}
HEADS: Final = (f"{'count':>9}", *(f"{f'p{percent}':>9}" for percent in PERCENTS), f"{'max':>9}")


class Row(NamedTuple):
    """One group. ``keys`` in the order that was asked for; times in nanoseconds."""

    keys: tuple[Cell, ...]
    number: int
    bytes: int | None
    percentiles_ns: tuple[int, ...]
    longest_ns: int


def measure(profile: Profile, event: Event, keys: Sequence[str]) -> list[Row]:
    """Group the samples of an event by ``keys``, of `SAMPLE_KEYS`; the most frequent first.

    Raises:
        UsageError: its samples last no time, or do not tell theirs.
    """
    _check(profile, event, keys)
    groups = group_samples(profile, event, keys)
    duration_ns = durations_ns(profile, event)
    count = profile.samples_of(event).count
    sizes = request_bytes(profile, event) if event.name == "block-io" else None
    rows = [
        _row(cells, duration_ns[chosen], count[chosen], None if sizes is None else sizes[chosen])
        for cells, chosen in ((cells, groups.of_row == group) for group, cells in enumerate(groups.tuples))
        if chosen.any()
    ]
    return sorted(rows, key=lambda row: (-row.number, tuple(map(str, row.keys))))


def _check(profile: Profile, event: Event, keys: Sequence[str]) -> None:
    for key in keys:
        if key not in SAMPLE_KEYS:
            raise UsageError(f"cannot tell latencies by {key!r}", f"use {', '.join(SAMPLE_KEYS)}")
    if are_sums(profile):
        raise UsageError("under --aggregate only sums of times are recorded", "record without it")
    if not durations_ns(profile, event).any():
        raise UsageError(f"samples of {event.name} last no time", "name another --event, for example block-io")


def _row(cells: tuple[Cell, ...], duration_ns: Numbers, count: Numbers, sizes: Numbers | None) -> Row:
    order = np.argsort(duration_ns, kind="stable")
    until = np.cumsum(count[order])
    number = int(until[-1])
    places = np.searchsorted(until, [max(1, -(-number * percent // 100)) for percent in PERCENTS])
    return Row(
        cells,
        number,
        None if sizes is None else round(float(sizes.sum())),
        tuple(duration_ns[order][places].tolist()),
        int(duration_ns.max()),
    )


def draw(rows: Sequence[Row], keys: Sequence[str], limit: int) -> Iterator[str]:
    """The lines to print."""
    shown = rows[: limit or None]
    texts = [[printable(str(cell)) for cell in row.keys] for row in shown]
    widths = [max(map(len, column)) for column in zip(keys, *texts, strict=True)]
    has_bytes = any(row.bytes is not None for row in shown)
    heads = (HEADS[0], f"{'bytes':>9}", *HEADS[1:]) if has_bytes else HEADS
    yield click.style(f"{'  '.join(heads)}  {_align(keys, widths)}", bold=True)
    for row, cells in zip(shown, texts, strict=True):
        sizes = [format_value(row.bytes or 0, "bytes")] if has_bytes else []
        times = [format_value(time_ns, "nanoseconds") for time_ns in (*row.percentiles_ns, row.longest_ns)]
        yield f"{'  '.join(f'{text:>9}' for text in (f'{row.number:,}', *sizes, *times))}  {_align(cells, widths)}"


def _align(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def as_rows(rows: Sequence[Row], keys: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """For programs: the keys, ``count``, ``bytes`` where there are any, ``p50_ns`` and so on, ``max_ns``."""
    names = [f"p{percent}_ns" for percent in PERCENTS]
    return [
        dict(zip(keys, row.keys, strict=True))
        | {"count": row.number}
        | ({} if row.bytes is None else {"bytes": row.bytes})
        | dict(zip(names, row.percentiles_ns, strict=True))
        | {"max_ns": row.longest_ns}
        for row in rows[: limit or None]
    ]
