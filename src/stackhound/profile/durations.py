"""How long what samples stand for took."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event


def durations_ns(profile: Profile, event: Event) -> Numbers:
    """Of each sample of an event: uint64 (n_samples,)."""
    found: Numbers = profile.numbers("samples", "duration_ns")[profile.numbers("samples", "event") == event.id]
    return found


def are_sums(profile: Profile) -> bool:
    """Whether samples stand for several times together (``--aggregate``)."""
    return bool(profile.metadata.get("options", {}).get("aggregate"))


def tells_durations(profile: Profile, event: Event) -> bool:
    """Whether samples of an event tell how long each took."""
    return not are_sums(profile) and bool(durations_ns(profile, event).any())
