"""A report to read, or to page through: what was recorded, then every stack, heaviest first, leaf first.

    cpu on web-1
    ============
    Duration  10.0 s
    Samples   1,016
    Lost      0
    …

     34.21%  3.51 s  nginx
             vfs_read  (kernel)
             parse [inlined]  src/parse.h:40
             main  src/main.c:12
             [libc.so.6]  (no symbol table)

Each event has its own part. Where a source line is not known the object stands in its place, and the reason where
there is no name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from stackhound.formats import escape
from stackhound.formats.weights import join_paths, location_texts, sum_by_text, weigh_stacks
from stackhound.profile.facts import facts, title
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile import Event, Frames, Profile

INDENT = " " * 9
NO_STACK = f"{INDENT}[no stack]\n"


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write the stacks of one event, or of each.

    Raises:
        UsageError: no such event.
    """
    frames = profile.frames_with_lines.reversed()
    locations = location_texts(frames, _frame_texts(profile, frames))
    separator = ""
    for chosen in profile.events if event is None else [profile.event(event)]:
        out.write(f"{separator}{_heading(profile, chosen)}".encode())
        out.writelines(entry.encode() for entry in _entries(profile, chosen, locations))
        separator = "\n"


def _heading(profile: Profile, event: Event) -> str:
    headline, known = title(profile, event), facts(profile, event)
    width = max(len(label) for label, _ in known)
    return "".join([f"{headline}\n{'=' * len(headline)}\n", *(f"{label:{width}}  {fact}\n" for label, fact in known)])


def _entries(profile: Profile, event: Event, locations: list[str]) -> Iterator[str]:
    weights = weigh_stacks(profile, event)
    paths = join_paths(profile, weights.stack, locations, leaf_first=True)
    comms = [escape.terminal(comm) for comm in weights.comms]
    entries = (f"{comms[comm]}\n{path or NO_STACK}" for comm, path in zip(weights.comm.tolist(), paths, strict=True))
    totals = sum_by_text(entries, weights.value.tolist())
    whole = max(1, sum(totals.values()))
    for entry in sorted(totals, key=lambda entry: (-totals[entry], entry)):
        yield f"\n{totals[entry] / whole:7.2%}  {format_value(totals[entry], event.unit)}  {entry}"


def _frame_texts(profile: Profile, frames: Frames) -> list[str]:
    objects = [escape.terminal(path.rpartition("/")[2].strip("[]")) for path in profile.texts("objects", "path")]
    places = [
        _place(file, line, reason) or f"({objects[index]})"
        for file, line, reason, index in zip(
            frames.file, frames.line.tolist(), frames.reason, frames.object.tolist(), strict=True
        )
    ]
    return [
        f"{INDENT}{escape.terminal(name)}{' [inlined]' if inlined else ''}  {place}\n"
        for name, inlined, place in zip(frames.name, frames.inlined.tolist(), places, strict=True)
    ]


def _place(file: str, line: int, reason: str | None) -> str:
    if reason is not None:
        return f"({escape.terminal(reason)})"
    return f"{escape.terminal(file)}:{line}" if file and line else escape.terminal(file)
