"""Folded stacks, for flamegraph.pl, inferno, speedscope and whatever else reads lines.

    nginx;_start;main;parse_[i];vfs_read_[k] 12
    └comm └root ……………………… leaf┘           └weight

The comm is the thread's. Marks: ``_[k]`` kernel (inlined kernel functions too), ``_[i]`` inlined, ``_[j]`` JIT,
``_[t]`` an asyncio task or code of one that awaits another, ``_[w]`` what woke the thread. The weight is the number of
samples for ``cpu`` and the event's own value for others: nanoseconds of a time, a count of faults. A frame without a
name is its object's name in brackets; ``;`` and what has no glyph is escaped, so that the last space of a line always
parts the stack from its weight. Equal stacks are one line, and lines are sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

from stackhound.formats import escape
from stackhound.formats.weights import join_paths, location_texts, sum_by_text, weigh_stacks
from stackhound.profile.schema import KERNEL_KINDS

if TYPE_CHECKING:
    from stackhound.profile import Frames, Profile


_MARKS: Final = {"jit": "_[j]", "task": "_[t]", "waker": "_[w]"}


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write one event as folded stacks.

    Raises:
        UsageError: no such event, or several and None was given.
    """
    weights = weigh_stacks(profile, profile.event(event))
    comms = [escape.folded(comm) for comm in weights.comms]
    paths = join_paths(profile, weights.stack, location_texts(profile.frames, _frame_texts(profile.frames)))
    lines = (comms[comm] + path for comm, path in zip(weights.comm.tolist(), paths, strict=True))
    totals = sum_by_text(lines, weights.folded_value.tolist())
    out.writelines(f"{line} {totals[line]}\n".encode() for line in sorted(totals))


def frame(name: str, kind: str, inlined: bool) -> str:
    """One frame of a folded stack; ``kind`` is an object's or a frame's."""
    return escape.folded(name) + _mark(kind, inlined)


def _frame_texts(frames: Frames) -> list[str]:
    return [f";{frame(*row)}" for row in zip(frames.name, frames.kind, frames.inlined.tolist(), strict=True)]


def _mark(kind: str, inlined: bool) -> str:
    if kind in KERNEL_KINDS:
        return "_[k]"
    if inlined:
        return "_[i]"
    return _MARKS.get(kind, "")
