"""Commands of the user's that are run beside a measurement: each in a session of its own, all of which ends with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from stackhound.errors import RecordingError, UsageError, reason_of
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

#: Of what a failed command said.
SHOWN_CHARACTERS: Final = 200
READ_BYTES: Final = 4096


class Ended(NamedTuple):
    """How a command ended.

    Attributes:
        status: to exit with; negative: the signal; None: its time was over.
        said: the last line of its stderr.
    """

    status: int | None
    said: str


def keep_running(command: Sequence[str], directory: Path, limit_s: float) -> Callable[[float], None]:
    """What runs a command again and again for so many seconds; each time to its end, which is no later than the limit.

    It raises UsageError where the command cannot be started or fails, and RecordingError where it comes to no end.
    """
    shown = repr(command[-1] if command[0] == "sh" else command[0])[:SHOWN_CHARACTERS]

    def run(seconds: float) -> None:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            ended = run_command(command, directory, limit_s)
            if ended.status is None:
                remedy = "give a command that ends, or more time (--most-time, timeout_s)"
                raise RecordingError(f"{shown} still ran after {limit_s:g} s", remedy)
            if ended.status:
                said = f": {ended.said}" if ended.said else ""
                raise UsageError(f"{shown} exited with {ended.status}{said}", "give a command that works")

    return run


def run_command(command: Sequence[str], directory: Path, limit_s: float) -> Ended:
    """Run it to its end, or to the end of its time.

    Raises:
        UsageError: it cannot be started.
    """
    nowhere = subprocess.DEVNULL
    with tempfile.TemporaryFile() as stderr:  # a pipe would be open as long as what it left behind
        try:
            process = subprocess.Popen(
                command, cwd=directory, stdin=nowhere, stdout=nowhere, stderr=stderr, start_new_session=True
            )
        except OSError as error:
            raise UsageError(
                f"cannot run {command[0]!r}: {reason_of(error)}", "check its spelling and rights"
            ) from error
        try:
            is_over = _wait(process.pid, limit_s)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so its number is still its own
            status = process.wait()
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - READ_BYTES))
        lines = stderr.read().decode(errors="replace").strip().splitlines()
    return Ended(status if is_over else None, printable(lines[-1], SHOWN_CHARACTERS) if lines else "")


def _wait(pid: int, limit_s: float) -> bool:
    """Whether a child ends within so many seconds. Asking it again and again would disturb what is measured."""
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], limit_s)[0])
    finally:
        os.close(descriptor)
