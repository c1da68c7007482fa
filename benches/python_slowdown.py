"""How much slower a Python program gets while it is sampled, and what a walk of its Python frames takes.

    .venv/bin/python benches/python_slowdown.py [--check]

A program computes in Python, 20 frames deep, on a CPU of its own (programs/python_pieces.py). Windows of a second with
a sampler alternate with windows without one (ABBA), at 100 and at 1,000 Hz. The slowdown is what the program does less
in a second of the clock on the wall: a sampler that pauses it takes time in which nothing runs. What it does less in a
second of its own CPU time is told with less noise, since nothing else takes any of that: of stackhound, which never
pauses the program, that is all there is, and it is judged by it.

The walk's cost is the difference in the BPF program between samples with and without Python's frames (--no-python).

Controls: windows without a sampler against windows without one must show no difference, and a sampler that stops the
program for 1 ms 50 times a second must show.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from harness.bpf_statistics import bpf_statistics
from harness.build import BENCHES, STACKHOUND
from harness.estimate import Estimate, estimate
from harness.load import working
from harness.machine import cpus
from harness.report import Report
from harness.samplers import Nothing, Process, Stackhound
from harness.windows import Round, Window, measure_rounds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.samplers import Sampler

RATES_HZ = (100, 1_000)
TARGETS_PERCENT = {100: 0.5, 1_000: 3.0}
TARGET_WALK_NS = 2_000
WINDOW_S = 1.0
WALK_HZ = 5_000
WALK_WINDOW_S = 4.0  # code objects that are older than a second are looked at less often
PROGRAM = BENCHES / "programs" / "python_pieces.py"
BASE, CONTROL, OURS, STOPPER, SPY = "nothing", "nothing again", "stackhound", "stopped 50 times a second", "py-spy"
WITH, WITHOUT = "native and Python", "native alone"
WALKS = {WITH: (), WITHOUT: ("--no-python",)}
STOPPER_CODE = """
import os, signal, sys, time
print("ready", flush=True)
while True:
    os.kill(int(sys.argv[1]), signal.SIGSTOP)
    time.sleep(0.001)
    os.kill(int(sys.argv[1]), signal.SIGCONT)
    time.sleep(0.019)
"""


class Other(Process):
    """A sampler of one process, by its command line."""

    def __init__(self, name: str, *command: str | Path) -> None:
        self.name = name
        self._command = command

    def spawn(self, hz: int, directory: Path) -> subprocess.Popen[bytes]:
        words = [str(word).format(hz=hz, output=directory / "output") for word in self._command]
        return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_ready(self) -> bool:
        return True  # it takes its first samples within the time that every sampler has to settle


class Stopper(Other):
    """A control that stops the program itself."""

    def __init__(self, pid: int) -> None:
        super().__init__(STOPPER, sys.executable, "-c", STOPPER_CODE.replace("{", "{{").replace("}", "}}"), str(pid))
        self._pid = pid

    def stop(self) -> None:
        super().stop()
        os.kill(self._pid, signal.SIGCONT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="pairs of rounds")
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("python_slowdown", {"pairs": pairs, "window_s": WINDOW_S})
    with working(lambda path: (sys.executable, PROGRAM, path), cpus()[:1]) as load:
        pid = load.processes[0].pid
        samplers = samplers_of(pid)
        rounds = {hz: measure_rounds(samplers, hz, load, pairs, WINDOW_S) for hz in RATES_HZ}
        both = [Stackhound("-p", str(pid), *options, name=name) for name, options in WALKS.items()]
        with bpf_statistics():
            walks = measure_rounds(both, WALK_HZ, load, max(1, pairs // 2), WALK_WINDOW_S)
    show(report, rounds)
    judge(report, rounds)
    judge_walk(report, walks)
    report.finish()


def samplers_of(pid: int) -> list[Sampler]:
    found: list[Sampler] = [Nothing(BASE), Nothing(CONTROL), Stopper(pid), Stackhound("-p", str(pid), name=OURS)]
    if spy := shutil.which("py-spy", path=STACKHOUND.parent):
        record = (spy, "record", "-p", str(pid), "-r", "{hz}", "-d", "3600", "-f", "raw", "-o", "{output}")
        found += [Other(SPY, *record), Other(f"{SPY} --nonblocking", *record, "--nonblocking")]
        found += [Other(f"{SPY} --native", *record, "--native")]
    return found


def slowdown(name: str, rounds: Sequence[Round]) -> Estimate:
    """In percent, by the clock on the wall."""
    return estimate([100 * (1 - rate(one[name]) / rate(one[BASE])) for one in rounds])


def running_slowdown(name: str, rounds: Sequence[Round]) -> Estimate:
    """In percent, by the program's own CPU time: without what it takes to pause it."""
    return estimate([100 * (1 - one[name].work.rate / one[BASE].work.rate) for one in rounds])


def rate(window: Window) -> float:
    return window.work.pieces / window.wall_s


def show(report: Report, rounds: dict[int, list[Round]]) -> None:
    names = [name for name in rounds[RATES_HZ[0]][0] if name != BASE]
    found = {hz: {name: slowdown(name, each) for name in names} for hz, each in rounds.items()}
    running = {hz: {name: running_slowdown(name, each) for name in names} for hz, each in rounds.items()}
    each_way = [(way, hz) for hz in RATES_HZ for way in (found, running)]
    rows = [(name, *(way[hz][name].written() for way, hz in each_way)) for name in names]
    columns = [f"{hz:,} Hz, {'wall' if way is found else 'CPU time'}, %" for way, hz in each_way]
    title = "slowdown of a Python program (trimmed mean, 95% interval)"
    report.table(title, ("sampler", *columns), rows, {"wall": found, "cpu": running})


def judge(report: Report, rounds: dict[int, list[Round]]) -> None:
    for hz, each in rounds.items():
        ours, wanted = running_slowdown(OURS, each), TARGETS_PERCENT[hz]
        report.target(f"slowdown at {hz:,} Hz", f"≤ {wanted}%", f"{ours.written()}%", ours.mean <= wanted)
        running_control = running_slowdown(CONTROL, each)
        is_none = running_control.low <= 0 <= running_control.high
        report.control(f"nothing against nothing by CPU time, {hz:,} Hz", running_control.written(), is_none)
        if SPY in each[0]:
            less = estimate([100 * (rate(one[SPY]) - rate(one[OURS])) / rate(one[BASE]) for one in each])
            got = f"{less.written()} points beside py-spy's"
            report.target(f"slowdown at {hz:,} Hz beside py-spy", "below it (the interval below 0)", got, less.high < 0)
        control = slowdown(CONTROL, each)
        report.control(f"nothing against nothing, {hz:,} Hz", control.written(), control.low <= 0 <= control.high)
        stopped = slowdown(STOPPER, each)
        report.control(f"stops are seen, {hz:,} Hz", stopped.written(), stopped.low > 3)


def judge_walk(report: Report, rounds: list[Round]) -> None:
    found = {name: estimate([one[name].ns_a_run for one in rounds]) for name in WALKS}
    rows = [(name, each.written(0)) for name, each in found.items()]
    report.table(f"a sample of that program, at {WALK_HZ:,} Hz", ("walk", "in the program, ns"), rows, found)
    extra = estimate([one[WITH].ns_a_run - one[WITHOUT].ns_a_run for one in rounds])
    got = f"{extra.written(0)} ns"
    report.target("a walk of 20 frames of Python", f"≤ {TARGET_WALK_NS:,} ns", got, extra.mean <= TARGET_WALK_NS)
    report.control("Python's frames take time", got, extra.low > 0)


if __name__ == "__main__":
    main()
