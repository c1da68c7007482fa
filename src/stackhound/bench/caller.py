"""Calls one Python function many times: a program of its own, ``python caller.py MODULE:FUNCTION FILE``.

Batches of calls, each as long as `BATCH_NS` at least, so that the clock's own time is lost in them; FILE gets the
nanoseconds of a call in each batch, as Bencher's Metric Format with lists. What the function prints is its own affair.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: A clock read takes 0.1 µs: 0.001% of it.
BATCH_NS = 10_000_000
BATCHES = 5
MAX_CALLS = 1 << 30


def main() -> None:
    sys.path[0] = str(Path.cwd())  # as python -m has it
    name, output = sys.argv[1:]
    function = find(name)
    calls = find_calls(function)
    found = [measure(function, calls) for _ in range(BATCHES)]
    walls, cpus = zip(*found, strict=True)
    Path(output).write_text(
        json.dumps({"wall": [wall / calls for wall in walls], "cpu": [cpu / calls for cpu in cpus]})
    )


def find(name: str) -> Callable[[], object]:
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found  # type: ignore[return-value]  # calling it tells


def find_calls(function: Callable[[], object]) -> int:
    """How many calls a batch takes; they also warm the function up."""
    calls = 1
    while (wall_ns := measure(function, calls)[0]) < BATCH_NS and calls < MAX_CALLS:
        calls = max(calls + 1, min(10 * calls, int(calls * 1.1 * BATCH_NS / max(wall_ns, 1))))
    return calls


def measure(function: Callable[[], object], calls: int) -> tuple[int, int]:
    """Wall and CPU nanoseconds of so many calls, without the collector's turns, as timeit has it."""
    turns = range(calls)
    gc.collect()
    gc.disable()
    cpu_ns, wall_ns = time.process_time_ns(), time.perf_counter_ns()
    for _ in turns:
        function()
    taken = time.perf_counter_ns() - wall_ns, time.process_time_ns() - cpu_ns
    gc.enable()
    return taken


if __name__ == "__main__":
    main()
