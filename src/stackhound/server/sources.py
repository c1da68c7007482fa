"""Source files of this machine, where they may be read."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackhound.errors import reason_of
from stackhound.server.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

#: SQLite's amalgamation, among the longest that people compile, has 9 MB.
MAX_BYTES: Final = 32 << 20
#: Of what interpreters and just-in-time compilers run.
SCRIPT_SUFFIX: Final = re.compile(
    r"\.([cm]?[jt]s|[jt]sx|py[iwx]?|rb|java|kt|scala|groovy|cs|fs|vb|php|pl|lua|erl|exs?)"
)
INTERPRETERS: Final = ("erl", "escript", "lua", "node", "perl", "php", "python", "ruby")


class Sources:
    """Reads source files, elsewhere than debug information says where that was asked for."""

    def __init__(self, mapped: Sequence[tuple[str, str]] = ()) -> None:
        """``mapped``: (beginning of a path, what it is here); the first that fits counts."""
        self._mapped = mapped

    def read(self, path: str, md5: bytes | None = None) -> str:
        """The text of a file, which must have this MD5 sum if one is known.

        Raises:
            Refused: it cannot be read, or is not what was compiled.
        """
        contents = _read(self._place(path))
        if md5 is not None and hashlib.md5(contents, usedforsecurity=False).digest() != md5:
            raise Refused(f"{path} has changed since it was compiled")
        return contents.decode(errors="replace")

    def read_script(self, path: str) -> str:
        """The text of a script. The profiled program alone vouches for its name, so it must look like one.

        Raises:
            Refused: it cannot be read, or does not.
        """
        text = self.read(path)
        first_line = text.partition("\n")[0]
        if SCRIPT_SUFFIX.fullmatch(Path(path).suffix) or (
            first_line.startswith("#!") and any(name in first_line for name in INTERPRETERS)
        ):
            return text
        raise Refused(f"{path} is no source file of a language that is compiled while it runs")

    def _place(self, path: str) -> Path:
        for before, here in self._mapped:
            if _is_below(path, before):
                return Path(here + path[len(before) :])
        if not path.startswith("/"):
            raise Refused(f"{path} says no directory: use --source-map")
        return Path(path)


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory if directory.endswith("/") else f"{directory}/")


def _read(path: Path) -> bytes:
    """A regular file of bounded size; never waits for a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Refused(f"{path} is not a regular file")
            contents = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise Refused(f"cannot read {path}: {reason}") from error
    if len(contents) > MAX_BYTES:
        raise Refused(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    return contents
