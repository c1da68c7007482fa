"""Kernel stacks: read by the kernel's own tables, they are what the kernel finds itself."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from support_kernels import needs
from support_recordings import record_running

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.kernel_guest

#: Into the kernel by system calls, page faults, sockets, files and processes that come and go; never through a module,
#: which most file systems of a distribution's kernel are.
WORK = """
import mmap, os, socket, threading
server = socket.create_server(("127.0.0.1", 0))
sender = socket.create_connection(server.getsockname())
receiver, _ = server.accept()
def receive():
    while receiver.recv(1 << 16):
        pass
threading.Thread(target=receive, daemon=True).start()
while True:
    sender.sendall(b"x" * 3000)
    with mmap.mmap(-1, 1 << 20) as memory:
        for at in range(0, 1 << 20, 4096):
            memory[at] = 1
    for name in ("maps", "stat", "status", "limits", "mountinfo"):
        with open(f"/proc/self/{name}", "rb") as file:
            file.read(1 << 16)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""


@pytest.fixture
def kernel_work() -> Iterator[int]:
    """The id of a process that is in the kernel in many ways."""
    with subprocess.Popen((sys.executable, "-c", WORK)) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def kernel_walks(pid: int, **options: Any) -> dict[str, Any]:
    """The counters of a recording of a second of work."""
    profile = record_running(pid, 1.0, pids=(pid,), lines=False, **{"frequency_hz": 1999, **options})
    counters: dict[str, Any] = profile.metadata["counters"]
    return counters


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernel keeps frame pointers there, and no tables")
def test_stacks_by_the_tables_of_the_kernel_are_the_kernels_own(kernel_work: int) -> None:
    counters = kernel_walks(kernel_work, kernel_walk="compared")
    if not has_tables():
        pytest.skip("this kernel says nothing of its tables")
    assert counters["kernel_walks"] > 0.5 * (counters["kernel_walks"] + counters["kernel_walks_failed"])
    assert counters["kernel_walks"] > 100
    assert counters["kernel_walks_differ"] == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernel keeps frame pointers there, and no tables")
def test_stacks_of_threads_that_come_back_to_a_cpu_are_the_kernels_own_from_where_they_left(kernel_work: int) -> None:
    needs("task storage")
    counters = kernel_walks(kernel_work, kernel_walk="compared", events=("off-cpu",), frequency_hz=None)
    if not counters["kernel_walks"] + counters["kernel_walks_failed"]:
        pytest.skip("this kernel does not tell when a thread comes back (sched_exit_tp, Linux 6.15)")
    assert counters["kernel_walks"] > 0.9 * counters["emitted"]
    assert counters["emitted"] > 10
    assert counters["kernel_walks_differ"] == 0


def has_tables() -> bool:
    """Whether programs may ask where they are (Linux 5.16), and can walk by them (5.17)."""
    release = os.uname().release.split(".")
    return (int(release[0]), int(release[1])) >= (5, 17)


def test_the_kernel_is_asked_for_its_stacks_where_that_is_wanted(kernel_work: int) -> None:
    counters = kernel_walks(kernel_work, kernel_walk="kernel")
    assert counters["kernel_walks"] == counters["kernel_walks_failed"] == 0
    assert counters["emitted"] > 100
