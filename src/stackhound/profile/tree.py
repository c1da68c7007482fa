"""The call tree: samples merged by the path of functions from the root."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from arro3.core import Table

from stackhound import _native
from stackhound.profile.columns import Numbers, number_keys, to_arrow
from stackhound.profile.native_errors import native_errors
from stackhound.profile.paths import reverse_stacks

if TYPE_CHECKING:
    from stackhound.profile.frames import Frames
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event

Root = Literal["process", "thread"] | None


@dataclass(frozen=True, eq=False)
class CallTree:
    """A tree of functions, one node a row. Row 0 is the root; parents come before their children.

    Attributes:
        parent: uint32 (n_nodes,); 0 for row 0.
        frame: uint32 (n_nodes,): ids into ``frames``. For row 0 it means nothing; at depth 1 it is
            an id into ``labels`` when there are labels.
        depth: uint32 (n_nodes,); 0 for row 0.
        self_value, total_value: uint64 (n_nodes,), in the event's unit. ``total_value[0]`` is the sum over all samples.
        labels: the first level when the tree was asked for with a ``root``; otherwise None.
        frames: what the frames are called.
        event: what was sampled.
    """

    parent: Numbers
    frame: Numbers
    depth: Numbers
    self_value: Numbers
    total_value: Numbers
    labels: list[str] | None
    frames: Frames
    event: Event

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def is_label(self) -> Numbers:
        """Bool (n_nodes,): the nodes whose ``frame`` is an id into ``labels``."""
        return (self.depth == 1) if self.labels is not None else np.zeros(len(self), bool)

    @cached_property
    def percent(self) -> Numbers:
        """Float (n_nodes,): each node's share of the whole tree; 0 when nothing was sampled."""
        shares: Numbers = self.total_value * (100.0 / max(1, int(self.total_value[0])))
        return shares

    @cached_property
    def levels(self) -> list[Numbers]:
        """The nodes of each depth, from the root on: int64 (n_nodes_of_depth,), parents before their children."""
        order = np.argsort(self.depth, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.depth))[:-1])

    def name(self, node: int) -> str:
        """What the node is called: ``all`` for the root, a label, or a function."""
        if node == 0:
            return "all"
        if self.labels is not None and self.depth[node] == 1:
            return self.labels[int(self.frame[node])]
        return self.frames.name[int(self.frame[node])]

    def children(self, node: int) -> Numbers:
        """The children of a node, the largest first: int64 (n_children,)."""
        order, starts = self._by_parent
        return order[starts[node] : starts[node + 1]]

    @cached_property
    def _by_parent(self) -> tuple[Numbers, Numbers]:
        largest_first = np.iinfo(np.uint64).max - self.total_value[1:]
        order = np.lexsort((largest_first, self.parent[1:])) + 1
        counts = np.bincount(self.parent[1:], minlength=len(self))
        return order, np.concatenate(([0], np.cumsum(counts)))


class FirstLevel(NamedTuple):
    """Labels for the first level of a tree, and the one of each sample of its event: uint32 (n_samples,)."""

    labels: list[str]
    of_sample: Numbers


def build_tree(profile: Profile, event: str | None, root: Root, inverted: bool, lines: bool) -> CallTree:
    """See `Profile.tree`."""
    sampled = profile.event(event)
    return grow_tree(profile, sampled, _first_level(profile, sampled, root), inverted, lines)


def grow_tree(
    profile: Profile, event: Event, first: FirstLevel | None, inverted: bool = False, lines: bool = False
) -> CallTree:
    """See `Profile.tree`; ``first`` is its ``root``, with labels of any kind."""
    samples = profile.samples_of(event)
    frames = profile.frames_with_lines if lines else profile.frames
    parent, location = profile.numbers("stacks", "parent"), profile.numbers("stacks", "location")
    stack = samples.stack
    if inverted:
        parent, location, stack = reverse_stacks(parent, location, stack)
        frames = frames.reversed()
    label_ids = first.of_sample if first else None
    columns = _merge(label_ids, stack, samples.value, parent, location, frames)
    return CallTree(*columns, labels=first.labels if first else None, frames=frames, event=event)


class _Columns(NamedTuple):
    parent: Numbers
    frame: Numbers
    depth: Numbers
    self_value: Numbers
    total_value: Numbers


def _merge(
    root: Numbers | None, stack: Numbers, value: Numbers, parent: Numbers, location: Numbers, frames: Frames
) -> _Columns:
    with native_errors():
        stream = _native.call_tree(
            root=None if root is None else to_arrow(root),
            stack=to_arrow(stack),
            value=to_arrow(value),
            stack_parent=to_arrow(parent),
            stack_location=to_arrow(location),
            frame_offsets=to_arrow(frames.offsets),
            frames=to_arrow(frames.frames),
        )
    table = Table.from_arrow(stream)
    return _Columns(*(table[name].to_numpy() for name in ("parent", "frame", "depth", "self", "total")))


def _first_level(profile: Profile, event: Event, root: Root) -> FirstLevel | None:
    if root is None:
        return None
    comms = profile.texts("processes" if root == "process" else "threads", "comm")
    labels, of_row = number_keys(comms)
    of_thread = of_row[profile.numbers("threads", "process")] if root == "process" else of_row
    return FirstLevel(labels, of_thread[profile.samples_of(event).thread])
