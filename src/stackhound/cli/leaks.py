"""What was in use at the end, by who had asked for it: ``report --leaks``, and the end of ``record -e heap``.

 in use at the end: 64.0 MiB in 1,024 allocations, of 1.20 GiB in 2,310,412

  in use      count      total  allocated by
64.0 MiB      1,024   64.0 MiB  grow_cache ← handle_request ← main
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from stackhound.errors import UsageError
from stackhound.profile.allocations import memory_of, sites_of, tells_memory
from stackhound.profile.brief_stacks import ARROW
from stackhound.profile.escape import printable
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.profile import Event, Profile
    from stackhound.profile.allocations import Memory, Site

HEADS: Final = f"{'in use':>10}  {'count':>11}  {'total':>10}  allocated by"


def live_sites(profile: Profile, event: Event) -> list[Site]:
    """Who had asked for what is in use, the most first.

    Raises:
        UsageError: the event is no allocation.
    """
    if not tells_memory(profile, event):
        raise UsageError(f"samples of {event.name} are no allocations", "record them with -e heap")
    return [site for site in sites_of(profile, event) if site.memory.inuse_bytes or site.memory.inuse_objects]


def draw(profile: Profile, event: Event, sites: Sequence[Site], limit: int) -> Iterator[str]:
    """The lines to print."""
    yield _summary(memory_of(profile, event))
    if not sites:
        return
    yield ""
    yield click.style(HEADS, bold=True)
    for site in sites[: limit or None]:
        memory = site.memory
        used, total = (format_value(value, "bytes") for value in (memory.inuse_bytes, memory.alloc_bytes))
        yield f"{used:>10}  {memory.inuse_objects:>11,}  {total:>10}  {printable(ARROW.join(site.stack.frames))}"


def _summary(memory: Memory) -> str:
    used = f"in use at the end: {_amount(memory.inuse_bytes, memory.inuse_objects)} allocations"
    whole = f", of {_amount(memory.alloc_bytes, memory.alloc_objects)}"
    unknown = f"; not known: {format_value(memory.unknown_bytes, 'bytes')}" if memory.unknown_bytes else ""
    return f"{used}{whole}{unknown}"


def _amount(size: int, number: int) -> str:
    return f"{format_value(size, 'bytes')} in {number:,}"


def as_rows(sites: Sequence[Site], limit: int) -> list[dict[str, Any]]:
    """For programs: the frames from the leaf on, and what was allocated and is in use there."""
    return [{"frames": list(site.stack.frames), **site.memory._asdict()} for site in sites[: limit or None]]
