"""What following allocations costs a program that makes a million of them a second, and how exact it is.

    .venv/bin/python benches/heap.py [--check]

A program allocates and frees blocks of 16 to 575 bytes, and computes in between so much that it makes a million
allocations a second (programs/allocations.c). It runs by itself, by itself again (the control), under stackhound's
library in LD_PRELOAD, with uprobes on the C library's functions, and under heaptrack, in turns. The slowdown is what it
takes more of its own CPU time, in which traps are. It has a CPU of its own, and the others are kept busy by what gives
way to everything else; harness/speed.py has why calm runs are compared.

Then what was in use at the end of a program is held against what that program says (tests/fixtures/workloads/heap.c).

Controls: the program by itself against itself shows no difference; the library's exact count is what the program did.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from harness.build import OUTPUT, REPOSITORY, STACKHOUND, compile_program
from harness.estimate import Estimate, estimate, estimate_ratio
from harness.load import busy
from harness.machine import cpus
from harness.report import Report
from harness.speed import CALM
from stackhound import load

if TYPE_CHECKING:
    from collections.abc import Sequence

PER_S: Final = 1_000_000
COUNT: Final = 3_000_000
CALIBRATION_COUNT: Final = 500_000
CALIBRATION_ROUNDS: Final = 1_000
BOUND_PERCENT: Final = 5
TARGET_PERCENT: Final = 5.0
TARGET_ERROR: Final = 0.03
EXACT_INTERVAL: Final = "2K"
WORKLOAD: Final = REPOSITORY / "tests" / "fixtures" / "workloads" / "heap.c"
SITES: Final = ("keep_small", "keep_half", "keep_in_thread")
BASE, CONTROL, PRELOAD, UPROBES, PEER = "nothing", "nothing again", "preload", "uprobes", "heaptrack"


class Run(NamedTuple):
    """One run of the program; ``said`` is what the recorder told on stderr."""

    cpu_ns: int
    wall_ns: int
    said: str


class Recorder(NamedTuple):
    """A way to run the program. ``{directory}`` in its words is a place for what it writes."""

    name: str
    words: tuple[str, ...] = ()

    def run(self, program: Path, count: int, rounds: int) -> Run:
        with tempfile.TemporaryDirectory(prefix="stackhound-bench-") as directory:
            words = [word.format(directory=directory) for word in self.words]
            command = (*words, program, str(count), str(rounds), str(cpus()[0]))
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=directory)
        found = re.search(r"^(\d+) (\d+)$", done.stdout, re.MULTILINE)
        assert found, done.stdout
        return Run(int(found[1]), int(found[2]), done.stderr)


def recorders() -> list[Recorder]:
    record = (str(STACKHOUND), "record", "--as-root", "-e", "heap", "-o", "{directory}/a.hound")
    found = [
        Recorder(BASE),
        Recorder(CONTROL),
        Recorder(PRELOAD, (*record, "--")),
        Recorder(UPROBES, (*record, "--heap-uprobes", "--heap-max-slowdown", str(BOUND_PERCENT), "--")),
    ]
    if heaptrack := shutil.which(PEER):
        found.append(Recorder(PEER, (heaptrack, "-o", "{directory}/heaptrack")))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="pairs of rounds")
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("heap", {"pairs": pairs, "count": COUNT, "per_s": PER_S})
    program = compile_program("allocations.c")
    compare_times(report, program, pairs)
    compare_amounts(report)
    report.finish()


# --- What it costs ----------------------------------------------------------------------------------------------------


def compare_times(report: Report, program: Path, pairs: int) -> None:
    ways = recorders()
    if all(way.name != PEER for way in ways):
        report.note("heaptrack is not here")
    with busy(cpus()[1:]):
        runs = measure(ways, program, find_rounds(program), pairs)
    rate = estimate([COUNT / run.cpu_ns * 1e9 for run in runs[BASE]])
    slowdowns = {way.name: slowdown(runs, way.name) for way in ways[1:]}
    report.table(
        f"slowdown at {rate.written(0)} allocations a second (calm runs, 95% interval)",
        ("recorder", "slowdown, % of CPU time"),
        [(name, found.written()) for name, found in slowdowns.items()],
        slowdowns | {"per_s": rate},
    )
    control = slowdowns[CONTROL]
    report.control("nothing against nothing", control.written(), control.low <= 0 <= control.high)
    for name, wanted in ((PRELOAD, TARGET_PERCENT), (UPROBES, BOUND_PERCENT)):
        found = slowdowns[name]
        report.target(f"slowdown by {name}", f"≤ {wanted:g}%", f"{found.written()}%", found.mean <= wanted)
    report.note(next(line for line in runs[UPROBES][-1].said.splitlines() if "were watched" in line))


def find_rounds(program: Path) -> int:
    """How much work between two allocations makes a million of them a second."""
    bare, working = (Recorder(BASE).run(program, CALIBRATION_COUNT, rounds) for rounds in (0, CALIBRATION_ROUNDS))
    ns_per_round = (working.cpu_ns - bare.cpu_ns) / CALIBRATION_COUNT / CALIBRATION_ROUNDS
    return max(0, round((1e9 / PER_S - bare.cpu_ns / CALIBRATION_COUNT) / ns_per_round))


def measure(ways: Sequence[Recorder], program: Path, rounds: int, pairs: int) -> dict[str, list[Run]]:
    """Each way once a round, forwards and backwards in turns."""
    runs: dict[str, list[Run]] = {way.name: [] for way in ways}
    for number in range(2 * pairs):
        for way in ways if number % 2 == 0 else reversed(ways):
            runs[way.name].append(way.run(program, COUNT, rounds))
    return runs


def slowdown(runs: dict[str, list[Run]], name: str) -> Estimate:
    """In percent of CPU time."""
    base_speeds, speeds = ([[1 / run.cpu_ns] for run in runs[of]] for of in (BASE, name))
    ratio = estimate_ratio(base_speeds, speeds, CALM)
    return Estimate(100 * (ratio.mean - 1), 100 * (ratio.low - 1), 100 * (ratio.high - 1), ratio.count)


# --- How exact it is --------------------------------------------------------------------------------------------------


def compare_amounts(report: Report) -> None:
    """What is in use at the end of a program, by function."""
    program = OUTPUT / "heap"
    subprocess.run(("gcc", "-O2", "-g", "-pthread", "-o", program, WORKLOAD), check=True)
    truth, found, counted = record(program)
    rows = [
        (site, f"{truth[f'{site}_kept_bytes']:,}", f"{found[site]:,}", f"{error(truth, found, site):+.2%}")
        for site in SITES
    ]
    report.table(f"bytes in use at the end, by function (--heap-interval {EXACT_INTERVAL})",
                 ("function", "truly", "found", "off by"), rows, {"truth": truth, "found": found})  # fmt: skip
    worst = max(abs(error(truth, found, site)) for site in SITES)
    report.target("live bytes by stack", f"within {TARGET_ERROR:.0%}", f"{worst:.2%}", worst <= TARGET_ERROR)
    asked = sum(truth[f"{site}_count"] for site in SITES)
    report.control("the count is exact", f"{counted:,} of {asked:,}", 0 <= counted - asked < 100)  # libc's own


def error(truth: dict[str, int], found: dict[str, int], site: str) -> float:
    return found[site] / truth[f"{site}_kept_bytes"] - 1


def record(program: Path) -> tuple[dict[str, int], dict[str, int], int]:
    """What the program says, what is found in use by function, and the exact number of allocations."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "a.hound")
        command = (STACKHOUND, "record", "--as-root", "-e", "heap", "--heap-interval", EXACT_INTERVAL,
                   "--ring-size", "16M", "-o", path, "--", program, *SITES)  # fmt: skip
        done = subprocess.run(command, check=True, capture_output=True, input="go\n", text=True)
        profile = load(path).shown
    tree = profile.keep_live().tree()
    own = dict.fromkeys(SITES, 0)
    for frame, value in zip(tree.frame.tolist(), tree.self_value.tolist(), strict=True):
        if value and tree.frames.name[frame] in own:
            own[tree.frames.name[frame]] += value
    told = (line.split() for line in done.stdout.splitlines()[1:])
    counted = sum(profile.numbers("heap_totals", "allocations").tolist())
    return {name: int(value) for name, value in told}, own, counted


if __name__ == "__main__":
    main()
