"""How threads were off the CPU: what the tables ``off_cpu`` and ``wakers`` say of samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.profile.columns import number_keys

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
        return [NONE], _of_samples(profile, event, None, 0)
    texts, of_absence = number_keys(profile.texts("off_cpu", column))
    return [*texts, NONE], _of_samples(profile, event, ("off_cpu", of_absence), len(texts))


def queued_ns_of(profile: Profile, event: Event) -> Numbers:
    """For how long of its absence each sample's thread was ready, but without a CPU: int64 (n_samples,)."""
    known = ("off_cpu", profile.numbers("off_cpu", "queued_ns")) if "off_cpu" in profile.tables else None
    return _of_samples(profile, event, known, 0)


def wakers(profile: Profile, event: Event) -> tuple[list[str], Numbers]:
    """The threads that woke others, and which of them ended each sample of an event: int64 (n_samples,)."""
    names = [
        f"{comm} ({tid})" if tid else comm
        for comm, tid in zip(profile.texts("threads", "comm"), profile.numbers("threads", "tid").tolist(), strict=True)
    ]
    known = ("wakers", profile.numbers("wakers", "thread")) if "wakers" in profile.tables else None
    return [*names, NOBODY], _of_samples(profile, event, known, len(names))


def _of_samples(profile: Profile, event: Event, side: tuple[str, Numbers] | None, otherwise: int) -> Numbers:
    """What a side table has for each sample of an event. ``side``: the table, and what each of its rows says."""
    ids = profile.numbers("samples", "id")
    said = np.full(len(ids), otherwise, np.int64)
    if side:
        name, values = side
        order = np.argsort(ids, kind="stable")
        said[order[np.searchsorted(ids, profile.numbers(name, "sample"), sorter=order)]] = values
    is_of_event: Numbers = profile.numbers("samples", "event") == event.id
    return said[is_of_event]
