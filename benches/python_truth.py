"""Whether Python's part of the stacks is true: shares, callers, lines, in each CPython of this machine, beside py-spy.

    .venv/bin/python benches/python_truth.py [--check]

A program spends 10 to 40% of its time under each of five functions (programs/python_mix.py): arithmetic, a C extension,
callbacks from C, a generator, two lines of 30 and 70%. It measures itself what each took. stackhound and py-spy (as it
is, and --native) each record it for 10,000 samples at 999 Hz, in turns.

Judged are all samples between the program's first and last moment in these functions, also those without any frame of
Python (py-spy tells no times: all that it took). A stack is whole when its Python functions are all there, from the
module to the one that ran, in order, and the recorder does not say that it is cut or had to guess. A line is right
when it is one that the function can be at; of a caller, the line of its call. And the two lines must have their shares.

Controls: the same figures with two functions' names exchanged, which must all be wrong, and with the frames of Python
taken from one sample in a hundred, of which too few must be whole.
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
from typing import TYPE_CHECKING, Any

from harness.build import BENCHES, STACKHOUND
from harness.interpreters import interpreters
from harness.report import Report
from stackhound.profile.schema import SampleFlag
from stackhound.transform.samples import keep_samples

if TYPE_CHECKING:
    from collections.abc import Callable

    import stackhound

    #: Records a program that waits for a line, for so many seconds, with a directory to write to.
    Recorder = Callable[[subprocess.Popen[str], float, Path], "Callable[[dict[str, Any]], Recorded]"]

HZ = 999
SAMPLES = 10_000
TARGET_POINTS = 1.0
#: Of 4,000 samples, which scatter by 0.7.
TARGET_LINE_POINTS = 2.0
TARGET_PERCENT = 99.5
PROGRAM = BENCHES / "programs" / "python_mix.py"
#: Python functions of the program by who calls them; what they call beyond is not the program's.
CALLERS = {
    "main": "<module>", "arithmetic": "main", "encoding": "main", "sorting": "main", "generating": "main",
    "summing": "main", "callback": "sorting", "generator": "generating",
}  # fmt: skip
WAYS = ("arithmetic", "encoding", "sorting", "generating", "summing")

#: A Python function of the program and its line; a stack of them, root first.
Place = tuple[str, int]
Stack = tuple[Place, ...]


@dataclass(frozen=True)
class Recorded:
    """Python's part of the stacks, root first.

    Attributes:
        stacks: of all samples; empty where there is none.
        sure: of those that the recorder does not say to be cut or guessed.
    """

    stacks: Counter[Stack]
    sure: Counter[Stack]


@dataclass
class Truth:
    """How far one recording is true."""

    samples: int
    worst_error_points: float
    whole_percent: float
    lines_percent: float
    line_error_points: float


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
    found: dict[str, Truth] = {}
    exchanged, dropped = None, None
    for name, python in interpreters().items():
        for recorder, record in recorders.items():
            recorded, truth = run(python, samples / HZ, record)
            if not any(recorded.stacks):
                continue  # it cannot read this version
            found[f"{name}, {recorder}"] = judge_stacks(recorded, truth)
            if recorder == "stackhound":
                exchanged = judge_stacks(exchange(recorded), truth)
                dropped = judge_stacks(drop(recorded), truth)
    show(report, found)
    judge(report, found)
    if exchanged and dropped:
        control(report, exchanged, dropped)
    report.finish()


def run(python: Path, seconds: float, record: Recorder) -> tuple[Recorded, dict[str, Any]]:
    """Record the program; returns what was recorded, and what the program says."""
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen((python, PROGRAM, str(seconds)), stdin=pipe, stdout=pipe, text=True) as program,
    ):
        program.stdout.readline()
        recorded = record(program, seconds, Path(directory))
        truth = json.loads(program.stdout.read())
    return recorded(truth), truth


def go(program: subprocess.Popen[str]) -> None:
    program.stdin.write("\n")
    program.stdin.flush()


def with_stackhound(
    program: subprocess.Popen[str], seconds: float, directory: Path
) -> Callable[[dict[str, Any]], Recorded]:
    del seconds, directory
    import stackhound

    with stackhound.record(pids=[program.pid], frequency_hz=HZ) as recording:
        go(program)
        while recording.wait(1.0) == "timeout":
            pass
    return partial(places_between, recording.profile)


def places_between(profile: stackhound.Profile, truth: dict[str, Any]) -> Recorded:
    """Of the samples between the two moments that the program tells."""
    times_ns = profile.numbers("samples", "boottime_ns")
    is_between = (times_ns >= truth["begin_ns"]) & (times_ns <= truth["end_ns"])
    is_sure = (profile.numbers("samples", "flags") & (SampleFlag.PYTHON_CUT | SampleFlag.PYTHON_GUESSED)) == 0
    each = (profile.derive(keep_samples(profile, keep)) for keep in (is_between, is_between & is_sure))
    return Recorded(*map(places_of, each))


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
) -> Callable[[dict[str, Any]], Recorded]:
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
    return lambda _: Recorded(counts, counts)


def exchange(recorded: Recorded) -> Recorded:
    """The recording as if two functions had each other's name."""
    other = {"arithmetic": "generating", "generating": "arithmetic"}
    each = []
    for stacks in (recorded.stacks, recorded.sure):
        exchanged: Counter[Stack] = Counter()
        for stack, count in stacks.items():
            exchanged[tuple((other.get(name, name), line) for name, line in stack)] += count
        each.append(exchanged)
    return Recorded(*each)


