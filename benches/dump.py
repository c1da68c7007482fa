"""How long an answer takes of what a process's threads do, and how long the process stands still meanwhile.

    .venv/bin/python benches/dump.py [--check]

A Python program computes in one thread, 20 frames deep, and waits in eight others. Dumps of it by stackhound, py-spy
and gdb follow each other in turns (ABBA), each a process of its own from its start to its end. The program notes the
longest time between two looks at the clock: what is more than without a dump it stood still, or did not have its CPU.
It has one for itself, the dumps another. That time grows with how long one looks, and while the other CPU is busy:
whatever else the machine does then takes the program's. It is compared with another program, which computes for as long
as stackhound takes.

Controls: with nothing at all the program must stand still for less than a stop of 50 ms, which must be seen.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import BENCHES, STACKHOUND, compile_package
from harness.estimate import estimate
from harness.load import end, start_pinned
from harness.machine import cpus
from harness.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.estimate import Estimate

PROGRAM = BENCHES / "programs" / "python_gaps.py"
STOPPED_S = 0.05
TARGET_MS = 500
NOTHING, BUSY, STOPPED, OURS = "nothing", "another program computes", "stopped for 50 ms", "stackhound dump"
COMPUTE = "import sys, time; end = time.monotonic() + float(sys.argv[1])\nwhile time.monotonic() < end: pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("dump", {"pairs": pairs})
    compile_package()
    os.sched_setaffinity(0, {cpus()[-1]})
    with tempfile.TemporaryDirectory() as directory:
        gaps = Path(directory, "gaps")
        program = start_pinned((sys.executable, PROGRAM, gaps), cpus()[0])
        try:
            wait_for(gaps)
            found = measure(program.pid, gaps, pairs)
        finally:
            end([program])
    show_and_judge(report, found)
    report.finish()


def wait_for(path: Path) -> None:
    deadline_s = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > deadline_s:
            sys.exit("error: the program does not begin")
        time.sleep(0.01)


def ways(pid: int) -> dict[str, Callable[[], None]]:
    """What is done to the program, by name."""
    ours = (str(STACKHOUND), "dump", "-p", str(pid))
    run(*ours)  # what it keeps of files is there from now on
    begin = time.monotonic()
    run(*ours)
    as_long_s = time.monotonic() - begin
    found: dict[str, Callable[[], None]] = {
        NOTHING: lambda: time.sleep(as_long_s),
        BUSY: lambda: run(sys.executable, "-c", COMPUTE, str(as_long_s)),
        STOPPED: lambda: stop(pid),
    }
    commands = {OURS: ours}
    if spy := shutil.which("py-spy", path=STACKHOUND.parent):
        dump = (spy, "dump", "-p", str(pid))
        commands |= {"py-spy dump": dump, "py-spy dump --nonblocking": (*dump, "--nonblocking")}
        commands |= {"py-spy dump --native": (*dump, "--native")}
    if gdb := shutil.which("gdb"):
        commands["gdb thread apply all bt"] = (gdb, "-p", str(pid), "-batch", "-ex", "thread apply all bt")
    if stack := shutil.which("eu-stack"):
        commands["eu-stack"] = (stack, "-p", str(pid))
    return found | {name: lambda command=command: run(*command) for name, command in commands.items()}


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED_S)
    os.kill(pid, signal.SIGCONT)


def run(*command: str) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def measure(pid: int, gaps: Path, pairs: int) -> dict[str, list[tuple[float, float]]]:
    """Of each way: (milliseconds until the answer, milliseconds that the program stood still)."""
    each = ways(pid)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in each}
    for _ in range(pairs):
        for name in (*each, *reversed(each)):
            reset(pid, gaps)
            begin = time.monotonic()
            each[name]()
            taken_ms = (time.monotonic() - begin) * 1e3
            found[name].append((taken_ms, reset(pid, gaps)))
    return found


def reset(pid: int, gaps: Path) -> float:
    """Let the program begin anew; its longest time between two looks at the clock, in milliseconds."""
    gaps.unlink()
    os.kill(pid, signal.SIGUSR1)
    wait_for(gaps)
    return int(gaps.read_text()) / 1e6


def show_and_judge(report: Report, found: dict[str, list[tuple[float, float]]]) -> None:
    taken = {name: estimate([one for one, _ in times]) for name, times in found.items()}
    still: dict[str, Estimate] = {name: estimate([one for _, one in times]) for name, times in found.items()}
    rows = [
        (name, taken[name].written(0), still[name].written(1), f"{max(one for _, one in found[name]):.1f}")
        for name in found
    ]
    columns = ("way", "until the answer, ms", "stood still, ms", "longest, ms")
    report.table("a dump of a Python program of nine threads (trimmed mean, 95% interval)", columns, rows, found)
    got = f"{taken[OURS].written(0)} ms"
    report.target("time until the answer", f"≤ {TARGET_MS} ms", got, taken[OURS].mean <= TARGET_MS)
    pairs = zip(found[OURS], found[BUSY], strict=True)
    more = estimate([ours - busy for (_, ours), (_, busy) in pairs])
    got = f"{more.written(1)} ms"
    what = "stood still beyond what it does beside another program"
    report.target(what, "0 (in the interval)", got, more.low <= 0 <= more.high)
    report.control("a stop of 50 ms is seen", still[STOPPED].written(1), still[STOPPED].low > STOPPED_S * 900)
    report.control("nothing is no stop", still[NOTHING].written(1), still[NOTHING].high < STOPPED_S * 500)


if __name__ == "__main__":
    main()
