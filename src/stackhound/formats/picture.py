"""A call tree as the flame graphs draw it: laid out, named, coloured.

    ├─────────────────────── all ───────────────────────┤   depth 0
    ├────────── nginx ───────────┼─────── python ───────┤   depth 1: one a comm
    ├──── main ────┼── start ──┤ ├── main ──┤
                   ^ start

Children lie side by side from their parent's start on, by falling total; what they leave free is the parent's self
value. Starts and totals are in the event's unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stackhound.errors import EmptyProfile
from stackhound.formats.palette import FILL_IDS, fill_id, shade_id
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from stackhound.profile import CallTree, Event, Frames, Profile
    from stackhound.profile.columns import Numbers

#: A C++ name can be a megabyte long. Of a longer one the beginning is shown.
LONGEST_TEXT = 2000


@dataclass(frozen=True, eq=False)
class Faces:
    """What nodes look like; one entry a frame, comm or root. Harmless to print, still to be escaped for XML or JSON.

    Attributes:
        name: of the function, comm or object.
        fill, shade: ids into `palette.FILLS` and `palette.SHADES`.
        object, reason: empty where there is none.
        source: ``app.c:12``, or ``app.c:12–48`` where several of its lines were sampled; empty where unknown.
    """

    name: list[str]
    fill: list[int]
    shade: list[int]
    object: list[str]
    source: list[str]
    reason: list[str]


@dataclass(frozen=True, eq=False)
class Picture:
    """One event's call tree in preorder, siblings by falling total. A node without samples is not in it.

    Attributes:
        event: what was sampled.
        node: int64 (n_nodes,): rows of the tree.
        depth: uint32 (n_nodes,); 0 for row 0, the root.
        face: uint32 (n_nodes,), ids into ``faces``.
        self_value, total_value, start: uint64 (n_nodes,), in the event's unit.
        faces: those that a node has.
    """

    event: Event
    node: Numbers
    depth: Numbers
    face: Numbers
    self_value: Numbers
    total_value: Numbers
    start: Numbers
    faces: Faces


def lay_out(profile: Profile, event: str | None) -> Picture:
    """Lay out one event's call tree, a process a comm at the first level.

    Raises:
        EmptyProfile: the event has no sample.
        UsageError: no such event, or several and None was given.
    """
    return arrange(profile, profile.tree(event, root="process"))


def arrange(profile: Profile, tree: CallTree) -> Picture:
    """Lay out a tree of the profile.

    Raises:
        EmptyProfile: it has no sample.
    """
    if tree.total_value[0] == 0:
        raise EmptyProfile(f"there is no sample of {tree.event.name!r} to draw", "record for longer, or filter less")
    start = _starts(tree)
    drawn = np.flatnonzero(tree.total_value)
    order = drawn[np.lexsort((tree.depth[drawn], start[drawn]))]
    used, face = np.unique(_face_ids(tree)[order], return_inverse=True)
    return Picture(
        event=tree.event,
        node=order,
        depth=tree.depth[order],
        face=face.astype(np.uint32),
        self_value=tree.self_value[order],
        total_value=tree.total_value[order],
        start=start[order],
        faces=_faces(profile, tree, used.tolist()),
    )


def _starts(tree: CallTree) -> Numbers:
    """Where each node begins: its parent's start plus the totals of its larger siblings."""
    parent, total = tree.parent.astype(np.intp), tree.total_value
    order = 1 + np.lexsort((tree.frame[1:], total[0] - total[1:], parent[1:]))
    before = np.cumsum(total[order]) - total[order]
    is_first = np.diff(parent[order], prepend=-1) != 0
    start = np.zeros(len(tree), np.uint64)
    start[order] = before - np.maximum.accumulate(np.where(is_first, before, np.uint64(0)))
    for level in tree.levels[1:]:
        start[level] += start[parent[level]]
    return start


def _face_ids(tree: CallTree) -> Numbers:
    """Frames first, then labels, then the root."""
    frames, labels = len(tree.frames), len(tree.labels or ())
    ids: Numbers = np.where(tree.is_label, tree.frame.astype(np.intp) + frames, tree.frame)
    ids[0] = frames + labels
    return ids


def _faces(profile: Profile, tree: CallTree, ids: list[int]) -> Faces:
    frames, labels = tree.frames, tree.labels or []
    shown = [index for index in ids if index < len(frames)]
    others = [labels[index - len(frames)] for index in ids[len(shown) : -1]] + ["all"]
    empty = [""] * len(others)
    paths = _texts(profile.texts("objects", "path"))
    names = _texts([frames.name[index] for index in shown] + others)
    fills = [fill_id(frames.kind[index], inlined) for index, inlined in zip(shown, frames.inlined[shown], strict=True)]
    return Faces(
        name=names,
        fill=fills + [FILL_IDS["process"]] * len(others),
        shade=[shade_id(name) for name in names],
        object=[paths[index] for index in frames.object[shown].tolist()] + empty,
        source=_texts(_sources(profile, frames, shown)) + empty,
        reason=_texts([frames.reason[index] or "" for index in shown]) + empty,
    )


def _sources(profile: Profile, frames: Frames, shown: list[int]) -> list[str]:
    first, last = _sampled_lines(profile)
    function = frames.function.tolist()
    return [
        _source(frames.file[index], first[function[index]], last[function[index]]) if frames.file[index] else ""
        for index in shown
    ]


def _source(file: str, first: int, last: int) -> str:
    if last == 0:
        return file
    return f"{file}:{first}" if first == last else f"{file}:{first}–{last}"


def _sampled_lines(profile: Profile) -> tuple[list[int], list[int]]:
    """The first and the last line of each function that was sampled; 0 where no line is known."""
    function, line = profile.numbers("lines", "function"), profile.numbers("lines", "line")
    last = np.zeros(profile.table("functions").num_rows, np.uint32)
    np.maximum.at(last, function, line)
    first = last.copy()
    np.minimum.at(first, function[line > 0], line[line > 0])
    return first.tolist(), last.tolist()


def _texts(texts: list[str]) -> list[str]:
    """The texts made harmless; each distinct one once, because files and reasons repeat."""
    shown = {text: printable(text, LONGEST_TEXT) for text in set(texts)}
    return [shown[text] for text in texts]
