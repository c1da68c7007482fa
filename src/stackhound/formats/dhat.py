"""DHAT: allocations for valgrind's own viewer, ``dh_view.html``, version 2 of its JSON.

    {"dhatFileVersion":2,"mode":"sampled-heap","verb":"Allocated","bklt":true,"bkacc":false,
     "tu":"µs","Mtu":"s","tuth":10,"cmd":"./app","pid":4242,"tg":310,"te":5001,
     "pps":[{"tb":4096,"tbk":4,"tl":80,"mb":2048,"mbk":2,"gb":2048,"gbk":2,"eb":0,"ebk":0,"fs":[1,2]}],
     "ftbl":["[root]","parse (/src/parse.c:12)","main (/src/main.c:3)"]}

Of each stack (leaf first, as numbers of ``ftbl``): bytes and blocks in total (tb, tbk), the sum of the blocks'
lifetimes (tl), the most at once (mb, mbk), at the time when the program had the most (gb, gbk, at tg), and at the end
(eb, ebk, at te). Times are microseconds since the recording's start. All numbers are estimates from samples.
Allocations that nobody
could follow are in the totals alone.

Source: valgrind's dhat/dh_main.c and dhat/dh_view.js.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from stackhound.errors import UsageError
from stackhound.formats.escape import as_json, terminal
from stackhound.profile.allocations import HEAP, fates, tells_memory
from stackhound.profile.paths import read_paths
from stackhound.profile.sides import said_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackhound.profile import Event, Frames, Profile
    from stackhound.profile.columns import Numbers

ROOT: Final = "[root]"
SHORT_LIVED_US: Final = 10  # as dhat-rs has it
US: Final = 1_000


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write the allocations.

    Raises:
        UsageError: the event is no allocation; or the profile is inverted.
    """
    chosen = profile.event(event)
    if profile.inverted:
        raise UsageError("DHAT's stacks run from the root to the leaf", "export the profile without --inverted")
    if not tells_memory(profile, chosen):
        raise UsageError(f"DHAT shows allocations, and samples of {chosen.name} are none", "record with -e heap")
    blocks = _read_blocks(profile, chosen)
    table = _FrameTable(profile)
    paths = [table.path(stack) for stack in blocks.stacks]
    points = _merge_points(zip(paths, _points(blocks), strict=True))
    command, pid = _program(profile, chosen)
    document = {
        "dhatFileVersion": 2,
        "mode": "sampled-heap",
        "verb": "Allocated",
        "bklt": True,
        "bkacc": False,
        "tu": "µs",
        "Mtu": "s",
        "tuth": SHORT_LIVED_US,
        "cmd": command,
        "pid": pid,
        "tg": int(blocks.peak_us),
        "te": int(blocks.end_us),
        "pps": [{**point, "fs": list(path)} for path, point in points.items()],
        "ftbl": table.texts,
    }
    out.write(as_json(document).encode("ascii") + b"\n")


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Sampled allocations. Times in microseconds since the recording's start.

    Attributes:
        stacks: rows of the table ``stacks``, each once.
        point: int64 (n,): index into ``stacks``.
        count, size: int64 (n,): blocks that each stands for, and their bytes.
        begin_us, until_us: int64 (n,): in use from then until before then; the end's 1 more where it is in use there.
        peak_us: when the most bytes were in use.
    """

    stacks: list[int]
    point: Numbers
    count: Numbers
    size: Numbers
    begin_us: Numbers
    until_us: Numbers
    peak_us: int
    end_us: int

    def alive(self, time_us: int) -> Numbers:
        """Which are in use at a time: bool (n,)."""
        found: Numbers = (self.begin_us <= time_us) & (time_us < self.until_us)
        return found


def _read_blocks(profile: Profile, event: Event) -> _Blocks:
    is_of_event = profile.numbers("samples", "event") == event.id
    stacks, point = np.unique(profile.numbers("samples", "stack")[is_of_event], return_inverse=True)
    begin_ns = profile.numbers("samples", "boottime_ns")[is_of_event].astype(np.int64) - profile.start_boottime_ns
    begin_us = np.maximum(begin_ns, 0) // US
    lifetimes = np.array([one or 0 for one in profile.column(HEAP, "lifetime_ns")], np.int64)
    until_us = begin_us + said_of(profile, event, (HEAP, lifetimes), 0) // US
    end_us = max(profile.duration_ns // US, int(until_us.max(initial=0)))
    until_us = np.where(fates(profile, event, "in use"), end_us + 1, until_us)
    count, size = (
        said_of(profile, event, (HEAP, profile.numbers(HEAP, f"alloc_{of}")), 0) for of in ("objects", "space")
    )
    peak_us = _peak_us(begin_us, until_us, size)
    return _Blocks(stacks.tolist(), point, count, size, begin_us, until_us, min(peak_us, end_us), end_us)


def _peak_us(begin_us: Numbers, until_us: Numbers, size: Numbers) -> int:
    """The first time at which the most bytes are in use."""
    times, changes = np.concatenate((begin_us, until_us)), np.concatenate((size, -size))
    if not len(times):
        return 0
    order = np.lexsort((changes, times))  # what ends at a time is gone then
    return int(times[order][np.argmax(np.cumsum(changes[order]))])


def _points(blocks: _Blocks) -> list[dict[str, int]]:
    """Of each of the stacks what DHAT says of it."""
    held_us = np.minimum(blocks.until_us, blocks.end_us) - blocks.begin_us
    at_peak, at_end = blocks.alive(blocks.peak_us), blocks.alive(blocks.end_us)
    n_points = len(blocks.stacks)

    def add_up(values: Numbers) -> list[int]:
        sums = np.zeros(n_points, np.int64)
        np.add.at(sums, blocks.point, values)
        found: list[int] = sums.tolist()
        return found

    columns = {
        "tb": add_up(blocks.size),
        "tbk": add_up(blocks.count),
        "tl": add_up(blocks.count * held_us),
        **dict(zip(("mb", "mbk"), _maxima(blocks), strict=True)),
        "gb": add_up(blocks.size * at_peak),
        "gbk": add_up(blocks.count * at_peak),
        "eb": add_up(blocks.size * at_end),
        "ebk": add_up(blocks.count * at_end),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _maxima(blocks: _Blocks) -> tuple[list[int], list[int]]:
    """Of each stack the most bytes at once, and the blocks then."""
    point = np.concatenate((blocks.point, blocks.point))
    times = np.concatenate((blocks.begin_us, blocks.until_us))
    size, count = (np.concatenate((values, -values)) for values in (blocks.size, blocks.count))
    order = np.lexsort((size, times, point))
    bounds = np.searchsorted(point[order], np.arange(len(blocks.stacks) + 1))
    most_bytes, most_blocks = [], []
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        used = np.cumsum(size[order[begin:end]])
        at = int(np.argmax(used))
        most_bytes.append(max(0, int(used[at])))
        most_blocks.append(max(0, int(np.cumsum(count[order[begin:end]])[at])))
    return most_bytes, most_blocks


def _merge_points(points: Iterable[tuple[tuple[int, ...], dict[str, int]]]) -> dict[tuple[int, ...], dict[str, int]]:
    """One a path, since the viewer refuses two: of stacks that read the same the sums, also of their maxima."""
    merged: dict[tuple[int, ...], dict[str, int]] = {}
    for path, point in points:
        known = merged.setdefault(path, dict.fromkeys(point, 0))
        merged[path] = {name: known[name] + value for name, value in point.items()}
    return merged


class _FrameTable:
    """Frames by number, in the order in which they are met."""

    def __init__(self, profile: Profile) -> None:
        self.texts = [ROOT]
        self._numbers: dict[str, int] = {}
        frames = profile.frames_with_lines.reversed()
        self._starts, self._frames = frames.offsets.tolist(), frames.frames.tolist()
        self._names = [_text(frames, frame) for frame in range(len(frames))]
        self._offsets, self._locations = read_paths(
            profile.numbers("stacks", "parent"), profile.numbers("stacks", "location")
        )

    def path(self, stack: int) -> tuple[int, ...]:
        """The frames of a stack, leaf first."""
        locations = self._locations[self._offsets[stack] : self._offsets[stack + 1]][::-1].tolist()
        frames = (self._frames[self._starts[one] : self._starts[one + 1]] for one in locations)
        return tuple(self._number(self._names[frame]) for part in frames for frame in part)

    def _number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


def _text(frames: Frames, frame: int) -> str:
    file, line = frames.file[frame], int(frames.line[frame])
    place = f" ({file}:{line})" if line else f" ({file})" if file else ""
    return terminal(f"{frames.name[frame]}{place}")


def _program(profile: Profile, event: Event) -> tuple[str, int]:
    """The command line and id of the process that allocated most."""
    samples = profile.samples_of(event)
    process = profile.numbers("threads", "process")[samples.thread]
    if not len(process):
        return "", 0
    most = int(np.argmax(np.bincount(process, samples.value)))
    command, comm = (profile.texts("processes", name)[most] for name in ("command_line", "comm"))
    return terminal(command or comm), int(profile.numbers("processes", "pid")[most])
