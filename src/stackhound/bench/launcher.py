"""Runs one command and tells what it took: a script of its own, started as ``python -I -S launcher.py``.

The kernel counts what a process had before its exec to its peak of memory (``setmax_mm_hiwater_rss`` in exec_mmap,
Linux fs/exec.c), which would be all of stackhound with numpy. This program is small, and says how small.

    stdin   {"command": ["./parse"], "timeout_s": 600}
    stdout  {"status": 0, "wall_ns": 1203344, "cpu_ns": 1100000, "peak_bytes": 52428800, "floor_bytes": 9437184,
             "error": ""}

``status`` is negative for a signal, null after the time limit or with an ``error``; the command's stderr is ours.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

PAGE_UNIT = 1024  # of ru_maxrss and VmHWM


def main() -> None:
    signal.signal(signal.SIGINT, lambda *_: None)  # whoever asked was interrupted too, and ends us by SIGTERM
    request = json.load(sys.stdin)
    try:
        found = run(request["command"], request["timeout_s"])
    except OSError as error:
        found = {"status": None, "error": (error.strerror or str(error)).lower()}
    json.dump(found, sys.stdout)


def run(command: list[str], timeout_s: float) -> dict[str, object]:
    """Run it in a session of its own, all of which is ended when the time is over.

    Raises:
        OSError: it cannot be started.
    """
    floor_bytes = own_peak_bytes()
    ended, late = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())  # not before the command is known, to end it, too
    begin_ns = time.perf_counter_ns()
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    timer = threading.Timer(timeout_s, end_session, (child.pid, late))
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
        "error": "",
    }


def end_session(pid: int, late: threading.Event) -> None:
    late.set()
    os.killpg(pid, signal.SIGKILL)


def own_peak_bytes() -> int:
    with open("/proc/self/status") as lines:  # noqa: PTH123 - pathlib is larger than all of this
        return next(int(line.split()[1]) * PAGE_UNIT for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
