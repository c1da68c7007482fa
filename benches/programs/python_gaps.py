"""Computes in one thread, 20 frames deep, beside eight that wait, and notes the longest time between two looks at the
clock: written, in nanoseconds, to the file that is named, at the start and at each SIGUSR1.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

PATH = sys.argv[1]
DEPTH = 20
WAITING = 8

longest_ns = 0


def write(*_: object) -> None:
    global longest_ns
    fresh = f"{PATH}.new"
    with open(fresh, "w") as file:  # noqa: PTH123 - as little as can be, within the time that is measured
        file.write(str(longest_ns))
    os.rename(fresh, PATH)  # noqa: PTH104
    longest_ns = 0


def look(depth: int) -> None:
    global longest_ns
    if depth:
        return look(depth - 1)
    last = time.monotonic_ns()
    while True:
        now = time.monotonic_ns()
        if now - last > longest_ns:
            longest_ns = now - last
        last = now


for _ in range(WAITING):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.signal(signal.SIGUSR1, write)
write()
look(DEPTH)
