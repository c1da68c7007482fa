"""The kernel's tracepoints, as tracefs lists them.

/sys/kernel/tracing/events/<category>/<name>/id     the number that perf_event_attr.config wants
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from stackhound.errors import EventUnavailable, PermissionMissing, UsageError

#: Where tracefs is mounted: its own place since Linux 4.1, under debugfs before.
TRACEFS_ROOTS: Final = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
MOUNT_REMEDY: Final = "sudo mount -t tracefs tracefs /sys/kernel/tracing"

TRACEPOINT_NAME: Final = re.compile(r"[A-Za-z0-9_-]+:[A-Za-z0-9_-]+")


def tracefs_events() -> Path:
    """The directory with one subdirectory a category.

    Raises:
        EventUnavailable: tracefs is not mounted.
        PermissionMissing: it is, and this user may not read it.
    """
    for root in TRACEFS_ROOTS:
        events = root / "events"
        try:
            if events.is_dir():
                return events
        except PermissionError:
            raise PermissionMissing(f"{root} cannot be read", "run as root, for example with sudo") from None
    raise EventUnavailable("tracepoints need tracefs, which is not mounted", MOUNT_REMEDY)


def tracepoint_id(name: str) -> int:
    """The number of the tracepoint ``category:name`` on this machine.

    Raises:
        EventUnavailable, PermissionMissing: see `tracefs_events`.
        UsageError: there is no such tracepoint; the remedy names the nearest ones.
    """
    category, _, event = name.partition(":")
    path = tracefs_events() / category / event / "id"
    try:
        return int(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"there is no tracepoint {name}", _near(name)) from None
    except PermissionError:
        raise PermissionMissing(f"{path} cannot be read", "run as root, for example with sudo") from None


def tracepoints() -> dict[str, list[str]]:
    """The names of all tracepoints by category, both sorted. Raises as `tracefs_events`."""
    found: dict[str, list[str]] = {}
    for identity in tracefs_events().glob("*/*/id"):
        found.setdefault(identity.parts[-3], []).append(identity.parts[-2])
    return {category: sorted(found[category]) for category in sorted(found)}


def _near(name: str) -> str:
    from difflib import get_close_matches  # only a failing command pays for it

    names = [f"{category}:{event}" for category, events in tracepoints().items() for event in events]
    near = get_close_matches(name, names)
    return f"did you mean {', '.join(near)}?" if near else "'stackhound list' shows what there is"
