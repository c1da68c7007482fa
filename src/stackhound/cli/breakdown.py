"""A profile broken down by what its samples and frames have in common: ``report --sort``.

comm, pid, tid, process, thread     of the sample
object, symbol, file, line          of each frame: ``self`` at the leaf, ``total`` anywhere in the stack
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.profile.columns import number_keys
from stackhound.profile.top import has_ancestor_alike
from stackhound.profile.tree import FirstLevel, grow_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stackhound.profile import CallTree, Event, Frames, Profile
    from stackhound.profile.columns import Numbers

Cell = str | int


class Row(NamedTuple):
    """One group. ``keys`` in the order that was asked for; values in the event's unit."""

    keys: tuple[Cell, ...]
    self_value: int
    total_value: int


def _of_process(profile: Profile, column: str) -> Sequence[Cell]:
    column_cells = profile.table("processes")[column].to_pylist()
    return [column_cells[process] for process in profile.numbers("threads", "process").tolist()]


def _processes(profile: Profile) -> Sequence[Cell]:
    names = zip(_of_process(profile, "comm"), _of_process(profile, "pid"), strict=True)
    return [f"{comm} ({pid})" for comm, pid in names]


def _threads(profile: Profile) -> Sequence[Cell]:
    names = zip(profile.texts("threads", "comm"), profile.numbers("threads", "tid").tolist(), strict=True)
    return [f"{comm} ({tid})" for comm, tid in names]


#: Keys of a sample: one cell a row of the table ``threads``.
THREAD_KEYS: Final[dict[str, Callable[[Profile], Sequence[Cell]]]] = {
    "comm": lambda profile: profile.texts("threads", "comm"),
    "pid": lambda profile: _of_process(profile, "pid"),
    "tid": lambda profile: profile.numbers("threads", "tid").tolist(),
    "process": _processes,
    "thread": _threads,
}


def _objects(profile: Profile, frames: Frames) -> Sequence[Cell]:
    paths = profile.texts("objects", "path")
    return [paths[one] for one in frames.object.tolist()]


def _lines(_: Profile, frames: Frames) -> Sequence[Cell]:
    places = zip(frames.name, frames.file, frames.line.tolist(), strict=True)
    return [f"{file}:{line}" if line else file or name for name, file, line in places]


#: Keys of a frame: one cell a frame.
FRAME_KEYS: Final[dict[str, Callable[[Profile, Frames], Sequence[Cell]]]] = {
    "object": _objects,
    "symbol": lambda _, frames: frames.name,
    "file": lambda _, frames: [file or "(unknown)" for file in frames.file],
    "line": _lines,
}

KEYS: Final = (*THREAD_KEYS, *FRAME_KEYS)


def break_down(profile: Profile, event: Event, keys: Sequence[str]) -> list[Row]:
    """Sum the samples of an event by ``keys``, of `KEYS`. The largest ``self``, then ``total``, come first."""
    threads = _group([THREAD_KEYS[key](profile) for key in keys if key in THREAD_KEYS])
    if all(key in THREAD_KEYS for key in keys):
        rows = _sum_samples(profile, event, threads)
    else:
        rows = _sum_frames(profile, event, keys, threads)
    return sorted(rows, key=lambda row: (-row.self_value, -row.total_value, tuple(map(str, row.keys))))


class _Groups(NamedTuple):
    """Equal tuples of cells, and which of them each row has: int64 (n_rows,)."""

    tuples: list[tuple[Cell, ...]]
    of_row: Numbers


def _group(columns: Sequence[Sequence[Cell]]) -> _Groups:
    tuples, of_row = number_keys(zip(*columns, strict=True))
    return _Groups(tuples, of_row.astype(np.int64))


def _sum_samples(profile: Profile, event: Event, threads: _Groups) -> list[Row]:
    samples = profile.samples_of(event)
    values = np.zeros(len(threads.tuples), np.uint64)
    np.add.at(values, threads.of_row[samples.thread], samples.value)
    return [Row(cells, value, value) for cells, value in zip(threads.tuples, values.tolist(), strict=True) if value]


def _sum_frames(profile: Profile, event: Event, keys: Sequence[str], threads: _Groups) -> list[Row]:
    """Sum by the frames, apart for each group of threads: the tree's first level."""
    labels = FirstLevel([""] * len(threads.tuples), threads.of_row.astype(np.uint32)) if threads.tuples else None
    tree = grow_tree(profile, event, labels, lines="line" in keys)
    frames = _group([FRAME_KEYS[key](profile, tree.frames) for key in keys if key in FRAME_KEYS])
    group = np.append(frames.of_row, len(frames.tuples))[_frame_of(tree, len(frames.of_row))]
    return [
        Row(_in_order(keys, threads.tuples[label] if threads.tuples else (), frames.tuples[frame]), own, total)
        for label, frame, own, total in _sum_nodes(tree, group, len(frames.tuples))
    ]


def _frame_of(tree: CallTree, no_frame: int) -> Numbers:
    """Each node's frame; ``no_frame`` for labels and the root."""
    frame = np.where(tree.is_label, no_frame, tree.frame.astype(np.int64))
    frame[0] = no_frame
    return frame


def _sum_nodes(tree: CallTree, group: Numbers, n_groups: int) -> list[tuple[int, int, int, int]]:
    """(label, group, self, total) of each pair that has a value. A node below one of its own group adds no total."""
    key = _label_of(tree) * (n_groups + 1) + group
    unique, index = np.unique(key[1:], return_inverse=True)
    own, total = np.zeros(len(unique), np.uint64), np.zeros(len(unique), np.uint64)
    np.add.at(own, index, tree.self_value[1:])
    outermost = ~has_ancestor_alike(tree, key[1:])
    np.add.at(total, index[outermost], tree.total_value[1:][outermost])
    label, frame = np.divmod(unique, n_groups + 1)
    sums = zip(label.tolist(), frame.tolist(), own.tolist(), total.tolist(), strict=True)
    return [row for row in sums if row[1] < n_groups and row[3]]


def _label_of(tree: CallTree) -> Numbers:
    """Each node's label: that of its ancestor on the first level. int64 (n_nodes,)."""
    label = np.where(tree.is_label, tree.frame.astype(np.int64), 0)
    for rows in tree.levels[2:]:
        label[rows] = label[tree.parent[rows]]
    return label


def _in_order(keys: Sequence[str], of_thread: tuple[Cell, ...], of_frame: tuple[Cell, ...]) -> tuple[Cell, ...]:
    thread, frame = iter(of_thread), iter(of_frame)
    return tuple(next(thread) if key in THREAD_KEYS else next(frame) for key in keys)
