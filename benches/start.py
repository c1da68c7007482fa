"""From a command line to its first sample.

    .venv/bin/python benches/start.py [--check]

Samplers of the whole machine are started in turns (ABBA) beside one worker that keeps a CPU busy at the lowest
priority, so that there is something to sample at once. The first sample's own time counts, on the clock that was read
just before the process was made.

Control: a fifth of a second that is slept away before stackhound starts must be seen.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import STACKHOUND, compile_package, compile_program
from harness.estimate import estimate
from harness.load import end, start_pinned
from harness.machine import cpus
from harness.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.estimate import Estimate

HZ = 999
TARGET_MS = 300
PLANTED_MS = 200
OURS, PERF, PLANTED = "stackhound", "perf record -a -g", "planted: stackhound, 200 ms late"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("start", {"hz": HZ, "pairs": pairs})
    compile_package()
    with tempfile.TemporaryDirectory() as directory:
        worker = start_worker(Path(directory))
        try:
            times = measure(Path(directory), pairs)
        finally:
            end([worker])
    show_and_judge(report, {name: estimate(taken) for name, taken in times.items()}, times)
    report.finish()


def start_worker(directory: Path) -> subprocess.Popen[bytes]:
    worker = start_pinned((compile_program("deep.c"), "24", directory / "progress"), cpus()[-1])
    os.setpriority(os.PRIO_PROCESS, worker.pid, 19)
    return worker


def measure(directory: Path, pairs: int) -> dict[str, list[float]]:
    """Milliseconds, of each by turns."""
    late = ("sh", "-c", f'sleep {PLANTED_MS / 1000}; exec "$@"', "sh")
    samplers: dict[str, Callable[[Path], float]] = {
        OURS: start_stackhound,
        PERF: start_perf,
        PLANTED: lambda directory: start_stackhound(directory, *late),
    }
    times: dict[str, list[float]] = {name: [] for name in samplers}
    for _ in range(pairs):
        for name in (*samplers, *reversed(samplers)):
            times[name].append(samplers[name](directory))
    return times


def start_stackhound(directory: Path, *before: str) -> float:
    from stackhound import load

    output = directory / "a.hound"
    begin_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    run(*before, STACKHOUND, "record", "-F", str(HZ), "-d", "0.5", "--no-lines", "-o", output)
    return (int(load(output).numbers("samples", "boottime_ns").min()) - begin_ns) / 1e6


def start_perf(directory: Path) -> float:
    output = directory / "perf.data"
    begin_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    run("perf", "record", "-a", "-g", "-F", str(HZ), "-k", "CLOCK_MONOTONIC", "-o", output, "sleep", "0.5")
    script = ("perf", "script", "-i", output, "--ns", "-F", "time")
    shown = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    first_s = min(float(line.strip().rstrip(":")) for line in shown.splitlines())
    return first_s * 1e3 - begin_ns / 1e6


def run(*command: str | Path) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def show_and_judge(report: Report, found: dict[str, Estimate], times: dict[str, list[float]]) -> None:
    rows = [(name, one.written(0), f"{min(times[name]):.0f}", f"{max(times[name]):.0f}") for name, one in found.items()]
    data = {"estimates_ms": found, "times_ms": times}
    report.table("from start to first sample, ms", ("sampler", "trimmed mean", "least", "most"), rows, data)
    ours = found[OURS]
    report.target("start to first sample", f"≤ {TARGET_MS} ms", f"{ours.written(0)} ms", ours.mean <= TARGET_MS)
    late = found[PLANTED].mean - ours.mean
    report.control(f"{PLANTED_MS} ms that were planted are seen", f"{late:.0f} ms", abs(late / PLANTED_MS - 1) < 0.5)


if __name__ == "__main__":
    main()
