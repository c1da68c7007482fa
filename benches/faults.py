"""A storm of page faults while it is recorded: how much slower it gets, and whether the numbers are right.

    .venv/bin/python benches/faults.py [--check]

A worker on each CPU touches pages and gives them back, some 100,000 faults a second each. Windows of a second with a
sampler alternate with windows without one (ABBA); the slowdown is that of benches/slowdown.py. Then one worker makes a
known number of faults, and each recorder says how many it has counted.

Controls: windows without a sampler against windows without a sampler must show no difference, and perf at each fault
must show one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import STACKHOUND, compile_program
from harness.load import working
from harness.machine import cpus
from harness.report import Report
from harness.samplers import LONG_SETTLING_S, Nothing, Perf, Stackhound
from harness.speed import whole_slowdown
from harness.windows import measure_rounds
from stackhound import load
from stackhound.profile.totals import exact_total

if TYPE_CHECKING:
    from harness.windows import Round

EVENT = "minor-faults"
HZ = 99
WINDOW_S = 1.0
ROUNDS = 20_000
BASE, CONTROL = "nothing", "nothing again"
OURS, OURS_WITH_TIME = f"stackhound -e {EVENT}", f"stackhound -e cpu,{EVENT}"
PERF_EACH, PERF_HZ = f"perf record -e {EVENT} -c 1", f"perf record -e {EVENT} -F {HZ}"
TARGET_PERCENT = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12, help="pairs of rounds")
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("faults", {"hz": HZ, "pairs": pairs, "window_s": WINDOW_S, "rounds": ROUNDS})
    program = compile_program("fault_storm.c")
    samplers = [
        Nothing(BASE),
        Nothing(CONTROL),
        Stackhound("-e", EVENT, name=OURS),
        Stackhound("-e", f"cpu,{EVENT}", name=OURS_WITH_TIME),
        Perf("-e", EVENT, "-c", "1", name=PERF_EACH),
        Perf("-e", EVENT, name=PERF_HZ),
    ]
    with working(lambda path: (program, path), cpus()) as load_of_faults:
        rounds = measure_rounds(samplers, HZ, load_of_faults, pairs, WINDOW_S, LONG_SETTLING_S)
    judge(report, rounds, [sampler.name for sampler in samplers[1:]])
    count(report, program)
    report.finish()


def judge(report: Report, rounds: list[Round], names: list[str]) -> None:
    slowdowns = {name: whole_slowdown(name, BASE, rounds) for name in names}
    report.table(
        "slowdown under a storm of minor faults (95% interval)",
        ("sampler", "slowdown, %"),
        [(name, found.written()) for name, found in slowdowns.items()],
        slowdowns,
    )
    ours, control = slowdowns[OURS], slowdowns[CONTROL]
    report.target("slowdown under a storm of faults", f"≤ {TARGET_PERCENT:.0f} %", f"{ours.written()} %",
                  ours.mean <= TARGET_PERCENT)  # fmt: skip
    report.control("nothing against nothing differs by nothing", control.written(), control.low <= 0 <= control.high)
    each = slowdowns[PERF_EACH]
    report.control("perf at each fault is seen", each.written(), each.low > TARGET_PERCENT)


def count(report: Report, program: Path) -> None:
    """The numbers of one run each: each recorder's own, and what the kernel has told the program."""
    with tempfile.TemporaryDirectory() as directory:
        ours, of_program = count_with_stackhound(program, Path(directory))
        perf, of_program_again = count_with_perf(program, Path(directory))
    rows = [("stackhound", ours, of_program), ("perf stat", perf, of_program_again)]
    report.table(
        f"faults of a program in {ROUNDS:,} rounds",
        ("recorder", "counted", "the kernel, since the fork", "in the rounds"),
        [(name, f"{found:,}", f"{fork:,}", f"{storm:,}") for name, found, (fork, storm) in rows],
        {name: {"counted": found, "since_fork": fork, "in_rounds": storm} for name, found, (fork, storm) in rows},
    )
    since_fork, in_rounds = of_program
    report.target("total of a process", "between the rounds and all since its fork", f"{ours:,}",
                  in_rounds <= ours <= since_fork + 8)  # fmt: skip


def count_with_stackhound(program: Path, directory: Path) -> tuple[int, tuple[int, int]]:
    path = directory / "a.hound"
    command = (STACKHOUND, "record", "--as-root", "-e", EVENT, "-o", path, "--", program, directory / "f", str(ROUNDS))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    profile = load(path)
    return exact_total(profile, profile.event()) or 0, parse_own(done.stdout)


def count_with_perf(program: Path, directory: Path) -> tuple[int, tuple[int, int]]:
    command = ("perf", "stat", "-e", EVENT, "-x", ",", "--", program, directory / "g", str(ROUNDS))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(rf"^(\d+),.*{EVENT}", done.stderr, re.MULTILINE)
    return int(found[1]) if found else 0, parse_own(done.stdout)


def parse_own(output: str) -> tuple[int, int]:
    """What the program prints: faults since its fork, and in the rounds; 8 more may come at its end."""
    since_fork, in_rounds = output.split()
    return int(since_fork), int(in_rounds)


if __name__ == "__main__":
    main()
