"""The library in which COMMAND chooses samples of its allocations (``preload/heap.c``): kept where COMMAND can read it,
and named in its LD_PRELOAD.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from stackhound import _native
from stackhound.errors import RecordingError, reason_of
from stackhound.recording.executable import find_executable

#: Root's own cache is nobody else's to read, and under sudo COMMAND is somebody else.
ROOT_CACHE: Final = Path("/var/cache/stackhound")
INTERVAL_VARIABLE: Final = "STACKHOUND_HEAP_INTERVAL"
#: The first program waits so long before it begins: by then its mappings are known, and its stacks complete.
WAIT_VARIABLE: Final = "STACKHOUND_HEAP_WAIT_MS"
WAIT_MS: Final = 50


def install() -> Path:
    """The path of the library, written if need be.

    Raises:
        RecordingError: there is no place for it.
    """
    library = _native.heap_library()
    name = f"stackhound-heap-{hashlib.sha256(library).hexdigest()[:16]}.so"
    directory = ROOT_CACHE if os.geteuid() == 0 else _user_cache()
    path = directory / name
    if not _has(path, library):
        try:
            _write(path, library)
        except OSError as error:
            message = f"the library that follows allocations cannot be written to {directory}: {reason_of(error)}"
            raise RecordingError(message, "make room there, or record with --heap-uprobes") from error
    return path


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "stackhound")


def _has(path: Path, content: bytes) -> bool:
    """Whether this is our file with this content."""
    with suppress(OSError), path.open("rb") as file:
        known = os.fstat(file.fileno())
        return known.st_uid == os.geteuid() and not known.st_mode & stat.S_IWOTH and file.read() == content
    return False


def _write(path: Path, content: bytes) -> None:
    """At once, for whoever reads it meanwhile; readable by all."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(content)
            os.fchmod(file.fileno(), 0o755)
            Path(file.name).rename(path)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise


def environment(library: Path, interval_bytes: int) -> dict[str, str]:
    """What a program has to be started with."""
    others = os.environ.get("LD_PRELOAD", "")
    return {
        "LD_PRELOAD": f"{library}:{others}" if others else str(library),
        INTERVAL_VARIABLE: str(interval_bytes),
        WAIT_VARIABLE: str(WAIT_MS),
    }


def why_out_of_reach(command: str) -> str:
    """Why a program does not load the library; empty when it does, or is not found at all."""
    executable = find_executable(command)
    if executable is None or not executable.is_elf:
        return ""  # the exec says what is wrong
    if executable.mode & (stat.S_ISUID | stat.S_ISGID):
        return "it runs as another user (setuid), and then nothing can be loaded into it"
    if not executable.is_native:
        return "it is a 32-bit program"
    return "" if executable.loader else "it is linked statically"
