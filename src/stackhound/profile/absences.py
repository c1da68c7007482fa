"""How threads were off the CPU: what the tables ``off_cpu`` and ``wakers`` say of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackhound.profile.columns import number_keys
from stackhound.profile.sides import said_of

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event

#: Of samples that are no time off the CPU.
NONE: Final = "(on the CPU)"
#: Of threads that nobody woke, or of which that was not recorded.
NOBODY: Final = "(nobody known)"


def absences_by(profile: Profile, event: Event, column: str) -> tuple[list[str], Numbers]:
    """The texts in a column of ``off_cpu``, and which of them each sample of an event has: int64 (n_samples,)."""
    if "off_cpu" not in profile.tables:
        return [NONE], said_of(profile, event, None, 0)
    texts, of_absence = number_keys(profile.texts("off_cpu", column))
    return [*texts, NONE], said_of(profile, event, ("off_cpu", of_absence), len(texts))


def queued_ns_of(profile: Profile, event: Event) -> Numbers:
    """For how long of its absence each sample's thread was ready, but without a CPU: int64 (n_samples,)."""
    known = ("off_cpu", profile.numbers("off_cpu", "queued_ns")) if "off_cpu" in profile.tables else None
    return said_of(profile, event, known, 0)


def wakers(profile: Profile, event: Event) -> tuple[list[str], Numbers]:
    """The threads that woke others, and which of them ended each sample of an event: int64 (n_samples,)."""
    names = [
        f"{comm} ({tid})" if tid else comm
        for comm, tid in zip(profile.texts("threads", "comm"), profile.numbers("threads", "tid").tolist(), strict=True)
    ]
    known = ("wakers", profile.numbers("wakers", "thread")) if "wakers" in profile.tables else None
    return [*names, NOBODY], said_of(profile, event, known, len(names))
