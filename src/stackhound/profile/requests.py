"""Requests to block devices: what the tables ``block_io`` and ``block_io_totals`` say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.profile.columns import number_keys
from stackhound.profile.sides import said_of

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event

#: Of samples that are no requests.
NONE: Final = "(no request)"


class RequestTotal(NamedTuple):
    """All requests to a device with one operation that have ended, sampled or not."""

    device: str
    operation: str
    requests: int
    bytes: int
    latency_ns: int


def requests_by(profile: Profile, event: Event, column: str) -> tuple[list[str], Numbers]:
    """The texts in a column of ``block_io``, and which of them each sample of an event has: int64 (n_samples,)."""
    if "block_io" not in profile.tables:
        return [NONE], said_of(profile, event, None, 0)
    texts, of_request = number_keys(profile.texts("block_io", column))
    return [*texts, NONE], said_of(profile, event, ("block_io", of_request), len(texts))


def request_totals(profile: Profile) -> list[RequestTotal]:
    """By device and operation; empty where it is not known, or was no longer true of the samples that are left."""
    if "block_io_totals" not in profile.tables:
        return []
    texts = (profile.texts("block_io_totals", name) for name in ("device", "operation"))
    numbers = (profile.numbers("block_io_totals", name).tolist() for name in ("requests", "bytes", "latency_ns"))
    return [RequestTotal(*row) for row in zip(*texts, *numbers, strict=True)]


def request_bytes(profile: Profile, event: Event) -> Numbers:
    """Bytes of each sample of an event, for as many requests as it stands for: float64 (n_samples,)."""
    sizes = ("block_io", profile.numbers("block_io", "bytes")) if "block_io" in profile.tables else None
    is_of_event = profile.numbers("samples", "event") == event.id
    value, duration_ns = (profile.numbers("samples", name)[is_of_event] for name in ("value", "duration_ns"))
    found: Numbers = said_of(profile, event, sizes, 0) * (value / np.maximum(duration_ns, 1))
    return found
