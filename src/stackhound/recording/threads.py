"""What every thread of some processes does now, as a profile with one sample a thread."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackhound import _native
from stackhound.errors import KernelUnsupported, NoSuchProcess, UsageError
from stackhound.profile.native_errors import native_errors
from stackhound.recording.options import RecordOptions
from stackhound.recording.recorder import import_meanwhile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackhound.profile import Profile

#: Before it an iterator cannot be limited to a process.
OLDEST_KERNEL: Final = (6, 1)


def dump(
    pids: Sequence[int],
    *,
    python: bool = True,
    user_only: bool = False,
    debug_dirs: Sequence[str | Path] = (),
    log_level: int = 0,
) -> Profile:
    """Look at every thread of some processes, without stopping any.

    Args:
        pids: the processes.
        python: show Python's own frames in programs that run it.
        user_only: leave out the kernel.
        debug_dirs: where separate debug files are, besides /usr/lib/debug.
        log_level: as of `RecordOptions`.

    Returns:
        One sample a thread, of the event ``dump``, each at its own moment, and the table ``thread_states``.
        `stackhound.profile.threads.read_threads` reads it.

    Raises:
        UsageError: no process is named.
        NoSuchProcess, PermissionMissing: a process is not there, or may not be looked at.
        KernelUnsupported: the kernel is older than 6.1.

    Examples:
        >>> profile = stackhound.dump([1234])  # doctest: +SKIP
    """
    if not pids:
        raise UsageError("no process to look at", "name one with -p PID")
    options = RecordOptions(
        pids=tuple(pids),
        python=python,
        user_only=user_only,
        include_self=os.getpid() in pids,
        debug_dirs=tuple(Path(directory) for directory in debug_dirs),
        log_level=log_level,
    )
    options.check_machine()
    _check_kernel()
    for pid in options.pids:
        _check_lives(pid)
    imports = import_meanwhile("stackhound.profile.profile")  # with numpy and Arrow, as long as all that the core does
    with native_errors():
        tables, metadata = _native.dump(options.native())
    imports.join()
    from stackhound.profile import Profile

    return Profile.from_native(tables, metadata)


def _check_kernel() -> None:
    from stackhound.recording.machine import Machine  # which a recording can do without

    machine = Machine()
    if machine.version < OLDEST_KERNEL:
        oldest = ".".join(map(str, OLDEST_KERNEL))
        raise KernelUnsupported(
            f"a dump needs Linux {oldest}, and this is {machine.release}",
            "'stackhound record -p PID -d 1' shows what runs on the CPU",
        )


def _check_lives(pid: int) -> None:
    """A process that has ended has a row in the table of processes until its parent takes note; it has no stack."""
    stat = Path("/proc", str(pid), "stat")
    try:
        fields = stat.read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        raise NoSuchProcess(f"process {pid} has ended", "'ps -e' or 'pgrep NAME' shows what runs") from None
    state, thread_count = fields[0], int(fields[17])
    if state in {b"Z", b"X"} and thread_count == 1:
        parent = int(fields[1])
        raise NoSuchProcess(f"process {pid} has ended", f"its parent, process {parent}, has yet to take note of it")
