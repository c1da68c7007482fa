"""A profile in another format: the one place of this package that looks up, at `stackhound.formats`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stackhound.profile.output import open_output

if TYPE_CHECKING:
    from stackhound.profile.profile import Profile


def export(profile: Profile, path: str | Path, format_name: str | None, event: str | None) -> None:
    """Write a profile into a file.

    Args:
        profile: what to write.
        path: where. Its suffix says the format when ``format_name`` does not.
        format_name: what ``stackhound export --format`` takes.
        event: which event, for a format that shows one; None means the first that was asked for.

    Raises:
        EmptyProfile: there is no sample to draw.
        OutputError: the file cannot be written.
        UsageError: no such format or event.
    """
    from stackhound import formats

    chosen = formats.by_name(format_name) if format_name else formats.by_path(path)
    if event is None and chosen.single_event and profile.events:
        event = profile.events[0].name
    if chosen.directory:
        chosen.write_directory(profile, Path(path))
        return
    with open_output(path, mode=chosen.file_mode) as out:
        chosen.write(profile, out, event=event)
