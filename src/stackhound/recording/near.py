"""What somebody may have meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def near_matches(name: str, names: Iterable[str]) -> str:
    """A remedy for an event that is not there: those that are called nearly so."""
    from difflib import get_close_matches  # only a failing command pays for it

    lower = {known.lower(): known for known in names}
    near = [lower[match] for match in get_close_matches(name.lower(), lower)]
    return f"did you mean {', '.join(near)}?" if near else "'stackhound list' shows what there is"
