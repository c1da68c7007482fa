"""Whether `stackhound bench` can be trusted: false alarms between equals, and slowdowns of 3% that are found.

    .venv/bin/python benches/regressions.py [--check] [--equal N] [--slower N] [--seconds S]

A program does the same work in each run (programs/iterations.c); the slower one does 3% more of it. Each comparison is
what `stackhound bench gate` does with two commands, with the time it is given here. The targets are for 200 comparisons
between equals and five minutes each; fewer and shorter ones say less.

Control: a slowdown of 50% must be found.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import compile_program
from harness.report import Report
from stackhound.bench.comparison import Duel, Side
from stackhound.bench.configuration import Benchmark
from stackhound.bench.gate import INCONCLUSIVE, REGRESSED, decide
from stackhound.bench.verdicts import Limits
from stackhound.errors import TooNoisy

if TYPE_CHECKING:
    from stackhound.bench.comparison import Comparison

#: About 60 ms.
ITERATIONS = 30_000_000
SLOWDOWN = 0.03
CONTROL_SLOWDOWN = 0.5
MOST_ALARMS = 0.01
LEAST_FOUND = 0.95

STATUSES = {0: "passed", REGRESSED: "regression", INCONCLUSIVE: "not clear"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--equal", type=int, default=20, help="comparisons between equals")
    parser.add_argument("--slower", type=int, default=20, help="comparisons with one that is slower by 3%%")
    parser.add_argument("--seconds", type=float, default=30.0, help="for each comparison")
    parser.add_argument("--check", action="store_true", help="one of each, and 30 seconds for it")
    options = parser.parse_args()
    equal, slower, seconds = (1, 1, 30.0) if options.check else (options.equal, options.slower, options.seconds)
    report = Report("regressions", {"equal": equal, "slower": slower, "seconds": seconds, "iterations": ITERATIONS})
    program = str(compile_program("iterations.c"))
    control = compare(program, CONTROL_SLOWDOWN, seconds, 0)
    counted = {
        "equal": Counter(compare(program, 0.0, seconds, seed) for seed in range(equal)),
        "3% slower": Counter(compare(program, SLOWDOWN, seconds, seed) for seed in range(slower)),
    }
    show(report, counted)
    judge(report, counted)
    report.control(f"a slowdown of {CONTROL_SLOWDOWN:.0%}", control, control == "regression")
    report.finish()


def compare(program: str, slowdown: float, seconds: float, seed: int) -> str:
    """What the gate says."""
    commands = (program, str(ITERATIONS)), (program, str(round(ITERATIONS * (1 + slowdown))))
    measures = ("wall", "cpu")
    with tempfile.TemporaryDirectory() as name:
        a, b = (Side(Path(name), (Benchmark("work", command, measures=measures),)) for command in commands)
        comparison: Comparison = Duel(a, b, seconds=seconds, seed=seed).compare()
    try:
        return STATUSES[decide(comparison, Limits(), strict=True).status]
    except TooNoisy:
        return "too noisy"


def show(report: Report, counted: dict[str, Counter[str]]) -> None:
    columns = ("comparisons", *STATUSES.values(), "too noisy")
    rows = [(name, *(str(counts[status]) for status in columns[1:])) for name, counts in counted.items()]
    report.table("what the gate said", columns, rows, {name: dict(counts) for name, counts in counted.items()})


def judge(report: Report, counted: dict[str, Counter[str]]) -> None:
    for name, what, wanted in (
        ("equal", "false alarms", f"at most {MOST_ALARMS:.0%}"),
        ("3% slower", "slowdowns of 3% that are found", f"at least {LEAST_FOUND:.0%}"),
    ):
        found, total = counted[name]["regression"], counted[name].total()
        met = found <= MOST_ALARMS * total if name == "equal" else found >= LEAST_FOUND * total
        report.target(what, wanted, f"{found} of {total}", met)


if __name__ == "__main__":
    main()
