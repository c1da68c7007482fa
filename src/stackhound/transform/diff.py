"""Two profiles of one event as one call tree, with what each of its nodes was worth before and after."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.columns import number_keys, to_list, with_columns
from stackhound.transform.merge import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackhound.profile import CallTree, Profile
    from stackhound.profile.columns import Numbers


class Difference(NamedTuple):
    """What changed between two profiles.

    Attributes:
        profile: the samples of both.
        before, after: trees with the same nodes, and what each was worth.
    """

    profile: Profile
    before: CallTree
    after: CallTree


def diff(before: Sequence[Profile], after: Sequence[Profile], event: str) -> Difference:
    """Compare what some recordings say of an event with what others say of it.

    Functions are the same when their names are, whatever file or build they are in. For the values to be comparable
    they have to be of the same work, done as often on each side.

    Raises:
        UsageError: one side is empty or lacks the event, or the sides cannot be merged.
    """
    if not before or not after:
        raise UsageError("there is nothing to compare", "give a profile or more before, and after")
    merged = _unify_names(merge([_mark(merge(before), event), merge(after)]))
    is_before = merged.numbers("samples", "event") == merged.event(_marked(event)).id
    once = _weigh(merged, event, is_before, 1).tree(event)
    # Weighed twice, and not once and never: what weighs nothing has no nodes.
    twice = _weigh(merged, event, is_before, 2).tree(event)
    own, total = twice.self_value - once.self_value, twice.total_value - once.total_value
    return Difference(
        merged,
        before=replace(once, self_value=own, total_value=total),
        after=replace(once, self_value=once.self_value - own, total_value=once.total_value - total),
    )


def _marked(event: str) -> str:
    return f"{event} before"


def _mark(profile: Profile, event: str) -> Profile:
    """The profile with another name for the event, so that its samples can be told after merging."""
    wanted = profile.event(event).name
    events = profile.table("events")
    names = [_marked(name) if name == wanted else name for name in to_list(events["name"])]
    return profile.derive({"events": with_columns(events, name=names)})


def _unify_names(profile: Profile) -> Profile:
    """The profile with one function for all of one name."""
    numbers = number_keys(profile.texts("functions", "name"))[1]
    first = np.unique(numbers, return_index=True)[1]
    function = first[numbers][profile.numbers("lines", "function")]
    return profile.derive({"lines": with_columns(profile.table("lines"), function=function)})


def _weigh(profile: Profile, event: str, is_before: Numbers, weight: int) -> Profile:
    """All samples under the event's own name, those of before with so many times the value."""
    own = np.where(is_before, profile.event(event).id, profile.numbers("samples", "event"))
    value = profile.numbers("samples", "value") * np.where(is_before, weight, 1).astype(np.uint64)
    samples = with_columns(profile.table("samples"), event=own, value=value)
    return profile.derive({"samples": samples})
