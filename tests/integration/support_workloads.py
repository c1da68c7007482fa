"""Small programs whose truth is known: compiled when first asked for, started, told to go, and ended."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import IO, TYPE_CHECKING, Final, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Self

SOURCES: Final = Path(__file__).parents[1] / "fixtures" / "workloads"
BUILT: Final = Path(__file__).parents[2] / "target" / "workloads"

#: A wait that takes as long has gone wrong, and its test fails. No test expects to take any part of it.
HANG_S: Final = 60
#: A workload whose test has gone wrong ends by then.
FORGOTTEN_S: Final = 3 * HANG_S

#: Milliseconds, for workloads that end with their test.
FOR_EVER: Final = "600000"

WITH_FRAME_POINTERS: Final = (
    *("-O2", "-g"),
    *("-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-optimize-sibling-calls"),
    *("-fno-shrink-wrap", "-fno-ipa-icf"),  # else frames are missing, or functions merged
)
COMPILERS: Final = {
    ".c": ("gcc", *WITH_FRAME_POINTERS),
    ".cpp": ("g++", *WITH_FRAME_POINTERS),
    ".rs": ("rustc", "-O", "-g", "-C", "force-frame-pointers=yes"),
}
#: No library and no loader, always at the same addresses.
FREESTANDING: Final = ("-ffreestanding", "-static", "-nostdlib", "-no-pie", "-fno-stack-protector")
LIBRARY: Final = ("-shared", "-fPIC")


def build(source: str, *flags: str) -> Path:
    """The program made of a file in ``tests/fixtures/workloads``, named like it."""
    path = SOURCES / source
    command = [*COMPILERS[path.suffix], *flags]
    texts = b"".join(one.read_bytes() for one in (path, *sorted(SOURCES.glob("*.h"))))
    key = hashlib.sha256(texts + repr(command).encode()).hexdigest()[:16]
    program = BUILT / key / path.stem
    if not program.exists():
        require(command[0])
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as directory:  # another pytest may do the same now
            fresh = Path(directory, path.stem)
            subprocess.run([command[0], str(path), *command[1:], "-o", str(fresh)], check=True)
            fresh.rename(program)
    return program


def require(tool: str) -> str:
    """The path of a tool; the test is skipped where there is none."""
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"needs {tool}")
    return found


def line_of(source: str, mark: str) -> int:
    """The number of the line that is marked ``/* line: MARK */``."""
    lines = (SOURCES / source).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if f"/* line: {mark} */" in line)
    return number


class Program:
    """A running workload: ready, and waiting for `go`."""

    def __init__(self, *command: str | Path, cwd: Path | None = None, pass_fds: tuple[int, ...] = ()) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, cwd=cwd, pass_fds=pass_fds, start_new_session=True
        )
        self._watchdog = Timer(FORGOTTEN_S, self._kill)
        self._watchdog.start()
        self.preface = self._read_until_ready()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def _input(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdin)

    @property
    def _output(self) -> IO[bytes]:
        return cast("IO[bytes]", self._process.stdout)

    def go(self) -> None:
        """Let it work."""
        self._input.write(b"\n")
        self._input.flush()

    def wait_until_ready(self) -> dict[str, int]:
        """Wait until it waits for another `go`; gives back what it says of itself before that."""
        return _numbers(self._read_until_ready())

    def truth(self) -> dict[str, int]:
        """What it says of itself at its end."""
        text = self._output.read().decode()
        assert self._process.wait() == 0, "the workload failed"
        return _numbers(text.splitlines())

    def end(self) -> None:
        """End it and its children, now."""
        self._kill()
        self._process.wait()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _read_until_ready(self) -> list[str]:
        lines: list[str] = []
        while (line := self._output.readline()) != b"ready\n":
            if not line:
                self.close()
                pytest.fail(f"the workload ended with status {self._process.returncode} before it was ready")
            lines.append(line.decode())
        return lines

    def close(self) -> None:
        """End it, and leave nothing behind."""
        self.end()
        self._watchdog.cancel()
        self._output.close()
        with suppress(BrokenPipeError):  # it ended with our "go" unread
            self._input.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class ChildOfShell(Program):
    """A shell that is ready, and after the first `go` starts the workload, which is ready and waits for the second."""

    def __init__(self, *command: str | Path) -> None:
        super().__init__("sh", "-c", 'echo ready; read -r go; "$@"; exit $?', "sh", *command)


def _numbers(lines: Iterable[str]) -> dict[str, int]:
    return {name: int(value) for name, value in map(str.split, lines)}


def cpu_s(pid: int) -> float:
    """CPU time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_count() -> int:
    """CPUs that are online."""
    return os.sysconf("SC_NPROCESSORS_ONLN")
