"""Whether `stackhound bench` can be trusted: false alarms between equals, and slowdowns of 3% that are found.

    .venv/bin/python benches/regressions.py [--check] [--equal N] [--slower N] [--seconds S]
                                            [--continue] [--stop-after S]

A program does the same work in each run (programs/iterations.c); the slower one does 3% more of it. Each comparison is
what `stackhound bench gate` does with two commands, with the time it is given here, of which most comparisons need a
few seconds. Each answer is kept in target/benches/regressions.jsonl, so that it can be done in parts: with
``--continue``, comparisons of the same length that are there are not made again; with ``--stop-after`` none begins that
late, and the report is of those there are.

Control: a slowdown of 50% must be found.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import OUTPUT, compile_program
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
PROGRESS = OUTPUT / "regressions.jsonl"

STATUSES = {0: "passed", REGRESSED: "regression", INCONCLUSIVE: "not clear"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--equal", type=int, default=200, help="comparisons between equals")
    parser.add_argument("--slower", type=int, default=100, help="comparisons with one that is slower by 3%%")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each comparison")
    parser.add_argument("--continue", dest="goes_on", action="store_true", help="go on where an earlier run ended")
    parser.add_argument("--stop-after", type=float, default=3600.0, help="seconds after which none is begun")
    parser.add_argument("--check", action="store_true", help="one of each, and 30 seconds for it")
    options = parser.parse_args()
    equal, slower, seconds = (1, 1, 30.0) if options.check else (options.equal, options.slower, options.seconds)
    report = Report("regressions", {"equal": equal, "slower": slower, "seconds": seconds, "iterations": ITERATIONS})
    program = str(compile_program("iterations.c"))
    control = compare(program, CONTROL_SLOWDOWN, seconds, 0)
    journal = Journal(seconds, time.monotonic() + options.stop_after, options.goes_on)
    counted = {
        "equal": journal.count(program, 0.0, equal),
        "3% slower": journal.count(program, SLOWDOWN, slower),
    }
    show(report, counted)
    judge(report, counted)
    report.control(f"a slowdown of {CONTROL_SLOWDOWN:.0%}", control, control == "regression")
    report.finish()


class Journal:
    """Answers of comparisons that took so many seconds each, a line of JSON each."""

    def __init__(self, seconds: float, end: float, goes_on: bool) -> None:
        self.seconds, self.end = seconds, end
        PROGRESS.parent.mkdir(parents=True, exist_ok=True)
        lines = PROGRESS.read_text().splitlines() if goes_on and PROGRESS.exists() else []
        self.answers = {tuple(key): answer for key, answer in map(json.loads, lines)}
        if not goes_on:
            PROGRESS.write_text("")

    def count(self, program: str, slowdown: float, comparisons: int) -> Counter[str]:
        """The answers to so many comparisons; fewer where the time is over."""
        keys = [(slowdown, self.seconds, ITERATIONS, seed) for seed in range(comparisons)]
        for key in keys:
            if key not in self.answers and time.monotonic() < self.end:
                self._add(key, compare(program, slowdown, self.seconds, key[-1]))
        return Counter(self.answers[key] for key in keys if key in self.answers)

    def _add(self, key: tuple[float, float, int, int], answer: str) -> None:
        self.answers[key] = answer
        with PROGRESS.open("a") as out:
            out.write(json.dumps([key, answer]) + "\n")


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
        if total == 0:
            continue
        met = found <= MOST_ALARMS * total if name == "equal" else found >= LEAST_FOUND * total
        report.target(what, wanted, f"{found} of {total}", met)


if __name__ == "__main__":
    main()
