"""COMMAND: forked, held before its exec until the recording has its pid, then let go.

    parent                          child
    fork ─────────────────────────→ becomes the invoking user
    pid into the filter, start      waits for a byte from ``hold``
    one byte into ``hold`` ───────→ exec
    reads ``failure`` ←──────────── closed by the exec, or the errno

If the parent dies first, the child reads the end of ``hold`` and goes without running anything.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING, Final, NoReturn

from stackhound.errors import CommandNotRun

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from stackhound.recording.invoker import Invoker

# As shells have it (POSIX.1-2017, XCU 2.8.2)
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
SIGNAL_BASE: Final = 128

STDOUT: Final = 1
STDERR: Final = 2

_REMEDIES: Final = {
    errno.ENOENT: "check its spelling and PATH",
    errno.EACCES: "make it executable with 'chmod +x', or check the rights of its directory",
    errno.ENOEXEC: "name its interpreter, for example: -- sh SCRIPT",
}


class Command:
    """A child that waits before its exec. Use it as a context manager: a child never released is removed."""

    def __init__(
        self,
        arguments: Sequence[str],
        user: Invoker | None = None,
        stdout_to_stderr: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Fork it.

        Args:
            arguments: the program, looked up in PATH, and its arguments.
            user: whom it runs as; None means as this process.
            stdout_to_stderr: our own stdout is for the profile alone.
            environment: variables that it has beside ours.

        Raises:
            CommandNotRun: no more processes are allowed.
        """
        self.arguments = list(arguments)
        self.environment = dict(environment or {})
        self.released = False
        self._status: int | None = None
        hold, self._hold = os.pipe()
        self._failure, failure = os.pipe()
        try:
            self.pid = os.fork()
        except OSError as error:
            raise self._not_run(error.errno or 0, NOT_EXECUTABLE) from error
        if self.pid == 0:
            os.close(self._hold)  # or it would never read the end
            self._run_child(hold, failure, user, stdout_to_stderr)
        os.close(hold)
        os.close(failure)

    def release(self) -> None:
        """Let it run.

        Raises:
            CommandNotRun: the exec failed, or it was ended before; ``exit_code`` is 127 when there is no such
                program, else 126.
        """
        self.released = True
        try:
            os.write(self._hold, b"!")
        except BrokenPipeError:  # somebody killed it meanwhile: its status tells
            return
        failure = os.read(self._failure, 16)
        if failure:
            number = int(failure)
            raise self._not_run(number, NOT_FOUND if number == errno.ENOENT else NOT_EXECUTABLE)

    def exit_status(self) -> int | None:
        """Its status as shells say it (128 + the signal's number); None while it runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int:
        """Wait for its end, and give its status as `exit_status`."""
        while (status := self._reap(0)) is None:
            pass
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.exit_status() is None:
            os.kill(self.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._hold)  # unless it was released, it now goes by itself
        os.close(self._failure)
        self._reap(os.WNOHANG)

    def _reap(self, flags: int) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, flags)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._status = code if code >= 0 else SIGNAL_BASE - code
        return self._status

    def _not_run(self, number: int, exit_code: int) -> CommandNotRun:
        error = CommandNotRun(f"cannot run {self.arguments[0]!r}: {os.strerror(number)}", _REMEDIES.get(number, ""))
        error.exit_code = exit_code
        return error

    def _run_child(self, hold: int, failure: int, user: Invoker | None, stdout_to_stderr: bool) -> NoReturn:
        try:
            _restore_signals()
            if stdout_to_stderr:
                os.dup2(STDERR, STDOUT)
            environment = dict(os.environ)
            if user is not None:
                user.become()
                environment = user.environment()
            environment.update(self.environment)
            if os.read(hold, 1):
                os.execvpe(self.arguments[0], self.arguments, environment)  # noqa: S606
        except OSError as error:
            os.write(failure, str(error.errno).encode())
        finally:
            os._exit(NOT_EXECUTABLE)  # never back into the parent's code


def _restore_signals() -> None:
    """Undo what Python set for itself; what was ignored when we started (nohup) stays so."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
