"""What pictures show at each location: its functions, inlined ones expanded, or a label for a miss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import number_keys
from stackhound.profile.schema import KERNEL_KINDS

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile

NO_FUNCTION = 2**32 - 1
NO_REASON = "no reason recorded"


@dataclass(frozen=True, eq=False)
class Frames:
    """The frames of a profile. Location ``i`` shows ``frames[offsets[i]:offsets[i + 1]]``, outermost first.

    Attributes:
        offsets: uint32 (n_locations + 1,).
        frames: uint32, ids into the columns below, which have one entry a frame.
        name: demangled; for a miss the object's base name in brackets.
        kind: ``user``, ``kernel``, ``jit``, ``bpf``, ``python``, ``task``, which is virtual, or ``waker``.
        inlined: bool; whether the function was inlined into the frame before it.
        object: uint32, rows of the table ``objects``.
        function: uint32, rows of the table ``functions``; `NO_FUNCTION` for a miss.
        file: source file; empty when unknown.
        line: uint32; 0 when unknown, and always without ``lines=True``.
        reason: why a miss has no name; None for every other frame.

    Names, files and reasons come from profiled programs: escape them wherever they are shown.
    """

    offsets: Numbers
    frames: Numbers
    name: list[str]
    kind: list[str]
    inlined: Numbers
    object: Numbers
    function: Numbers
    file: list[str]
    line: Numbers
    reason: list[str | None]

    def __len__(self) -> int:
        return len(self.name)

    def reversed(self) -> Frames:
        """The same frames, innermost first at each location."""
        return replace(self, frames=self.frames[reverse_segments(self.offsets)])


def build_frames(profile: Profile, lines: bool) -> Frames:
    """One frame a (function, inlined or not), and a (object, reason) where there is no name.

    With ``lines``, one a (function, inlined or not, source line).
    """
    shown = _Lines(profile, lines)
    missing = np.flatnonzero(shown.count == 0).astype(np.uint32)
    miss_keys, miss_ids = _misses(profile, missing)
    count = np.where(shown.count == 0, 1, shown.count)
    offsets = np.concatenate(([0], np.cumsum(count))).astype(np.uint32)
    flat = np.empty(offsets[-1], np.uint32)
    flat[offsets[missing]] = miss_ids + len(shown.function)
    named = np.repeat(shown.count > 0, count)
    flat[named] = shown.ids
    frames = _label(profile, shown, miss_keys, offsets, flat)
    return frames.reversed() if profile.inverted else frames


def reverse_segments(offsets: Numbers) -> Numbers:
    """The index that turns each segment of a CSR array around: int64 (offsets[-1],)."""
    offsets = offsets.astype(np.int64)
    mirrors = offsets[:-1] + offsets[1:] - 1
    index: Numbers = np.repeat(mirrors, np.diff(offsets)) - np.arange(offsets[-1])
    return index


class _Lines:
    """The table ``lines`` by location, outermost first, with equal ones unified.

    Attributes:
        count: lines of each location.
        ids: one a row, location by location: index into ``function``, ``inlined``, ``line``.
    """

    def __init__(self, profile: Profile, lines: bool) -> None:
        location = profile.numbers("lines", "location")
        outermost_first = np.iinfo(np.uint16).max - profile.numbers("lines", "depth")
        order = np.lexsort((outermost_first, location))
        location = location[order]
        inlined = np.zeros(len(order), np.uint64)
        inlined[1:] = location[1:] == location[:-1]
        function = profile.numbers("lines", "function")[order].astype(np.uint64)
        line = profile.numbers("lines", "line")[order].astype(np.uint64) if lines else np.uint64(0)
        # function < 2**31 (`stackhound.profile.check`), inlined: 1 bit, line: 32 bits
        key = (function << np.uint64(33)) | (inlined << np.uint64(32)) | line
        unique, self.ids = np.unique(key, return_inverse=True)
        self.count = np.bincount(location, minlength=profile.table("locations").num_rows)
        self.function = (unique >> np.uint64(33)).astype(np.uint32)
        self.inlined = (unique >> np.uint64(32) & np.uint64(1)).astype(bool)
        self.line = unique.astype(np.uint32)


def _misses(profile: Profile, missing: Numbers) -> tuple[list[tuple[int, str]], Numbers]:
    """The (object, reason) pairs of the locations without a name, and each location's pair."""
    objects = profile.numbers("locations", "object")[missing].tolist()
    reasons = profile.texts("locations", "reason")
    said = (reasons[location] or NO_REASON for location in missing.tolist())
    return number_keys(zip(objects, said, strict=True))


def _label(profile: Profile, shown: _Lines, misses: list[tuple[int, str]], offsets: Numbers, flat: Numbers) -> Frames:
    paths, kinds = profile.texts("objects", "path"), profile.texts("objects", "kind")
    names, files = profile.texts("functions", "name"), profile.texts("functions", "file")
    function = shown.function.tolist()
    miss_objects = np.array([index for index, _ in misses], np.uint32)
    objects = np.concatenate((profile.numbers("functions", "object")[shown.function], miss_objects))
    object_labels = [miss_label(path) for path in paths]
    object_kinds = [picture_kind(kind) for kind in kinds]
    named = [names[one] or object_labels[at] for one, at in zip(function, objects.tolist(), strict=False)]
    return Frames(
        offsets=offsets,
        frames=flat,
        name=named + [object_labels[index] for index, _ in misses],
        kind=[object_kinds[index] for index in objects.tolist()],
        inlined=np.concatenate((shown.inlined, np.zeros(len(misses), bool))),
        object=objects,
        function=np.concatenate((shown.function, np.full(len(misses), NO_FUNCTION, np.uint32))),
        file=[files[one] for one in function] + [""] * len(misses),
        line=np.concatenate((shown.line, np.zeros(len(misses), np.uint32))),
        reason=[None] * len(function) + [reason for _, reason in misses],
    )


def miss_label(path: str) -> str:
    """What to show for a frame without a name: the object's base name in brackets."""
    name = path if path.startswith("[") else path.rstrip("/").rpartition("/")[2]
    return name if name.startswith("[") else f"[{name or 'unknown'}]"


def picture_kind(kind: str) -> str:
    """The kind that a picture colours by, of an object's kind."""
    if kind in {"bpf", "jit", "python", "task", "waker"}:
        return kind
    return "kernel" if kind in KERNEL_KINDS else "user"
