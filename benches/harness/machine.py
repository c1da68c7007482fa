"""What a benchmark ran on: figures of two machines, or of a quiet and a busy one, are not to be compared."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "hardware_counters": Path("/sys/bus/event_source/devices/cpu").exists(),
        "load_before": os.getloadavg()[0],
        "unix_time": time.time(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def cpus() -> list[int]:
    """The CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0))
