"""What keeps the machine busy while something else is measured."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import tempfile
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import BENCHES, compile_program
from harness.machine import cpus
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

DEPTH_FRAMES = 24


@dataclass(frozen=True)
class Progress:
    """How far workers are: pieces of work done, and the CPU time they took."""

    pieces: int
    cpu_ns: int

    def since(self, before: Progress) -> Progress:
        return Progress(self.pieces - before.pieces, self.cpu_ns - before.cpu_ns)

    @property
    def rate(self) -> float:
        """Pieces in a second of CPU time. Falls by what interrupts take, not by what other processes take."""
        return self.pieces / self.cpu_ns * 1e9


class Workers:
    """Processes that work, each on a CPU of its own, and say in a file how far they are.

    Args:
        directory: for the files.
        command: a process's command line, given its file.
        on: CPUs.
    """

    def __init__(self, directory: Path, command: Callable[[Path], Sequence[str | Path]], on: Sequence[int]) -> None:
        self._files = [directory / f"worker-{cpu}" for cpu in on]
        self.processes = [start_pinned(command(path), cpu) for cpu, path in zip(on, self._files, strict=True)]

    def have_begun(self) -> bool:
        """Whether each has done something; the file of one that has not is not there, or empty."""
        return all(path.exists() and path.stat().st_size and self._read(path).cpu_ns for path in self._files)

    def progress(self) -> Progress:
        """Of all of them together."""
        each = [self._read(path) for path in self._files]
        return Progress(sum(one.pieces for one in each), sum(one.cpu_ns for one in each))

    @staticmethod
    def _read(path: Path) -> Progress:
        return Progress(*struct.unpack("=QQ", path.read_bytes()))


def workers(frames: int = DEPTH_FRAMES) -> AbstractContextManager[Workers]:
    """On each CPU, at the end of a stack of so many frames (programs/deep.c)."""
    program = compile_program("deep.c")
    return working(lambda path: (program, str(frames), path), cpus())


@contextmanager
def working(command: Callable[[Path], Sequence[str | Path]], on: Sequence[int]) -> Iterator[Workers]:
    with tempfile.TemporaryDirectory() as directory:
        started = Workers(Path(directory), command, on)
        try:
            wait_until("the workers' first piece of work", started.have_begun)
            yield started
        finally:
            end(started.processes)


def real_mix() -> AbstractContextManager[list[subprocess.Popen[bytes]]]:
    """C++ with inlined functions, Python, a compiler started again and again, pipes, files: five jobs at once."""
    source = BENCHES / "programs" / "inlined.cpp"
    return running(
        (compile_program("inlined.cpp"),),
        (sys.executable, BENCHES / "programs" / "requests.py"),
        ("sh", "-c", f"while :; do g++ -O2 -c {source} -o /dev/null; done"),
        ("sh", "-c", "while :; do tar c /usr/include 2>/dev/null | gzip -1 >/dev/null; done"),
        ("sh", "-c", "while :; do find /usr -xdev | sort -r | sha256sum >/dev/null; done"),
    )


def lasting_mix() -> AbstractContextManager[list[subprocess.Popen[bytes]]]:
    """Five jobs of the same kinds, none of which starts or ends a program."""
    return running(
        (compile_program("inlined.cpp"),),
        (sys.executable, BENCHES / "programs" / "requests.py"),
        ("sh", "-c", "exec gzip -1 </dev/urandom >/dev/null"),
        ("sh", "-c", "exec sha256sum </dev/zero"),
        ("dd", "if=/dev/zero", "of=/dev/null", "bs=4096"),
    )


@contextmanager
def busy(on: Sequence[int]) -> Iterator[None]:
    """Other CPUs, busy with what gives way to everything else.

    Two that are threads of one core take from each other: a program's speed would depend on what else the machine does.
    """
    spinners = [start_pinned(("sh", "-c", "while :; do :; done"), cpu) for cpu in on]
    try:
        for spinner in spinners:
            os.sched_setscheduler(spinner.pid, os.SCHED_IDLE, os.sched_param(0))
        yield
    finally:
        end(spinners)


@contextmanager
def running(*commands: Sequence[str | Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [start(command) for command in commands]
    try:
        yield processes
    finally:
        end(processes)


def pause(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop each with its process group: they are all there still, and take no CPU. `end` works on them, too."""
    for process in processes:
        os.killpg(process.pid, signal.SIGSTOP)


def start(command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
    """In a process group of its own, so that all it starts ends with it."""
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def start_pinned(command: Sequence[str | Path], cpu: int) -> subprocess.Popen[bytes]:
    process = start(command)
    os.sched_setaffinity(process.pid, {cpu})
    return process


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill each with its process group."""
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
