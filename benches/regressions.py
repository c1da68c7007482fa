"""Whether `stackhound bench` can be trusted: false alarms between equals, and slowdowns of 3% that are found.

    .venv/bin/python benches/regressions.py [--check] [--equal N] [--slower N] [--counts N] [--seconds S]
                                            [--continue] [--stop-after S]

A program does the same work in each run (programs/iterations.c); the slower one does 3% more of it. Each comparison is
what `stackhound bench gate` does with two commands, with the time it is given here, of which most comparisons need a
few seconds. Each answer is kept in target/benches/regressions.jsonl, so that it can be done in parts: with
``--continue``, comparisons of the same length that are there are not made again; with ``--stop-after`` none begins that
late, and the report is of those there are.

Counts by valgrind, of a program that makes 1,000 turns and allocations (programs/counted.c): with an instruction a turn
more, with an allocation more in all, and with neither, each side in a directory of its own.

Control: a slowdown of 50% must be found.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import OUTPUT, compile_program
from harness.report import Report
from stackhound.bench.comparison import Duel, Side
from stackhound.bench.configuration import Benchmark
from stackhound.bench.gate import INCONCLUSIVE, REGRESSED, decide
from stackhound.bench.measures import Measure, known_measure
from stackhound.bench.verdicts import Limits
from stackhound.errors import TooNoisy

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackhound.bench.comparison import Comparison

#: About 60 ms.
ITERATIONS = 30_000_000
SLOWDOWN = 0.03
CONTROL_SLOWDOWN = 0.5
MOST_ALARMS = 0.01
LEAST_FOUND = 0.95
TURNS = 1000
#: What counted.c does more.
PLANTED = {"equal counts": 0, "an instruction a turn": 1, "an allocation in all": 2}
COUNTS = {
    "callgrind-instructions": Measure("callgrind-instructions", "count", exact=True),
    "allocations": known_measure("allocations"),
}
PROGRESS = OUTPUT / "regressions.jsonl"

STATUSES = {0: "passed", REGRESSED: "regression", INCONCLUSIVE: "not clear"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--equal", type=int, default=200, help="comparisons between equals")
    parser.add_argument("--slower", type=int, default=100, help="comparisons with one that is slower by 3%%")
    parser.add_argument("--counts", type=int, default=20, help="comparisons of each kind by counts")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each comparison")
    parser.add_argument("--continue", dest="goes_on", action="store_true", help="go on where an earlier run ended")
    parser.add_argument("--stop-after", type=float, default=3600.0, help="seconds after which none is begun")
    parser.add_argument("--check", action="store_true", help="one of each, and 30 seconds for it")
    options = parser.parse_args()
    equal, slower, counts = (1, 1, 1) if options.check else (options.equal, options.slower, options.counts)
    seconds = 30.0 if options.check else options.seconds
    settings = {"equal": equal, "slower": slower, "counts": counts, "seconds": seconds, "iterations": ITERATIONS}
    report = Report("regressions", settings)
    program = str(compile_program("iterations.c"))
    control = compare(program, CONTROL_SLOWDOWN, seconds, 0)
    journal = Journal(time.monotonic() + options.stop_after, options.goes_on)
    counted = {
        name: journal.count((slowdown, seconds, ITERATIONS), wanted, partial(compare, program, slowdown, seconds))
        for name, slowdown, wanted in (("equal", 0.0, equal), ("3% slower", SLOWDOWN, slower))
    }
    counting = compile_program("counted.c")
    for name, planted in PLANTED.items():
        counted[name] = journal.count((name, TURNS), counts, partial(compare_counts, counting, planted))
    show(report, counted)
    judge(report, counted)
    report.control(f"a slowdown of {CONTROL_SLOWDOWN:.0%}", control, control == "regression")
    report.finish()


class Journal:
    """Answers of comparisons, a line of JSON each."""

    def __init__(self, end: float, goes_on: bool) -> None:
        self.end = end
        PROGRESS.parent.mkdir(parents=True, exist_ok=True)
        lines = PROGRESS.read_text().splitlines() if goes_on and PROGRESS.exists() else []
        self.answers = {tuple(key): answer for key, answer in map(json.loads, lines)}
        if not goes_on:
            PROGRESS.write_text("")

    def count(self, kind: tuple[float | str, ...], comparisons: int, answer: Callable[[int], str]) -> Counter[str]:
        """The answers to so many comparisons of a kind, each by its seed; fewer where the time is over."""
        keys = [(*kind, seed) for seed in range(comparisons)]
        for seed, key in enumerate(keys):
            if key not in self.answers and time.monotonic() < self.end:
                self._add(key, answer(seed))
        return Counter(self.answers[key] for key in keys if key in self.answers)

    def _add(self, key: tuple[float | str, ...], answer: str) -> None:
        self.answers[key] = answer
        with PROGRESS.open("a") as out:
            out.write(json.dumps([key, answer]) + "\n")


def compare(program: str, slowdown: float, seconds: float, seed: int) -> str:
    """What the gate says."""
    commands = (program, str(ITERATIONS)), (program, str(round(ITERATIONS * (1 + slowdown))))
    measures = ("wall", "cpu")
    with tempfile.TemporaryDirectory() as name:
        a, b = (Side(Path(name), (Benchmark("work", command, measures=measures),)) for command in commands)
        return decide_on(Duel(a, b, seconds=seconds, seed=seed).compare())


def compare_counts(program: Path, planted: int, seed: int) -> str:
    """What the gate says of counts, each side with its own copy in its own directory."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        a, b = (
            Side(
                Path(shutil.copy(program, name)).parent,
                (Benchmark("work", ("./counted", str(TURNS), str(kind)), measures=tuple(COUNTS), warmups=0),),
            )
            for name, kind in ((one, 0), (other, planted))
        )
        return decide_on(Duel(a, b, COUNTS, seed=seed).compare())


def decide_on(comparison: Comparison) -> str:
    try:
        return STATUSES[decide(comparison, Limits(), strict=True).status]
    except TooNoisy:
        return "too noisy"


def show(report: Report, counted: dict[str, Counter[str]]) -> None:
    columns = ("comparisons", *STATUSES.values(), "too noisy")
    rows = [(name, *(str(counts[status]) for status in columns[1:])) for name, counts in counted.items()]
    report.table("what the gate said", columns, rows, {name: dict(counts) for name, counts in counted.items()})


def judge(report: Report, counted: dict[str, Counter[str]]) -> None:
    for name, what, most, least in (
        ("equal", "false alarms", MOST_ALARMS, 0.0),
        ("3% slower", "slowdowns of 3% that are found", 1.0, LEAST_FOUND),
        ("equal counts", "false alarms of counts", 0.0, 0.0),
        ("an instruction a turn", "one more instruction an iteration that is found", 1.0, 1.0),
        ("an allocation in all", "one more allocation that is found", 1.0, 1.0),
    ):
        found, total = counted[name]["regression"], counted[name].total()
        if total == 0:
            continue
        wanted = f"at least {least:.0%}" if least else f"at most {most:.0%}"
        report.target(what, wanted, f"{found} of {total}", least * total <= found <= most * total)


if __name__ == "__main__":
    main()
