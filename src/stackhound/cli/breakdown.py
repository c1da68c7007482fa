"""A profile broken down by what its samples and frames have in common: ``report --sort``.

comm, pid, tid, process, thread     of the sample
stack                               whether the sample's user stack is complete, and if not why
state, reason                       of time off the CPU: how a thread left it, and what it waited for
device, operation, charged          of requests to block devices; the control group that one is charged to
memory                              of page faults: the file that was touched, or the kind of memory
object, symbol, file, line          of each frame: ``self`` at the leaf, ``total`` anywhere in the stack
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.profile.absences import absences_by, wakers
from stackhound.profile.columns import number_keys
from stackhound.profile.completeness import END_NAMES, ends
from stackhound.profile.memory import memory_names, touched_memory
from stackhound.profile.requests import requests_by
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


#: Keys of a sample by its thread: one cell a row of the table ``threads``.
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

#: Keys of a sample itself: the names of what it may be, and which of them each sample is, int64 (n_samples,).
PROPERTY_KEYS: Final[dict[str, Callable[[Profile, Event], tuple[Sequence[Cell], Numbers]]]] = {
    "stack": lambda profile, event: (END_NAMES, ends(profile.samples_of(event))),
    "state": lambda profile, event: absences_by(profile, event, "state"),
    "reason": lambda profile, event: absences_by(profile, event, "reason"),
    "waker": wakers,
    "device": lambda profile, event: requests_by(profile, event, "device"),
    "operation": lambda profile, event: requests_by(profile, event, "operation"),
    "charged": lambda profile, event: requests_by(profile, event, "cgroup"),
    "memory": lambda profile, event: (memory_names(profile), touched_memory(profile, event)),
}
SAMPLE_KEYS: Final = (*THREAD_KEYS, *PROPERTY_KEYS)
KEYS: Final = (*SAMPLE_KEYS, *FRAME_KEYS)


def break_down(profile: Profile, event: Event, keys: Sequence[str]) -> list[Row]:
    """Sum the samples of an event by ``keys``, of `KEYS`. The largest ``self``, then ``total``, come first."""
    groups = group_samples(profile, event, [key for key in keys if key in SAMPLE_KEYS])
    if all(key in SAMPLE_KEYS for key in keys):
        rows = _sum_samples(profile, event, groups)
    else:
        rows = _sum_frames(profile, event, keys, groups)
    return sorted(rows, key=lambda row: (-row.self_value, -row.total_value, tuple(map(str, row.keys))))


class Groups(NamedTuple):
    """Equal tuples of cells, and which of them each row has: int64 (n_rows,)."""

    tuples: list[tuple[Cell, ...]]
    of_row: Numbers


def _group(columns: Sequence[Sequence[Cell]]) -> Groups:
    tuples, of_row = number_keys(zip(*columns, strict=True))
    return Groups(tuples, of_row.astype(np.int64))


def group_samples(profile: Profile, event: Event, keys: Sequence[str]) -> Groups:
    """Samples alike in what is asked of their thread, and of themselves: ``keys`` of `SAMPLE_KEYS`."""
    thread = profile.samples_of(event).thread
    threads = _group([THREAD_KEYS[key](profile) for key in keys if key in THREAD_KEYS])
    properties = {key: PROPERTY_KEYS[key](profile, event) for key in keys if key in PROPERTY_KEYS}
    if not properties:
        return Groups(threads.tuples, threads.of_row[thread] if threads.tuples else threads.of_row)
    of_thread = threads.of_row[thread] if threads.tuples else np.zeros(len(thread), np.int64)
    sizes = (max(1, len(threads.tuples)), *(len(names) for names, _ in properties.values()))
    columns = (of_thread, *(of_sample for _, of_sample in properties.values()))
    alike, of_row = np.unique(np.ravel_multi_index(columns, sizes), return_inverse=True)
    tuples = []
    for in_threads, *indexes in np.stack(np.unravel_index(alike, sizes), axis=1).tolist():
        cells = iter(threads.tuples[in_threads] if threads.tuples else ())
        found = {key: names[index] for (key, (names, _)), index in zip(properties.items(), indexes, strict=True)}
        tuples.append(tuple(found[key] if key in found else next(cells) for key in keys))
    return Groups(tuples, of_row)


def _sum_samples(profile: Profile, event: Event, groups: Groups) -> list[Row]:
    values = np.zeros(len(groups.tuples), np.uint64)
    np.add.at(values, groups.of_row, profile.samples_of(event).value)
    return [Row(cells, value, value) for cells, value in zip(groups.tuples, values.tolist(), strict=True) if value]


def _sum_frames(profile: Profile, event: Event, keys: Sequence[str], groups: Groups) -> list[Row]:
    """Sum by the frames, apart for each group of samples: the tree's first level."""
    labels = FirstLevel([""] * len(groups.tuples), groups.of_row.astype(np.uint32)) if groups.tuples else None
    tree = grow_tree(profile, event, labels, lines="line" in keys)
    frames = _group([FRAME_KEYS[key](profile, tree.frames) for key in keys if key in FRAME_KEYS])
    group = np.append(frames.of_row, len(frames.tuples))[_frame_of(tree, len(frames.of_row))]
    return [
        Row(_in_order(keys, groups.tuples[label] if groups.tuples else (), frames.tuples[frame]), own, total)
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


def _in_order(keys: Sequence[str], of_sample: tuple[Cell, ...], of_frame: tuple[Cell, ...]) -> tuple[Cell, ...]:
    sample, frame = iter(of_sample), iter(of_frame)
    return tuple(next(sample) if key in SAMPLE_KEYS else next(frame) for key in keys)
