"""Sampled allocations: what the tables ``heap`` and ``heap_totals`` say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stackhound.profile.brief_stacks import BriefStack, BriefStacks
from stackhound.profile.sides import said_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event

HEAP: Final = "heap"
#: Columns of the table ``heap`` that are estimates, as pprof calls them.
PPROF_VALUES: Final = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")


class Memory(NamedTuple):
    """What was allocated, and of that what was still in use when its program or the recording ended. Estimates."""

    alloc_objects: int
    alloc_bytes: int
    inuse_objects: int
    inuse_bytes: int
    unknown_bytes: int  # of which nobody knows whether they are in use


class Site(NamedTuple):
    """What was allocated with one stack, in a few words."""

    stack: BriefStack
    memory: Memory


def tells_memory(profile: Profile, event: Event) -> bool:
    """Whether samples of an event are allocations."""
    return event.name == HEAP and HEAP in profile.tables


def pprof_values(profile: Profile, event: Event) -> list[Numbers]:
    """`PPROF_VALUES` of each sample of an event: int64 (n_samples,), each."""
    return [said_of(profile, event, (HEAP, profile.numbers(HEAP, name)), 0) for name in PPROF_VALUES]


def fates(profile: Profile, event: Event, fate: str) -> Numbers:
    """Whether each sample of an event is an allocation of this fate: bool (n_samples,)."""
    are = np.array([one == fate for one in profile.texts(HEAP, "fate")], np.int64)
    found: Numbers = said_of(profile, event, (HEAP, are), 0).astype(bool)
    return found


def memory_of(profile: Profile, event: Event) -> Memory:
    """Of all samples of an event."""
    values = pprof_values(profile, event)
    unknown = values[1][fates(profile, event, "unknown")]
    return Memory(*(int(column.sum()) for column in (*values, unknown)))


def sites_of(profile: Profile, event: Event) -> list[Site]:
    """By stack, those with the most bytes in use first, then those with the most of all."""
    stacks, of_sample = np.unique(profile.samples_of(event).stack, return_inverse=True)
    values = pprof_values(profile, event)
    columns = [*values, np.where(fates(profile, event, "unknown"), values[1], 0)]
    sums = [np.bincount(of_sample, column, len(stacks)).astype(np.int64).tolist() for column in columns]
    briefs = BriefStacks(profile)
    sites = _merge((briefs.brief(stack), Memory(*row)) for stack, *row in zip(stacks.tolist(), *sums, strict=True))
    return sorted(sites, key=lambda site: (-site.memory.inuse_bytes, -site.memory.alloc_bytes, site.stack.frames))


def _merge(rows: Iterable[tuple[BriefStack, Memory]]) -> list[Site]:
    """Stacks that read the same are one."""
    found: dict[BriefStack, Memory] = {}
    for stack, memory in rows:
        found[stack] = _add(found[stack], memory) if stack in found else memory
    return [Site(*row) for row in found.items()]


def _add(one: Memory, other: Memory) -> Memory:
    return Memory(*map(sum, zip(one, other, strict=True)))
