"""Counted stacks: the count first, then the frames from the leaf to the root.

    24 main.sqrt;runtime.main;runtime.goexit;
    3 [UNKNOWN];main;_start;

One line a stack, whatever thread it was in, largest count first. The count is what `folded` has: samples for
``cpu``, the event's own value for others. A frame without a name is ``[UNKNOWN]``; there are no marks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from stackhound.formats import escape
from stackhound.formats.weights import join_paths, location_texts, sum_by_text, weigh_stacks

if TYPE_CHECKING:
    from stackhound.profile import Frames, Profile

UNKNOWN = "[UNKNOWN]"
NO_STACK = f"{UNKNOWN};"


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write one event as counted stacks.

    Raises:
        UsageError: no such event, or several and None was given.
    """
    weights = weigh_stacks(profile, profile.event(event))
    frames = profile.frames.reversed()
    paths = join_paths(profile, weights.stack, location_texts(frames, _frame_texts(frames)), leaf_first=True)
    totals = sum_by_text((path or NO_STACK for path in paths), weights.folded_value.tolist())
    largest_first = sorted(totals, key=lambda path: (-totals[path], path))
    out.writelines(f"{totals[path]} {path}\n".encode() for path in largest_first)


def _frame_texts(frames: Frames) -> list[str]:
    return [
        f"{UNKNOWN if reason is not None else escape.folded(name)};"
        for name, reason in zip(frames.name, frames.reason, strict=True)
    ]
