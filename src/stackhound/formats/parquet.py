"""A directory of the profile's own tables as Parquet files, for polars, DuckDB, Spark and ClickHouse.

    DIR/meta.json             `stackhound.profile.metadata`
    DIR/samples.parquet       one file a table of `stackhound.profile.schema`, ids as drawn there
    DIR/stacks.parquet
    DIR/…

It is what ``unzip`` makes of a ``.hound`` file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackhound.errors import OutputError, reason_of
from stackhound.profile.hound import encode_members
from stackhound.profile.output import open_output

if TYPE_CHECKING:
    from pathlib import Path

    from stackhound.profile import Profile


def write_directory(profile: Profile, path: Path) -> None:
    """Write every table and the metadata into the directory ``path``; files of the same names are replaced.

    Raises:
        OutputError: the directory cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the directory {str(path)!r}: {reason_of(error)}"
        raise OutputError(message, "choose another one") from error
    for name, data in encode_members(profile):
        with open_output(path / name) as out:
            out.write(data)
