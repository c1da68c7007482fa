"""How threads were off the CPU: what the table ``off_cpu`` says of samples."""

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


def absences_by(profile: Profile, event: Event, column: str) -> tuple[list[str], Numbers]:
    """The texts in a column of ``off_cpu``, and which of them each sample of an event has: int64 (n_samples,)."""
    ids = profile.numbers("samples", "id")
    is_of_event: Numbers = profile.numbers("samples", "event") == event.id
    if "off_cpu" not in profile.tables:
        return [NONE], np.zeros(int(is_of_event.sum()), np.int64)
    texts, of_absence = number_keys(profile.texts("off_cpu", column))
    said = np.full(len(ids), len(texts), np.int64)
    order = np.argsort(ids, kind="stable")
    rows = order[np.searchsorted(ids, profile.numbers("off_cpu", "sample"), sorter=order)]
    said[rows] = of_absence
    return [*texts, NONE], said[is_of_event]
