"""A directory of the profile's own tables as Parquet files, for polars, DuckDB, Spark and ClickHouse.

    DIR/meta.json             `stackhound.profile.metadata`
    DIR/samples.parquet       one file a table of `stackhound.profile.schema`, ids as drawn there
    DIR/stacks.parquet
    DIR/…

It is what ``unzip`` makes of a ``.hound`` file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stackhound import _native
from stackhound.errors import OutputError
from stackhound.profile.output import open_output
from stackhound.profile.schema import FORMAT_VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from stackhound.profile import Profile

NAME = "parquet"
SUFFIXES = ()
BINARY = True


def write_directory(profile: Profile, path: Path) -> None:
    """Write every table and the metadata into the directory ``path``; files of the same names are replaced.

    Raises:
        OutputError: the directory cannot be made or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OutputError(f"cannot make the directory {str(path)!r}: {reason}", "choose another one") from error
    with open_output(path / "meta.json") as out:
        out.write(json.dumps({**profile.metadata, "format_version": FORMAT_VERSION}, indent=1).encode())
    for name, table in profile.tables.items():
        with open_output(path / f"{name}.parquet") as out:
            out.write(_native.write_parquet(table, sorted_samples=name == "samples"))
