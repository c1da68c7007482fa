"""The files that frames are in: what the front-end calls libraries, and names when it asks a symbol server."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stackhound.profile.columns import number_keys
from stackhound.profile.escape import printable
from stackhound.profile.metadata import read_text

if TYPE_CHECKING:
    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

#: Kinds of objects whose frames have addresses in a file, or in what stands for one: what a process made has its own.
FILE_KINDS: Final = frozenset({"elf", "kernel", "module", "vdso", "python", "jit"})
#: uname's names, where the front-end's differ.
ARCHITECTURES: Final = {"aarch64": "arm64"}
#: Anybody may have written the file that the profile was read from.
HEXADECIMAL: Final = re.compile(r"([0-9a-f]{2})+")
GUID_BYTES: Final = 16
NO_LIBRARY: Final = -1


@dataclass(frozen=True, eq=False)
class Libraries:
    """The libraries, and which one each object is.

    Attributes:
        rows: as the format has them.
        of_object: int64 (n_objects,): index into ``rows``; `NO_LIBRARY` for what is in none, such as programs of eBPF.
        objects: the objects behind each of ``rows``: several for a Python file, which has one a code object.
    """

    rows: list[dict[str, Any]]
    of_object: Numbers
    objects: list[list[int]]


def build_libraries(profile: Profile) -> Libraries:
    """One library a file, whatever number of objects it has."""
    kinds, paths, build_ids = (profile.texts("objects", name) for name in ("kind", "path", "build_id"))
    objects = [row for row, kind in enumerate(kinds) if kind in FILE_KINDS]
    keys, ids = number_keys(
        (kinds[row], paths[row], "" if kinds[row] == "python" else build_ids[row]) for row in objects
    )
    of_object = np.full(len(kinds), NO_LIBRARY, np.int64)
    of_object[objects] = ids
    members: list[list[int]] = [[] for _ in keys]
    for row, library in zip(objects, ids.tolist(), strict=True):
        members[library].append(row)
    architecture = read_text(profile.metadata, "host", "architecture")
    return Libraries([_row(*key, architecture) for key in keys], of_object, members)


def breakpad_id(kind: str, path: str, build_id: str) -> str:
    """What tells a file from others of its name: 32 hexadecimal digits of a GUID, and an age of 0.

    The GUID is the beginning of the build-id with its first three numbers read as little-endian ones, as Breakpad has
    it; where there is no build-id, a hash of where the file is.
    """
    if not HEXADECIMAL.fullmatch(build_id):
        return hashlib.blake2s(f"{kind}:{path}".encode(), digest_size=GUID_BYTES).hexdigest().upper() + "0"
    guid = bytes.fromhex(build_id)[:GUID_BYTES].ljust(GUID_BYTES, b"\0")
    return (guid[3::-1] + guid[5:3:-1] + guid[7:5:-1] + guid[8:]).hex().upper() + "0"


def base_name(path: str) -> str:
    """The last part of a path; a name in brackets as it is."""
    return path if path.startswith("[") else path.rstrip("/").rpartition("/")[2] or "[unknown]"


def _row(kind: str, path: str, build_id: str, architecture: str) -> dict[str, Any]:
    name = printable(base_name(path))
    return {
        "name": name,
        "path": printable(path),
        "debugName": name,
        "debugPath": printable(path),
        "breakpadId": breakpad_id(kind, path, build_id),
        "codeId": build_id if HEXADECIMAL.fullmatch(build_id) else None,
        "arch": ARCHITECTURES.get(architecture, architecture),
    }
