"""How often events truly happened, beside how often they were sampled."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event


def exact_total(profile: Profile, event: Event) -> int | None:
    """How often an event happened in all that was recorded, in its unit; None where only samples tell.

    The samples' values add up to it within sampling error, but for what the losses say.
    """
    totals = _totals(profile, event)
    return totals.get(0)


def exact_totals(profile: Profile, event: Event) -> dict[int, int]:
    """The same by process: of those that were sampled, by pid."""
    totals = _totals(profile, event)
    totals.pop(0, None)
    return totals


def _totals(profile: Profile, event: Event) -> dict[int, int]:
    """By pid, 0 for all. Rows of a pid that was used again are added up, as are those of merged profiles."""
    totals: dict[int, int] = {}
    if "event_totals" in profile.tables:
        columns = (profile.numbers("event_totals", name).tolist() for name in ("event", "pid", "count"))
        for of_event, pid, count in zip(*columns, strict=True):
            if of_event == event.id:
                totals[pid] = totals.get(pid, 0) + count
    return totals
