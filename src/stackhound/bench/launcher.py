"""Runs one command and tells what it took: a script of its own, started as ``python -I -S launcher.py``.

The kernel counts what a process had before its exec to its peak of memory (``setmax_mm_hiwater_rss`` in exec_mmap,
Linux fs/exec.c), which would be all of stackhound with numpy. This program is small, and says how small.

    stdin   {"command": ["./parse"], "timeout_s": 600, "stdout": "/dev/null", "environment": {}, "counter": null}
    stdout  {"status": 0, "wall_ns": 1203344, "cpu_ns": 1100000, "peak_bytes": 52428800, "floor_bytes": 9437184,
             "count": null, "error": ""}

``status`` is negative for a signal, null after the time limit or with an ``error``; the command's stderr is ours.
``counter`` is null, or a perf event (type, config) that is counted in user space, in the command's children, too.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import struct
import subprocess
import sys
import threading
import time
from typing import Any

PAGE_UNIT = 1024  # of ru_maxrss and VmHWM

PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
CLOSE_ON_EXEC = 8  # PERF_FLAG_FD_CLOEXEC
#: struct perf_event_attr in its first version (Linux include/uapi/linux/perf_event.h): type, size, config,
#: sample_period, sample_type, read_format, the flags, wakeup_events, bp_type, bp_addr.
ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
#: disabled, inherit, exclude_kernel, exclude_hv, enable_on_exec
FLAGS = 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6 | 1 << 12
#: total_time_enabled, total_time_running: they differ where counters had to take turns.
READ_FORMAT = 1 << 0 | 1 << 1
READ = struct.Struct("=QQQ")


class CannotCount(Exception):
    pass


def main() -> None:
    signal.signal(signal.SIGINT, lambda *_: None)  # whoever asked was interrupted too, and ends us by SIGTERM
    request = json.load(sys.stdin)
    try:
        found = run(request)
    except CannotCount as error:
        found = {"status": None, "error": "", "uncounted": str(error)}
    except OSError as error:
        found = {"status": None, "error": (error.strerror or str(error)).lower()}
    json.dump(found, sys.stdout)


def run(request: dict[str, Any]) -> dict[str, object]:
    """Run it in a session of its own, all of which is ended when the time is over.

    Raises:
        OSError: it cannot be started.
        CannotCount: there is no such counter.
    """
    counter = None if request["counter"] is None else open_counter(*request["counter"])
    floor_bytes = own_peak_bytes()
    ended, late = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())  # not before the command is known, to end it, too
    with open(request["stdout"], "wb") as stdout:  # noqa: PTH123 - pathlib is larger than all of this
        begin_ns = time.perf_counter_ns()
        child = start(request, stdout.fileno())
    timer = threading.Timer(request["timeout_s"], end_session, (child.pid, late))
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        if ended.is_set():
            sys.exit()
        timer.start()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # its number stays its own until it is reaped
        end_ns = time.perf_counter_ns()
    finally:  # also after SIGTERM
        timer.cancel()
        os.killpg(child.pid, signal.SIGKILL)  # what it left behind would disturb the next run
    timer.join()
    _, status, usage = os.wait4(child.pid, 0)
    return {
        "status": None if late.is_set() else os.waitstatus_to_exitcode(status),
        "wall_ns": end_ns - begin_ns,
        "cpu_ns": round(1e9 * (usage.ru_utime + usage.ru_stime)),
        "peak_bytes": usage.ru_maxrss * PAGE_UNIT,
        "floor_bytes": floor_bytes,
        "count": None if counter is None else read_counter(counter),
        "error": "",
    }


def start(request: dict[str, Any], stdout: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **request["environment"]}
    return subprocess.Popen(
        request["command"], stdin=subprocess.DEVNULL, stdout=stdout, env=environment, start_new_session=True
    )


def open_counter(type_: int, config: int) -> int:
    """A counter that our child inherits, and that begins with its exec: a descriptor."""
    import ctypes

    size = ATTRIBUTES.size
    attributes = ctypes.create_string_buffer(
        ATTRIBUTES.pack(type_, size, config, 0, 0, READ_FORMAT, FLAGS, 0, 0, 0), size
    )
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.syscall(PERF_EVENT_OPEN[platform.machine()], attributes, 0, -1, -1, CLOSE_ON_EXEC)
    if descriptor < 0:
        raise CannotCount(os.strerror(ctypes.get_errno()).lower())
    return descriptor


def read_counter(descriptor: int) -> int:
    """The count of all processes that inherited it and have ended."""
    count, enabled_ns, running_ns = READ.unpack(os.read(descriptor, READ.size))
    if running_ns < enabled_ns:
        raise CannotCount("others use the machine's counters, too")
    return int(count)


def end_session(pid: int, late: threading.Event) -> None:
    late.set()
    os.killpg(pid, signal.SIGKILL)


def own_peak_bytes() -> int:
    with open("/proc/self/status") as lines:  # noqa: PTH123 - pathlib is larger than all of this
        return next(int(line.split()[1]) * PAGE_UNIT for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
