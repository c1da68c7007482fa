"""The stacks of one event with their weights, and their texts: work by unique stack, never by sample."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from stackhound.profile.columns import number_keys
from stackhound.profile.paths import read_paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stackhound.profile import Event, Frames, Profile
    from stackhound.profile.columns import Numbers


@dataclass(frozen=True, eq=False)
class StackWeights:
    """One row a (comm, stack) that was sampled.

    Attributes:
        event: what was sampled.
        comms: the distinct comms of threads, unescaped.
        comm: index into ``comms``.
        stack: row of the table ``stacks``.
        count: uint64, observations.
        value: uint64, in the event's unit.
    """

    event: Event
    comms: list[str]
    comm: Numbers
    stack: Numbers
    count: Numbers
    value: Numbers

    @property
    def folded_value(self) -> Numbers:
        """Samples for ``cpu``, so that the numbers are those of other samplers; else the event's own value."""
        return self.count if self.event.name == "cpu" else self.value


def weigh_stacks(profile: Profile, event: Event) -> StackWeights:
    """Sum the samples of ``event`` by the comm of the thread and the stack."""
    samples = profile.samples_of(event)
    comms, comm_of_thread = number_keys(profile.texts("threads", "comm"))
    n_stacks = profile.table("stacks").num_rows
    key = comm_of_thread.astype(np.uint64)[samples.thread] * np.uint64(n_stacks) + samples.stack
    order = np.argsort(key, kind="stable")
    unique, starts = np.unique(key[order], return_index=True)
    count, value = (
        np.add.reduceat(column[order], starts) if len(starts) else column for column in (samples.count, samples.value)
    )
    comm, stack = np.divmod(unique, np.uint64(n_stacks))
    return StackWeights(event, comms, comm, stack, count, value)


def location_texts(frames: Frames, texts: list[str]) -> list[str]:
    """The text of each location, given the text of each frame; frames in the order of ``frames``."""
    shown = frames.frames.tolist()
    bounds = pairwise(frames.offsets.tolist())
    return ["".join([texts[frame] for frame in shown[start:end]]) for start, end in bounds]


def join_paths(profile: Profile, stacks: Numbers, texts: list[str], *, leaf_first: bool = False) -> Iterator[str]:
    """The text of each of ``stacks``, given the text of each location."""
    offsets, locations = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    step = -1 if leaf_first else 1
    for start, end in zip(offsets[stacks].tolist(), offsets[stacks + 1].tolist(), strict=True):
        yield "".join([texts[location] for location in locations[start:end][::step].tolist()])


def sum_by_text(texts: Iterable[str], weights: Iterable[int]) -> dict[str, int]:
    """Add up the weights of equal texts: several addresses of one function read the same."""
    totals: dict[str, int] = {}
    for text, weight in zip(texts, weights, strict=True):
        totals[text] = totals.get(text, 0) + weight
    return totals
