"""What the kernel says that BPF programs cost: bpf(BPF_ENABLE_STATS), and the programs' fdinfo."""

from __future__ import annotations

import ctypes
import os
import platform
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: include/uapi/linux/bpf.h
BPF_ENABLE_STATS = 32
BPF_PROG_TYPE_PERF_EVENT = "7"
SYS_BPF = {"x86_64": 321, "aarch64": 280}


@dataclass(frozen=True)
class Runs:
    """Of one process's perf_event programs, since they were loaded."""

    count: int
    ns: int

    def since(self, before: Runs) -> Runs:
        return Runs(self.count - before.count, self.ns - before.ns)


@contextmanager
def bpf_statistics() -> Iterator[None]:
    """Let the kernel count and time runs of all programs. Costs each run some tens of ns, of every design alike."""
    attributes = ctypes.create_string_buffer(16)  # type 0: run time
    system_call = ctypes.CDLL(None, use_errno=True).syscall
    fd = system_call(SYS_BPF[platform.machine()], BPF_ENABLE_STATS, attributes, len(attributes))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "BPF_ENABLE_STATS")
    try:
        yield
    finally:
        os.close(fd)


def read_runs(pid: int) -> Runs:
    """Of the perf_event programs that a process holds open: each once, however many descriptors."""
    programs: dict[str, Runs] = {}
    for info in _fdinfos(pid):
        if info.get("prog_type") == BPF_PROG_TYPE_PERF_EVENT:
            programs[info["prog_id"]] = Runs(int(info["run_cnt"]), int(info["run_time_ns"]))
    return Runs(sum(runs.count for runs in programs.values()), sum(runs.ns for runs in programs.values()))


def is_sampling(pid: int) -> bool:
    """Whether a process holds a perf_event program that is attached: a link, or an event, beside it."""
    kinds = {info.get("prog_type") for info in _fdinfos(pid)}
    return BPF_PROG_TYPE_PERF_EVENT in kinds and any("perf_event" in name for name in _open_names(pid))


def holds_links(pid: int) -> bool:
    """Whether a process has attached a program that is no perf_event's."""
    return any("bpf_link" in name or "raw_tracepoint" in name for name in _open_names(pid))


def _fdinfos(pid: int) -> Iterator[dict[str, str]]:
    for path in Path(f"/proc/{pid}/fdinfo").glob("*"):
        try:
            lines = path.read_text().splitlines()
        except OSError:
            continue  # closed since the directory was read
        yield {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _open_names(pid: int) -> Iterator[str]:
    for path in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            yield str(path.readlink())
        except OSError:
            continue  # closed since the directory was read
