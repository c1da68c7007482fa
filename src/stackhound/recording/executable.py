"""The file that is executed for a command, and the libraries that it will have mapped."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackhound.recording.invoker import Invoker

HEAD_BYTES: Final = 64 * 1024  # of a program: ELF header, program headers; or the line that names its interpreter
MAX_INTERPRETERS: Final = 4  # the kernel's own limit (BINPRM_MAX_RECURSION)
HEADER_BYTES: Final = 64  # of an ELF file
SEGMENT_BYTES: Final = 56  # a program header
PT_INTERP: Final = 3
#: glibc's and musl's loaders, asked: ``libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)``.
LISTED: Final = re.compile(r"\s(?:\S.* => )?(/.*) \(0x[0-9a-f]+\)")
LISTING_S: Final = 2


class Executable(NamedTuple):
    """A program.

    Attributes:
        path: its own, not that of a script that it interprets.
        mode: of the file.
        head: its first bytes.
    """

    path: Path
    mode: int
    head: bytes

    @property
    def is_elf(self) -> bool:
        return self.head.startswith(b"\x7fELF") and len(self.head) >= HEADER_BYTES

    @property
    def is_native(self) -> bool:
        """Whether its addresses are as long as ours."""
        return self.head[4:5] == bytes([struct.calcsize("P") // 4])

    @property
    def loader(self) -> str:
        """What loads its libraries; empty when it is linked statically, or not as far as its first bytes tell."""
        if not (self.is_elf and self.is_native):
            return ""
        (offset,) = struct.unpack_from("=Q", self.head, 32)
        size, count = struct.unpack_from("=HH", self.head, 54)
        end = min(offset + size * count, len(self.head) - SEGMENT_BYTES + 1)
        for place in range(offset, end, max(size, SEGMENT_BYTES)):
            kind, _, begin, _, _, length = struct.unpack_from("=IIQQQQ", self.head, place)
            if kind == PT_INTERP:
                return os.fsdecode(self.head[begin : begin + length].rstrip(b"\0"))
        return ""

    def files(self, environment: Mapping[str, str], user: Invoker | None) -> tuple[Path, ...]:
        """What it will have mapped: itself and its libraries, as its loader lists them.

        The loader is run as the program will be: by this user, in this environment. What it does not list, or the
        program loads later, is found when it is mapped.
        """
        if not self.loader:
            return (self.path,)
        try:
            listing = subprocess.run(
                (self.loader, "--list", self.path),
                env=environment,
                preexec_fn=user.become if user else None,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LISTING_S,
                check=False,
            ).stdout
        except (OSError, subprocess.SubprocessError):
            return (self.path,)
        lines = map(LISTED.fullmatch, os.fsdecode(listing).splitlines())
        return (self.path, *(Path(line[1]) for line in lines if line))


def find_executable(command: str) -> Executable | None:
    """What is executed for it; None when there is none, or it cannot be read: the exec says what is wrong."""
    found = shutil.which(command)
    path = Path(found) if found else None
    for _ in range(MAX_INTERPRETERS):
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                executable = Executable(path, os.fstat(file.fileno()).st_mode, file.read(HEAD_BYTES))
        except OSError:
            return None
        if not executable.head.startswith(b"#!"):
            return executable
        words = executable.head[2 : executable.head.find(b"\n")].split()
        path = Path(os.fsdecode(words[0])) if words else None
    return None
