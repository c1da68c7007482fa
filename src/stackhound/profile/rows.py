"""Rows of the small tables as objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Event:
    """What was sampled. ``rate`` is in Hz when ``mode`` is ``frequency``, else the period."""

    id: int
    name: str
    unit: str
    trigger: str
    mode: str
    rate: int


class Loss(NamedTuple):
    """One cause for which something that should have been recorded was not."""

    cause: str
    count: int  # type: ignore[assignment]  # hides tuple.count
    estimated: bool
    meaning: str
