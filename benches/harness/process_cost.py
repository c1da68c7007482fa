"""What a process costs: CPU time to the nanosecond, memory to the page."""

from __future__ import annotations

from pathlib import Path


def cpu_ns(pid: int) -> int:
    """CPU time of the threads that live, user and kernel."""
    return sum(_thread_cpu_ns(path) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def tree_cpu_ns(pid: int) -> int:
    """The same with all descendants that live."""
    return cpu_ns(pid) + sum(tree_cpu_ns(child) for child in _children(pid))


def resident_bytes(pid: int) -> int:
    return _status_bytes(pid, "VmRSS")


def peak_bytes(pid: int) -> int:
    return _status_bytes(pid, "VmHWM")


def _thread_cpu_ns(path: Path) -> int:
    try:
        return int(path.read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0  # ended since the directory was read


def _children(pid: int) -> list[int]:
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


def _status_bytes(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name + ":"))
