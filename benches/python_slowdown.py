"""How much slower a Python program gets while it is sampled, and what a walk of its Python frames takes.

    .venv/bin/python benches/python_slowdown.py [--check]

A program computes in Python, 20 frames deep, on a CPU of its own (programs/python_pieces.py); the others are kept busy
by what gives way to any sampler. Windows of a second with a sampler alternate with windows without one (ABBA), at 100
and at 1,000 Hz; first without the peers, in more rounds, because so little is to be told.

The slowdown is what the program does less in a second of the clock on the wall: a sampler that pauses it takes time in
which nothing runs. What it does less in a second of its own CPU time is told with less noise: of stackhound, which
never pauses the program, that is all there is, and it is judged by it. harness/speed.py has how speeds are compared.
An empty program at the same rate tells what the interrupts alone take.

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
from harness.estimate import estimate
from harness.load import busy, working
from harness.machine import cpus
from harness.report import Report
from harness.samplers import Design, Nothing, Process, Stackhound
from harness.speed import by_cpu_time, by_the_wall, slowdown
from harness.windows import measure_rounds

if TYPE_CHECKING:
    from pathlib import Path

    from harness.samplers import Sampler
    from harness.windows import Round

RATES_HZ = (100, 1_000)
TARGETS_PERCENT = {100: 0.5, 1_000: 3.0}
TARGET_WALK_NS = 2_000
WINDOW_S = 1.0
WALK_HZ = 5_000
WALK_WINDOW_S = 4.0  # code objects that are older than a second are looked at less often
PROGRAM = BENCHES / "programs" / "python_pieces.py"
BASE, CONTROL, OURS, STOPPER, SPY = "nothing", "nothing again", "stackhound", "stopped 50 times a second", "py-spy"
EMPTY = "empty program"
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
    parser.add_argument("--pairs", type=int, default=10, help="pairs of rounds; twice as many without peers")
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("python_slowdown", {"pairs": pairs, "window_s": WINDOW_S})
    with busy(cpus()[1:]), working(lambda path: (sys.executable, PROGRAM, path), cpus()[:1]) as load:
        pid = load.processes[0].pid
        mine = Stackhound("-p", str(pid), name=OURS)
        alone, beside = (
            (Nothing(BASE), Nothing(CONTROL), Stopper(pid), Design("empty", EMPTY), mine),
            (Nothing(BASE), mine, *peers(pid)),
        )
        rounds = {hz: measure_rounds(alone, hz, load, 2 * pairs, WINDOW_S) for hz in RATES_HZ}
        peer_rounds = {hz: measure_rounds(beside, hz, load, pairs, WINDOW_S) for hz in RATES_HZ}
        both = [Stackhound("-p", str(pid), *options, name=name) for name, options in WALKS.items()]
        with bpf_statistics():
            walks = measure_rounds(both, WALK_HZ, load, max(1, pairs // 2), WALK_WINDOW_S, counts_runs=True)
    show(report, "slowdown of a Python program", rounds)
    judge(report, rounds)
    show(report, "the same beside others", peer_rounds)
    judge_beside(report, peer_rounds)
    judge_walk(report, walks)
    report.finish()


def peers(pid: int) -> list[Sampler]:
    spy = shutil.which("py-spy", path=STACKHOUND.parent)
    if spy is None:
        return []
    record = (spy, "record", "-p", str(pid), "-r", "{hz}", "-d", "3600", "-f", "raw", "-o", "{output}")
    ways = {SPY: (), f"{SPY} --nonblocking": ("--nonblocking",), f"{SPY} --native": ("--native",)}
    return [Other(name, *record, *options) for name, options in ways.items()]


def show(report: Report, title: str, rounds: dict[int, list[Round]]) -> None:
    names = [name for name in rounds[RATES_HZ[0]][0] if name != BASE]
    speeds = {"wall": by_the_wall, "CPU time": by_cpu_time}
    found = {
        f"{hz:,} Hz, {way}, %": {name: slowdown(name, BASE, each, speed) for name in names}
        for way, speed in speeds.items()
        for hz, each in rounds.items()
    }
    rows = [(name, *(each[name].written() for each in found.values())) for name in names]
    report.table(f"{title} (95% interval)", ("sampler", *found), rows, found)


def judge(report: Report, rounds: dict[int, list[Round]]) -> None:
    for hz, each in rounds.items():
        ours, wanted = slowdown(OURS, BASE, each), TARGETS_PERCENT[hz]
        report.target(f"slowdown at {hz:,} Hz", f"≤ {wanted}%", f"{ours.written()}%", ours.mean <= wanted)
        for speed in (by_cpu_time, by_the_wall):
            control = slowdown(CONTROL, BASE, each, speed)
            is_none = control.low <= 0 <= control.high
            report.control(
                f"nothing against nothing {speed.__name__.replace('_', ' ')}, {hz:,} Hz", control.written(), is_none
            )
        stopped = slowdown(STOPPER, BASE, each, by_the_wall)
        report.control(f"stops are seen, {hz:,} Hz", stopped.written(), stopped.low > 3)


def judge_beside(report: Report, rounds: dict[int, list[Round]]) -> None:
    for hz, each in rounds.items():
        if SPY not in each[0]:
            report.note("py-spy is not in .venv: nothing is compared")
            return
        slower = slowdown(SPY, OURS, each, by_the_wall)
        got = f"py-spy's program is {slower.written()}% slower"
        report.target(f"beside py-spy, {hz:,} Hz", "faster (the interval above 0)", got, slower.low > 0)


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
