"""Whether Python's part of the stacks is true: shares, callers, lines, in each CPython of this machine, beside py-spy.

    .venv/bin/python benches/python_truth.py [--check]

A program spends 10, 20, 30 and 40% of its time under four functions (programs/python_mix.py): arithmetic, a C
extension, callbacks from C, a generator. It measures itself what each took. stackhound and py-spy (as it is, and
--native) each record it for 10,000 samples at 999 Hz, in turns.

A stack is whole when its Python functions are all there, from the module to the one that ran, in their order. A line is
right when it is one that the function can be at; of a caller, the line of its call.

Control: the same figures with two functions' names exchanged, which must all be wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import tempfile
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import BENCHES, STACKHOUND
from harness.interpreters import interpreters
from harness.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    import stackhound

    #: Records a program that waits for a line, for so many seconds, with a directory to write to.
    Recorder = Callable[[subprocess.Popen[str], float, Path], "Counter[Stack]"]

HZ = 999
SAMPLES = 10_000
TARGET_POINTS = 1.0
TARGET_PERCENT = 99.5
PROGRAM = BENCHES / "programs" / "python_mix.py"
#: Python functions of the program by who calls them; what they call beyond is not the program's.
CALLERS = {
    "main": "<module>", "arithmetic": "main", "encoding": "main", "sorting": "main", "generating": "main",
    "callback": "sorting", "generator": "generating",
}  # fmt: skip
WAYS = ("arithmetic", "encoding", "sorting", "generating")

#: A Python function of the program and its line; a stack of them, root first.
Place = tuple[str, int]
Stack = tuple[Place, ...]


@dataclass
class Truth:
    """How far one recording is true."""

    samples: int
    worst_error_points: float
    whole_percent: float
    lines_percent: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="a tenth of the samples")
    options = parser.parse_args()
    samples = SAMPLES // 10 if options.check else SAMPLES
    report = Report("python_truth", {"hz": HZ, "samples": samples})
    recorders: dict[str, Recorder] = {"stackhound": with_stackhound}
    if spy := shutil.which("py-spy", path=STACKHOUND.parent):
        recorders["py-spy"] = partial(with_py_spy, spy, ())
        recorders["py-spy --native"] = partial(with_py_spy, spy, ("--native",))
    found, control = {}, None
    for name, python in interpreters().items():
        for recorder, record in recorders.items():
            stacks, used_s = run(python, samples / HZ, record)
            if not stacks:
                continue  # it cannot read this version
            found[f"{name}, {recorder}"] = judge_stacks(stacks, used_s)
            if recorder == "stackhound":
                control = judge_stacks(exchange(stacks), used_s)
    show(report, found)
    judge(report, found, control)
    report.finish()


def run(python: Path, seconds: float, record: Recorder) -> tuple[Counter[Stack], dict[str, float]]:
    """Record the program; returns Python's part of the stacks, root first, and what each way took."""
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen((python, PROGRAM, str(seconds)), stdin=pipe, stdout=pipe, text=True) as program,
    ):
        program.stdout.readline()
        stacks = record(program, seconds, Path(directory))
        used_s = json.loads(program.stdout.read())
    return stacks, used_s


def go(program: subprocess.Popen[str]) -> None:
    program.stdin.write("\n")
    program.stdin.flush()


def with_stackhound(program: subprocess.Popen[str], seconds: float, directory: Path) -> Counter[Stack]:
    del seconds, directory
    import stackhound

    with stackhound.record(pids=[program.pid], frequency_hz=HZ) as recording:
        go(program)
        while recording.wait(1.0) == "timeout":
            pass
    return places_of(recording.profile)


def places_of(profile: stackhound.Profile) -> Counter[Stack]:
    frames = profile.frames_with_lines
    tree = profile.tree(lines=True)
    paths: dict[int, Stack] = {0: ()}
    counts: Counter[Stack] = Counter()
    each_ns = 1_000_000_000 // HZ
    for node in range(1, len(tree)):
        frame = int(tree.frame[node])
        is_ours = frames.kind[frame] == "python" and frames.file[frame] == str(PROGRAM)
        name = frames.name[frame].removeprefix(f"{PROGRAM.stem}.")
        place = ((name, int(frames.line[frame])),) if is_ours else ()
        paths[node] = paths[int(tree.parent[node])] + place
        counts[paths[node]] += round(int(tree.self_value[node]) / each_ns)
    return +counts


