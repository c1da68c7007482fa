"""The ``.hound`` file.

    x.hound                    a ZIP whose members are stored, not compressed
    ├── meta.json              `stackhound.profile.metadata`, with ``format_version``
    ├── samples.parquet        one a table of `stackhound.profile.schema`, compressed in itself (zstd)
    ├── stacks.parquet
    ├── …
    └── anything else          kept as it is when the profile is saved again

``unzip x.hound`` gives tables that polars, DuckDB, Spark and ClickHouse read with nothing of ours.

A file may come from anywhere, so reading it is bounded: no compressed member, members that together are no longer
than the file, and every id checked before anything follows it.
"""

from __future__ import annotations

import json
import os
import stat
import zipfile
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from arro3.core import Table

from stackhound import _native
from stackhound.errors import DamagedProfile, NewerProfile, NotAProfile, ProfileError, StackhoundError, reason_of
from stackhound.profile.check import require_consistent
from stackhound.profile.escape import printable
from stackhound.profile.output import open_output
from stackhound.profile.profile import Profile
from stackhound.profile.schema import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

METADATA = "meta.json"
SUFFIX = ".parquet"
SIGNATURE = b"PK\x03\x04"
#: A real one is some kilobytes; parsed JSON takes up to 30 times its text.
MAX_METADATA_BYTES = 8 << 20
MAX_MEMBERS = 1_000
#: Only the owner may read it, as with perf's files: it holds the command lines of others.
FILE_MODE = 0o600
#: Decoded tables may take this, and so much more for each byte of the file (`crates/core/src/parquet/read.rs`: why).
FREE_DECODED_BYTES = 256 << 20
MAX_RATIO = 64
#: ZIP keeps no time zone and nothing before 1980. A fixed date: the same profile is the same bytes.
MEMBER_DATE = (1980, 1, 1, 0, 0, 0)
#: What `zipfile` raises at damaged and hostile files, in its documentation and in its source.
ZIP_ERRORS = (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError)


def save(profile: Profile, path: str | Path, *, keep_old: bool = False, owner: tuple[int, int] | None = None) -> None:
    """Write a profile into a file, which then is whole and survives a power cut, or is not there.

    Args:
        profile: what to write.
        path: where; `stackhound.profile.output.open_output` says how.
        keep_old: keep what is there as ``PATH.old``.
        owner: (uid, gid) that the file is given to.

    Raises:
        OutputError: it cannot be written.
    """
    with open_output(path, keep_old=keep_old, mode=FILE_MODE, owner=owner) as out:
        write(profile, out)


def write(profile: Profile, out: BinaryIO) -> None:
    """Write a profile as the bytes of a ``.hound`` file. ``out`` need not be seekable."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in chain(encode_members(profile), profile.attachments.items()):
            archive.writestr(_member(name), data)


def encode_members(profile: Profile) -> Iterator[tuple[str, bytes]]:
    """The metadata and the tables as files: (name, contents)."""
    yield METADATA, json.dumps({**profile.metadata, "format_version": FORMAT_VERSION}, indent=1).encode()
    for name, table in profile.tables.items():
        yield name + SUFFIX, _native.write_parquet(table, sorted_samples=name == "samples")


def load(path: str | Path) -> Profile:
    """Read a ``.hound`` file.

    Raises:
        NotAProfile: it is something else.
        DamagedProfile: it is truncated or corrupted.
        NewerProfile: a later version of stackhound wrote it.
        ProfileError: it cannot be read at all.
    """
    with _open_file(Path(path)) as file:
        try:
            return read(file)
        except StackhoundError as error:
            raise type(error)(f"cannot load {printable(str(path))}: {error.message}", error.remedy) from error


def read(file: BinaryIO) -> Profile:
    """Read the bytes of a ``.hound`` file from something seekable. Raises what `load` raises."""
    if file.read(len(SIGNATURE)) != SIGNATURE:
        raise NotAProfile("it is not a .hound file", "record one with: stackhound record")
    try:
        with zipfile.ZipFile(file) as archive:
            members = _read_members(archive, file.seek(0, os.SEEK_END))
    except ZIP_ERRORS as error:
        raise DamagedProfile(f"it is damaged ({printable(str(error), 200)})", "record again") from error
    metadata = _parse_metadata(members)
    tables = _parse_tables({name: data for name, data in members.items() if _is_table(name)})
    require_consistent(tables)
    attachments = {name: data for name, data in members.items() if name != METADATA and not _is_table(name)}
    return Profile(tables, metadata, attachments)


def _open_file(path: Path) -> BinaryIO:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe must not wait
    except OSError as error:
        raise ProfileError(f"cannot read {printable(str(path))}: {reason_of(error)}", "check its name") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotAProfile(f"cannot load {printable(str(path))}: it is not a regular file", "name a .hound file")
    return os.fdopen(descriptor, "rb")


def _read_members(archive: zipfile.ZipFile, file_bytes: int) -> dict[str, bytes]:
    """All members by name, their checksums checked."""
    members = archive.infolist()
    if any(one.compress_type != zipfile.ZIP_STORED or one.file_size != one.compress_size for one in members):
        raise DamagedProfile("it has compressed members", "if it is a .hound, unzip it, and zip it with: zip -0")
    if len(members) > MAX_MEMBERS or sum(one.file_size for one in members) > file_bytes:
        raise DamagedProfile("its members are larger than the file, or too many", "do not trust it")
    for one in members:
        if one.filename.startswith("/") or ".." in PurePosixPath(one.filename).parts:
            raise DamagedProfile("it has a member outside of its own directory", "do not trust it")
    found = {one.filename: archive.read(one) for one in members if not one.is_dir()}
    if len(found) < sum(not one.is_dir() for one in members):
        raise DamagedProfile("it has two members of one name", "do not trust it")
    return found


def _parse_metadata(members: Mapping[str, bytes]) -> dict[str, Any]:
    if METADATA not in members:
        raise NotAProfile(f"it is a ZIP file without {METADATA}", "record one with: stackhound record")
    text = members[METADATA]
    try:
        found = json.loads(text) if len(text) <= MAX_METADATA_BYTES else None
    except (ValueError, RecursionError) as error:
        raise DamagedProfile(f"its {METADATA} is no JSON", "record again") from error
    version = found.get("format_version") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(version, int):
        raise DamagedProfile(f"its {METADATA} names no format version", "record again")
    if version > FORMAT_VERSION:
        remedy = "install a newer stackhound: pip install -U stackhound"
        raise NewerProfile(f"it has format {version}, and this version reads up to {FORMAT_VERSION}", remedy)
    return found


def _is_table(member: str) -> bool:
    return member.endswith(SUFFIX) and "/" not in member


def _parse_tables(members: Mapping[str, bytes]) -> dict[str, Table]:
    """The tables by name. Each is bounded by `_native.read_parquet`, all together here."""
    limit = FREE_DECODED_BYTES + MAX_RATIO * sum(map(len, members.values()))
    tables: dict[str, Table] = {}
    for member, data in members.items():
        tables[member.removesuffix(SUFFIX)] = _parse_table(member, data)
        if sum(table.nbytes for table in tables.values()) > limit:
            raise DamagedProfile("its tables are too large for their file", "do not trust it")
    return tables


def _parse_table(member: str, data: bytes) -> Table:
    try:
        return Table.from_arrow(_native.read_parquet(data))
    except _native.NativeError as error:
        detail = printable(str(error.args[1]), 200)
        raise DamagedProfile(f"its {printable(member, 100)} cannot be read ({detail})", "record again") from error


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, MEMBER_DATE)
    member.external_attr = (stat.S_IFREG | 0o644) << 16
    return member
