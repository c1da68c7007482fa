"""What measuring BPF programs costs and how well it repeats.

    .venv/bin/python benches/bpf_programs.py [--check]

A hundred programs are loaded, and `stackhound bpf top` looks at them every two seconds: its own CPU time is what it
says itself, without its start. Then the same program is measured twice by `stackhound.bpf.bench`, again and again.

Control: another program, which does more, must not seem to take as long.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import TYPE_CHECKING

from harness.build import REPOSITORY, STACKHOUND, compile_fixture
from harness.estimate import estimate
from harness.report import Report
from stackhound import _native
from stackhound.bpf.bench import Plan, bench

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = 100
READINGS = 6
TARGET_PERCENT = 0.1
TARGET_RATIO = 1.02
PAIRS = 5
SOURCE = REPOSITORY / "tests" / "fixtures" / "workloads" / "measured.bpf.c"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="little of all, to see that it runs")
    is_check = parser.parse_args().check
    report = Report("bpf_programs", {"programs": PROGRAMS, "pairs": PAIRS})
    path = compile_fixture(SOURCE)
    look(report, path, 2 if is_check else READINGS)
    repeat(report, path, 1 if is_check else PAIRS, Plan(loads=2, most_loads=2, batches=2) if is_check else Plan())
    report.finish()


def look(report: Report, path: Path, readings: int) -> None:
    loaded = [_native.BpfObject(str(path), ["let_pass"], False) for _ in range(PROGRAMS)]
    command = (STACKHOUND, "bpf", "top", "-n", str(readings), "--json")
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    for one in loaded:
        one.close()
    documents = [json.loads(line) for line in done.stdout.splitlines()][1:]  # the first has what it looks up once
    percents = [one["own_cpu_percent"] for one in documents]
    seen = min(len(one["programs"]) for one in documents)
    own = estimate(percents)
    report.table("CPU time of bpf top", ("", "% of a CPU"), [(f"{seen} programs", own.written())], percents)
    report.control("it sees them all", str(seen), seen >= PROGRAMS)
    met = own.mean <= TARGET_PERCENT
    report.target("bpf top at 100 programs", f"≤ {TARGET_PERCENT} % of a CPU", f"{own.written()} %", met)


def repeat(report: Report, path: Path, pairs: int, plan: Plan) -> None:
    ratios, inconclusive = [], 0
    for _ in range(pairs):
        first, second = (bench(path, "add_up", plan) for _ in range(2))
        inconclusive += not (first.is_conclusive and second.is_conclusive)
        smaller, larger = sorted((first.ns_per_run.value, second.ns_per_run.value))
        ratios.append(larger / smaller)
    nothing = bench(path, "let_pass", plan)
    rows = [(f"{pairs} pairs, {inconclusive} inconclusive", f"{max(ratios):.3f}")]
    report.table("the same program measured twice: the larger by the smaller", ("", "worst ratio"), rows, ratios)
    less, more = nothing.ns_per_run, first.ns_per_run
    report.control("less work is seen", f"{less.value:.1f} ns, {more.value:.1f} ns", less.high < more.low)
    met = max(ratios) <= TARGET_RATIO or inconclusive == pairs
    report.target("bpf bench twice", f"≤ {TARGET_RATIO}, or inconclusive", f"{max(ratios):.3f}", met)


if __name__ == "__main__":
    sys.exit(main())
