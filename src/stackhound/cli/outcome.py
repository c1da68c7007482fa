"""What ``record`` says at its end: where the time went, what it cost and lost, what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackhound.profile.allocations import tells_memory
from stackhound.profile.durations import tells_durations
from stackhound.profile.escape import printable
from stackhound.profile.facts import cost_and_loss, describe_event, notes
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackhound.cli.output import Target
    from stackhound.profile import Event, Profile

TOP_FUNCTIONS = 10
TOP_SITES = 5


def describe_outcome(profile: Profile, target: Target, event: str | None, columns: int | None) -> Iterator[str]:
    """The lines, safe for a terminal. Those of the table are cut after ``columns``, where they are given."""
    for one in profile.events:
        if event in (None, one.name):
            yield describe_event(profile, one)
            top = profile.top(TOP_FUNCTIONS, one.name)
            yield from (
                (line[:columns] for line in str(top).splitlines())
                if len(top)
                else ["no sample: it did not run, or was filtered out"]
            )
            yield from latencies(profile, one)
            yield from (line[:columns] for line in leaks(profile, one))
            yield ""
    yield cost_and_loss(profile)
    yield from (f"note: {note}" for note in notes(profile))
    if target.path is not None:
        yield printable(f"wrote {target.path}{_size(target.path)}{_next_steps(profile, target)}")


def latencies(profile: Profile, event: Event) -> Iterator[str]:
    """How long requests to each block device took; nothing of other events, and where times were summed up."""
    if event.name != "block-io" or not tells_durations(profile, event):
        return
    from stackhound.cli.latency import DEFAULT_KEYS, draw, measure

    keys = DEFAULT_KEYS[event.name]
    yield from ("", *draw(measure(profile, event, keys), keys, 0))


def leaks(profile: Profile, event: Event) -> Iterator[str]:
    """What was in use at the end, and who had asked for most of it; nothing of other events."""
    if not tells_memory(profile, event):
        return
    from stackhound.cli.leaks import draw, live_sites

    shown = profile.shown
    yield from ("", *draw(shown, event, live_sites(shown, event), TOP_SITES))


def _size(path: Path) -> str:
    return f" ({format_value(path.stat().st_size, 'bytes')})" if path.is_file() else ""


def _next_steps(profile: Profile, target: Target) -> str:
    if target.format.name != "hound":
        return ""
    name = "" if str(target.path) == "stackhound.hound" else f" {target.path}"
    event = f" --event {profile.events[0].name}" if len(profile.events) > 1 else ""
    return f"; next: stackhound report{name}, or stackhound export{name}{event} -o flame.html"