def with_py_spy(
    spy: str, options: tuple[str, ...], program: subprocess.Popen[str], seconds: float, directory: Path
) -> Counter[Stack]:
    output = directory / "py-spy.txt"
    command = (spy, "record", "-r", str(HZ), "-d", str(int(seconds) + 5), "-f", "raw", "-o", output, *options)
    with subprocess.Popen(
        (*command, "-p", str(program.pid)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as it:
        go(program)
        it.wait()
    counts: Counter[Stack] = Counter()
    for line in output.read_text().splitlines() if output.exists() else ():
        stack, _, count = line.rpartition(" ")
        frames = (re.fullmatch(r"(.*) \((.*):(\d+)\)", frame) for frame in stack.split(";"))
        ours = [(one[1], int(one[3])) for one in frames if one and one[2].endswith(PROGRAM.name)]
        counts[tuple(ours)] += int(count)
    return counts


def exchange(stacks: Counter[Stack]) -> Counter[Stack]:
    other = {"arithmetic": "generating", "generating": "arithmetic"}
    exchanged: Counter[Stack] = Counter()
    for stack, count in stacks.items():
        exchanged[tuple((other.get(name, name), line) for name, line in stack)] += count
    return exchanged


def judge_stacks(stacks: Counter[Stack], used_s: dict[str, float]) -> Truth:
    """Of the samples that ran one of the ways: the rest is the program's start and end."""
    ours = {stack: count for stack, count in stacks.items() if set(WAYS) & {name for name, _ in stack}}
    total = sum(ours.values())
    shares = Counter(dict.fromkeys(WAYS, 0))
    for stack, count in ours.items():
        shares.update(dict.fromkeys({name for name, _ in stack} & set(WAYS), count))
    errors = [abs(shares[way] / total - used_s[way] / sum(used_s.values())) for way in WAYS]
    whole = sum(count for stack, count in ours.items() if is_whole(stack))
    lines, right = 0, 0
    for stack, count in ours.items():
        lines += count * len(stack)
        right += count * sum(line in LINES[name] for name, line in stack)
    return Truth(total, 100 * max(errors), 100 * whole / total, 100 * right / lines)


def is_whole(stack: Stack) -> bool:
    names = [name for name, _ in stack]
    callers = [CALLERS.get(name) for name in names]
    return callers == [None, *names[:-1]] and names[0] == "<module>"


def lines_of_functions() -> dict[str, set[int]]:
    """Where each function is: lines that say so."""
    lines = defaultdict(set)
    for number, text in enumerate(PROGRAM.read_text().splitlines(), 1):
        if mark := re.search(r"# at (\S+)$", text):
            lines[mark[1]].add(number)
    return lines


LINES = lines_of_functions()


def show(report: Report, found: dict[str, Truth]) -> None:
    rows = [
        (
            name,
            f"{one.samples:,}",
            f"{one.worst_error_points:.2f}",
            f"{one.whole_percent:.2f}",
            f"{one.lines_percent:.2f}",
        )
        for name, one in found.items()
    ]
    columns = ("interpreter and recorder", "samples", "worst share, points off", "stacks whole, %", "lines right, %")
    report.table("Python's part of the stacks", columns, rows, {name: asdict(one) for name, one in found.items()})


def judge(report: Report, found: dict[str, Truth], control: Truth | None) -> None:
    ours = [one for name, one in found.items() if name.endswith("stackhound")]
    worst = max(one.worst_error_points for one in ours)
    report.target(
        "shares of Python functions", f"within {TARGET_POINTS:.0f} point", f"{worst:.2f}", worst <= TARGET_POINTS
    )
    whole = min(one.whole_percent for one in ours)
    wanted = f"≥ {TARGET_PERCENT}%"
    report.target("Python's part complete, in its place", wanted, f"{whole:.2f}%", whole >= TARGET_PERCENT)
    lines = min(one.lines_percent for one in ours)
    report.target("lines of Python right", wanted, f"{lines:.2f}%", lines >= TARGET_PERCENT)
    if control is not None:
        seen = control.worst_error_points > 10 and control.whole_percent < 90 and control.lines_percent < 95
        got = f"{control.worst_error_points:.0f} points, {control.whole_percent:.0f}%, {control.lines_percent:.0f}%"
        report.control("exchanged names are found out", got, seen)


if __name__ == "__main__":
    main()
