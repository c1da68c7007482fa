"""Whether the shares are true: a program that spends 10, 20, 30 and 40% of its time under four functions.

    .venv/bin/python benches/shares.py [--check]

The truth is known by the work done (programs/shares.c). stackhound and perf each record it for 10,000 samples, in
turns.

Control: the same program with its shares reversed must be seen as that.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import STACKHOUND, compile_program
from harness.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterable

HZ = 999
SAMPLES = 10_000
TARGET_POINTS = 1.0
FUNCTIONS = ("work_a", "work_b", "work_c", "work_d")
TRUTH = (10, 20, 30, 40)
REVERSED = TRUTH[::-1]

#: Samples under each function.
Counts = Counter[str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="a tenth of the samples, once")
    options = parser.parse_args()
    samples, turns = (SAMPLES // 10, 1) if options.check else (SAMPLES, options.turns)
    report = Report("shares", {"hz": HZ, "samples": samples, "turns": turns, "truth_percent": TRUTH})
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        counted = {
            f"{recorder.__name__.removeprefix('record_with_')}, {turn + 1}": recorder(directory, TRUTH, samples)
            for turn in range(turns)
            for recorder in (record_with_stackhound, record_with_perf)
        }
        control = record_with_stackhound(directory, REVERSED, samples // 5)
    show(report, counted)
    judge(report, counted, control)
    report.finish()


def command(shares: tuple[int, ...], samples: int) -> tuple[str, ...]:
    return (str(compile_program("shares.c")), str(samples / HZ), *map(str, shares))


def record_with_stackhound(directory: Path, shares: tuple[int, ...], samples: int) -> Counts:
    output = directory / "a.folded"
    run(STACKHOUND, "record", "-F", str(HZ), "-o", output, "--", *command(shares, samples))
    stacks = (line.rpartition(" ") for line in output.read_text().splitlines())
    return count((stack, int(samples)) for stack, _, samples in stacks)


def record_with_perf(directory: Path, shares: tuple[int, ...], samples: int) -> Counts:
    data = directory / "perf.data"
    run("perf", "record", "-g", "-F", str(HZ), "-o", data, *command(shares, samples))
    script = ("perf", "script", "-i", data, "--no-inline", "-F", "ip,sym")
    shown = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    return count((stack, 1) for stack in shown.split("\n\n"))


def run(*line: str | Path) -> None:
    subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def count(stacks: Iterable[tuple[str, int]]) -> Counts:
    counts: Counts = Counter()
    for stack, samples in stacks:
        counts.update({name: samples for name in FUNCTIONS if name in stack})
    return counts


def percentages(counts: Counts) -> list[float]:
    return [100 * counts[name] / counts.total() for name in FUNCTIONS]


def worst_error(counts: Counts, truth: tuple[int, ...]) -> float:
    """In points."""
    return max(abs(got - true) for got, true in zip(percentages(counts), truth, strict=True))


def show(report: Report, counted: dict[str, Counts]) -> None:
    rows = [("truth", "", *(f"{share:.2f}" for share in TRUTH), "")]
    for name, counts in counted.items():
        shares = (f"{share:.2f}" for share in percentages(counts))
        rows.append((name, f"{counts.total():,}", *shares, f"{worst_error(counts, TRUTH):.2f}"))
    columns = ("", "samples", *(f"{name}, %" for name in FUNCTIONS), "worst error, points")
    data = {name: dict(counts) for name, counts in counted.items()}
    report.table("shares of functions whose work is known", columns, rows, data)


def judge(report: Report, counted: dict[str, Counts], control: Counts) -> None:
    worst = max(worst_error(counts, TRUTH) for name, counts in counted.items() if name.startswith("stackhound"))
    got, wanted = f"{worst:.2f} points", f"within {TARGET_POINTS:.0f} point"
    report.target("shares of functions with known truth", wanted, got, worst <= TARGET_POINTS)
    seen = worst_error(control, REVERSED)
    report.control("reversed shares are seen as reversed", f"{seen:.2f} points from them", seen < 5)
    mistaken = worst_error(control, TRUTH)
    report.control("and not as the others", f"{mistaken:.2f} points", mistaken > TARGET_POINTS)


if __name__ == "__main__":
    main()
