"""Samplers of the whole machine: each starts, says when it samples, and ends without finishing anything."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.bpf_statistics import Runs, is_sampling, read_runs
from harness.build import STACKHOUND, build_example, compile_bpf
from harness.process_cost import cpu_ns
from harness.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

#: After a sampler says that it samples: what it does once at its start is over.
SETTLING_S = 0.4
#: The same where nothing leaves it a CPU: reading all processes, and making their tables, takes a second then.
LONG_SETTLING_S = 2.5


class Sampler(ABC):
    """One way to sample. Started anew for each window: a BPF program's speed differs from load to load."""

    name: str

    @abstractmethod
    def start(self, hz: int) -> None:
        """Return when samples are taken."""

    def runs(self) -> Runs | None:
        """Of its BPF program; None where it has none."""
        return None

    def collector_cpu_ns(self) -> int:
        """Of its processes, so far."""
        return 0

    @abstractmethod
    def stop(self) -> None: ...


class Nothing(Sampler):
    """No sampling: what everything else is compared with, and, a second time, the control."""

    def __init__(self, name: str = "nothing") -> None:
        self.name = name

    def start(self, hz: int) -> None:
        del hz

    def stop(self) -> None:
        pass


class Process(Sampler):
    """A sampler that is a process. What it writes goes into a directory that ends with it."""

    _process: subprocess.Popen[bytes]
    _directory: str

    def start(self, hz: int) -> None:
        self._directory = tempfile.mkdtemp(prefix="stackhound-bench-")
        self._process = self.spawn(hz, Path(self._directory))
        wait_until(f"{self.name} to sample", self._has_begun)

    @abstractmethod
    def spawn(self, hz: int, directory: Path) -> subprocess.Popen[bytes]: ...

    def is_ready(self) -> bool:
        return is_sampling(self._process.pid)

    def collector_cpu_ns(self) -> int:
        return cpu_ns(self._process.pid)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._directory)

    def _has_begun(self) -> bool:
        if self._process.poll() is not None:
            raise ChildProcessError(f"{self.name} ended with status {self._process.returncode}")
        return self.is_ready()


class Stackhound(Process):
    """`stackhound record`, as anybody calls it."""

    name = "stackhound"

    def __init__(self, *options: str, name: str = "stackhound") -> None:
        self.options = options
        self.name = name

    def spawn(self, hz: int, directory: Path) -> subprocess.Popen[bytes]:
        output = directory / "a.hound"
        command = (STACKHOUND, "record", "-F", str(hz), "-o", output, *self.options)
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def runs(self) -> Runs:
        return read_runs(self._process.pid)


class Design(Process):
    """A BPF design of benches/bpf/, run by an example of crates/capture."""

    def __init__(self, design: str, name: str = "") -> None:
        self.name = name or design
        self._command = (build_example("attach"), compile_bpf(design))

    def spawn(self, hz: int, directory: Path) -> subprocess.Popen[bytes]:
        del directory
        self._ready, output = os.pipe()
        os.set_blocking(self._ready, False)
        process = subprocess.Popen((*self._command, str(hz)), stdin=subprocess.PIPE, stdout=output)
        os.close(output)
        return process

    def is_ready(self) -> bool:
        try:
            return os.read(self._ready, 100).startswith(b"ready")
        except BlockingIOError:
            return False

    def runs(self) -> Runs:
        return read_runs(self._process.pid)

    def stop(self) -> None:
        super().stop()
        if self._process.stdin:
            self._process.stdin.close()
        os.close(self._ready)


class Perf(Process):
    """`perf record -a -g`, switched on by its control pipe once it has set itself up."""

    name = "perf record -a -g"

    def __init__(self, *options: str, name: str = "") -> None:
        self.options = options
        self.name = name or self.name

    def spawn(self, hz: int, directory: Path) -> subprocess.Popen[bytes]:
        control, self._control = os.pipe()
        self._acknowledged, acknowledge = os.pipe()
        rate = () if "-c" in self.options else ("-F", str(hz))
        command = ("perf", "record", "-a", "-g", *rate, *self.options, "-o", directory / "perf.data",
                   "--delay=-1", f"--control=fd:{control},{acknowledge}")  # fmt: skip
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(control, acknowledge)
        )
        os.close(control)
        os.close(acknowledge)
        return process

    def is_ready(self) -> bool:
        os.write(self._control, b"enable\n")
        return os.read(self._acknowledged, 100).startswith(b"ack")

    def stop(self) -> None:
        super().stop()
        os.close(self._control)
        os.close(self._acknowledged)


@contextmanager
def running(sampler: Sampler, hz: int, settling_s: float = SETTLING_S) -> Iterator[Sampler]:
    """Sampling, and settled."""
    sampler.start(hz)
    try:
        time.sleep(settling_s)
        yield sampler
    finally:
        sampler.stop()
