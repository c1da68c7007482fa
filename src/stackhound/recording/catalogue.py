"""The events that this machine has, and why it lacks the others."""

from __future__ import annotations

from dataclasses import dataclass

from stackhound import _native
from stackhound.errors import StackhoundError
from stackhound.recording.events import BLOCK_IO, CPU_TIME, HARDWARE, HEAP, NAMED, OFF_CPU, EventSource
from stackhound.recording.tracepoints import tracepoints


@dataclass(frozen=True)
class Listed:
    """One event. ``missing`` says why it cannot be had here; empty when it can."""

    name: str
    kind: str
    unit: str
    missing: str


def list_events() -> list[Listed]:
    """Every event that ``-e`` takes, by kind: cpu, off-cpu, block-io, heap, hardware, cache, software, raw, …"""
    named = [_listed(source) for source in NAMED.values()]
    raw = Listed("rNNNN", "raw", "count", _native.probe_event(HARDWARE, 0))
    return [*named, raw, *_tracepoints()]


def why_missing(source: EventSource) -> str:
    """Why this machine does not have the event; empty when it has."""
    if source.type == CPU_TIME:
        return ""  # there is always a trigger: cpu-clock needs no counter
    if source.type == OFF_CPU:
        return _native.probe_off_cpu()
    if source.type == BLOCK_IO:
        return _native.probe_block_io()
    if source.type == HEAP:
        return _native.probe_heap()
    return _native.probe_event(source.type, source.config)


def _listed(source: EventSource) -> Listed:
    return Listed(source.name, source.kind, source.unit, why_missing(source))


def _tracepoints() -> list[Listed]:
    try:
        return [Listed(name, "tracepoint", "count", "") for name in tracepoints()]
    except StackhoundError as error:
        return [Listed("CATEGORY:NAME", "tracepoint", "count", str(error))]