def drop(recorded: Recorded) -> Recorded:
    """The recording as if one sample in a hundred had no frames of Python."""
    dropped = sum(recorded.sure.values()) // 100
    stack, _ = max(recorded.sure.items(), key=lambda one: one[1])
    taken = Counter({stack: dropped})
    lost: Counter[Stack] = Counter({(): dropped})
    return Recorded(recorded.stacks - taken + lost, recorded.sure - taken + lost)


def judge_stacks(recorded: Recorded, truth: dict[str, Any]) -> Truth:
    total = sum(recorded.stacks.values())
    ways: Counter[str] = Counter()
    lines, right = 0, 0
    for stack, count in recorded.stacks.items():
        ways.update(dict.fromkeys({name for name, _ in stack} & set(WAYS), count))
        lines += count * len(stack)
        right += count * sum(line in LINES[name] for name, line in stack)
    whole = sum(count for stack, count in recorded.sure.items() if is_whole(stack))
    at_lines = Counter({name: lines_at(recorded, *LINES[name]) for name in truth["lines_s"]})
    return Truth(
        total,
        worst_error_points(ways, truth["used_s"]),
        100 * whole / total,
        100 * right / lines,
        worst_error_points(at_lines, truth["lines_s"]),
    )


def worst_error_points(counted: Counter[str], used_s: dict[str, float]) -> float:
    """Between shares of samples and of time."""
    samples, whole_s = sum(counted.values()), sum(used_s.values())
    return 100 * max(abs(counted[name] / samples - used / whole_s) for name, used in used_s.items())


def lines_at(recorded: Recorded, wanted: int) -> int:
    """The samples whose innermost Python function is at this line of the program."""
    return sum(count for stack, count in recorded.stacks.items() if stack and stack[-1][1] == wanted)


def is_whole(stack: Stack) -> bool:
    names = [name for name, _ in stack]
    callers = [CALLERS.get(name) for name in names]
    return callers == [None, *names][: len(names)] and names[:1] == ["<module>"]


def lines_of_functions() -> dict[str, set[int]]:
    """Where each function, and each line that has a name of its own, is: lines that say so."""
    lines = defaultdict(set)
    for number, text in enumerate(PROGRAM.read_text().splitlines(), 1):
        if mark := re.search(r"# at (.+)$", text):
            for name in mark[1].split(", "):
                lines[name].add(number)
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
            f"{one.line_error_points:.2f}",
        )
        for name, one in found.items()
    ]
    columns = ("interpreter and recorder", "samples", "worst share, points off", "stacks whole, %", "lines right, %",
               "two lines, points off")  # fmt: skip
    report.table("Python's part of the stacks", columns, rows, {name: asdict(one) for name, one in found.items()})


def judge(report: Report, found: dict[str, Truth]) -> None:
    ours = [one for name, one in found.items() if name.endswith("stackhound")]
    for what, points, most in (
        ("shares of Python functions", max(one.worst_error_points for one in ours), TARGET_POINTS),
        ("shares of two lines of one function", max(one.line_error_points for one in ours), TARGET_LINE_POINTS),
    ):
        report.target(what, f"within {most:g} points", f"{points:.2f}", points <= most)
    for what, percent in (
        ("Python's part complete, in its place", min(one.whole_percent for one in ours)),
        ("lines of Python right", min(one.lines_percent for one in ours)),
    ):
        report.target(what, f"≥ {TARGET_PERCENT}%", f"{percent:.2f}%", percent >= TARGET_PERCENT)


def control(report: Report, exchanged: Truth, dropped: Truth) -> None:
    seen = exchanged.worst_error_points > 5 and exchanged.whole_percent < 90 and exchanged.lines_percent < 95
    got = f"{exchanged.worst_error_points:.0f} points, {exchanged.whole_percent:.0f}%, {exchanged.lines_percent:.0f}%"
    report.control("exchanged names are found out", got, seen)
    got = f"{dropped.whole_percent:.2f}%"
    report.control("frames taken from one sample in a hundred are missed", got, dropped.whole_percent < TARGET_PERCENT)


if __name__ == "__main__":
    main()
