"""The kernel's tracepoints, ``category:name``, as the core reads them from tracefs."""

from __future__ import annotations

from stackhound import _native
from stackhound.errors import EventUnavailable, UsageError
from stackhound.recording.near import near_matches


def tracepoints() -> list[str]:
    """All of them, sorted.

    Raises:
        EventUnavailable: tracefs cannot be read.
    """
    events = _native.list_events()
    for _, _, why_not in events:
        if why_not:
            raise EventUnavailable(f"there are no tracepoints: {why_not}", "run as root, for example with sudo")
    return [name for name, _, _ in events]


def check_tracepoint(name: str) -> None:
    """See that there is a tracepoint of this name.

    Raises:
        UsageError: there is none; the remedy names the nearest ones.
        EventUnavailable: tracefs cannot be read.
    """
    names = tracepoints()
    if name not in names:
        raise UsageError(f"there is no tracepoint {name}", near_matches(name, names))
