"""stackhound's own file. `stackhound.profile.hound` draws it and reads it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

from stackhound.profile import hound

if TYPE_CHECKING:
    from stackhound.profile import Profile


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write everything; with ``event`` only its samples, and what they refer to.

    Raises:
        UsageError: no such event.
    """
    hound.write(profile if event is None else profile.filter(events=[event]).compact(), out)
