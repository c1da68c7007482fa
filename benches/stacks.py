"""Whether stacks reach their root, and what a walk takes: programs as distributions build them.

    .venv/bin/python benches/stacks.py [--check]

C++ and Rust without frame pointers, Go, the distribution's Python, Node, and whatever else runs on the machine, sampled
by stackhound (unwind tables; frame pointers alone) and by perf (frame pointers; copies of 8 KiB of each stack) in turn.
A stack is complete when its outermost function is where a thread begins. Languages that are not installed are left out.

Then the whole sample, 30 frames deep, in the program's own time: the walk is a part of it.

Control: without its tables stackhound must lose roots, and so must perf without copies.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.bpf_statistics import bpf_statistics
from harness.build import BENCHES, OUTPUT, STACKHOUND
from harness.estimate import estimate
from harness.load import end, start, workers
from harness.report import Report
from harness.samplers import Design, Stackhound
from harness.windows import measure_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HZ = 499
SETTLING_S = 3.0
TARGET_PERCENT = 99.0
WALK_HZ = 9_999
WALK_FRAMES = 27  # and main, the C library's two, _start
TARGET_WALK_NS = 3_000

TABLES, FRAME_POINTERS, PERF_FP, PERF_DWARF = "stackhound", "stackhound, fp", "perf, fp", "perf, dwarf"

#: The function that a thread begins with. Go's and V8's runtimes begin their own.
ROOTS = re.compile(
    r"^(_start|_dl_start_user|__?clone3?|start_thread|thread_start|runtime\.(goexit|mstart|rt0_go|mcall|gcBgMarkWorker|"
    r"morestack|systemstack|sigreturn).*|_rt0_.*|ret_from_fork.*)$"
)
KERNEL_ROOTS = re.compile(r"^(ret_from_fork_asm|ret_from_fork|kthread)$")


@dataclass
class Counts:
    """Samples of user processes by program: all, and those that reach a root."""

    all: Counter[str]
    complete: Counter[str]

    def percent(self, program: str | None = None) -> float:
        whole = self.all.total() if program is None else self.all[program]
        found = self.complete.total() if program is None else self.complete[program]
        return 100 * found / max(1, whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--pairs", type=int, default=6, help="pairs of rounds of the walk's cost")
    parser.add_argument("--check", action="store_true", help="two seconds each, to see that it runs")
    options = parser.parse_args()
    seconds, pairs = (2.0, 1) if options.check else (options.seconds, options.pairs)
    report = Report("stacks", {"hz": HZ, "seconds": seconds, "walk_frames": WALK_FRAMES, "pairs": pairs})
    with tempfile.TemporaryDirectory() as name:
        commands = mix(int(8 * (seconds + SETTLING_S) + 60))
        counts = {sampler: sample(record, commands, seconds, Path(name)) for sampler, record in SAMPLERS.items()}
    show(report, counts, list(commands))
    judge(report, counts)
    measure_walk(report, pairs)
    report.finish()


def mix(seconds: int) -> dict[str, tuple[str | Path, ...]]:
    """A program of each language that is there, by the name that its threads have."""
    compilers = {
        "callers-c++": ("g++", "-O2", "-g", "-fomit-frame-pointer", "callers.cpp", ("20", str(seconds))),
        "callers-rs": ("rustc", "-O", "-g", "callers.rs", (str(seconds),)),
        "callers-go": ("go", "build", "callers.go", (str(seconds),)),
    }
    programs = BENCHES / "programs"
    found: dict[str, tuple[str | Path, ...]] = {}
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for name, (compiler, *flags, source, arguments) in compilers.items():
        if shutil.which(compiler):
            program = OUTPUT / name
            subprocess.run((compiler, *flags, "-o", program, programs / str(source)), check=True)
            found[name] = (program, *arguments)
    for name, interpreter, source in (("python3", "/usr/bin/python3", "callers.py"), ("node", "node", "callers.js")):
        if shutil.which(interpreter):
            found[name] = (interpreter, programs / source, str(seconds))
    return found


@contextmanager
def running(commands: dict[str, tuple[str | Path, ...]]) -> Iterator[None]:
    processes = [start(command) for command in commands.values()]
    time.sleep(SETTLING_S)
    try:
        yield
    finally:
        end(processes)


def sample(
    record: Callable[[float, Path], Counts],
    commands: dict[str, tuple[str | Path, ...]],
    seconds: float,
    directory: Path,
) -> Counts:
    with running(commands):
        return record(seconds, directory)


def record_with_stackhound(seconds: float, directory: Path, *options: str) -> Counts:
    output = directory / "a.folded"
    run(STACKHOUND, "record", "-F", str(HZ), "-d", f"{seconds:g}", "-o", output, "--no-lines", *options)
    counts = Counts(Counter(), Counter())
    for line in output.read_text().splitlines():
        stack, _, samples = line.rpartition(" ")
        comm, *frames = stack.split(";")
        count(counts, comm, frames, int(samples))
    return counts


def record_with_perf(seconds: float, directory: Path, mode: str) -> Counts:
    data = directory / "perf.data"
    run("perf", "record", "-a", "--call-graph", mode, "-F", str(HZ), "-o", data, "--", "sleep", str(seconds))
    script = ("perf", "script", "-i", data, "--no-inline", "-F", "comm,ip,sym")
    shown = subprocess.run(script, capture_output=True, text=True, check=True, errors="replace").stdout
    counts = Counts(Counter(), Counter())
    for block in shown.split("\n\n"):
        comm, *lines = block.strip("\n").split("\n")
        names = [([*line.split(maxsplit=1), ""])[1].partition("+")[0] for line in lines]
        count(counts, comm.strip(), names[::-1], 1)
    return counts


def count(counts: Counts, comm: str, frames: list[str], samples: int) -> None:
    """One stack, root first. Kernel threads and idle CPUs have no user stack."""
    if not frames or KERNEL_ROOTS.match(frames[0]) or comm.startswith("swapper"):
        return
    counts.all[comm] += samples
    if ROOTS.match(frames[0].removesuffix("_[i]")):
        counts.complete[comm] += samples


SAMPLERS: dict[str, Callable[[float, Path], Counts]] = {
    TABLES: record_with_stackhound,
    FRAME_POINTERS: lambda seconds, directory: record_with_stackhound(seconds, directory, "--call-graph", "fp"),
    PERF_FP: lambda seconds, directory: record_with_perf(seconds, directory, "fp"),
    PERF_DWARF: lambda seconds, directory: record_with_perf(seconds, directory, "dwarf,8192"),
}


def run(*line: str | Path) -> None:
    subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def show(report: Report, counts: dict[str, Counts], programs: list[str]) -> None:
    rows = []
    for program in (*programs, None):
        cells = [f"{found.percent(program):.2f}" for found in counts.values()]
        rows.append(
            (program or "all", f"{counts[TABLES].all[program] if program else counts[TABLES].all.total():,}", *cells)
        )
    data = {name: {"all": dict(found.all), "complete": dict(found.complete)} for name, found in counts.items()}
    columns = ("program", "samples", *(f"{name}, %" for name in counts))
    report.table("stacks that reach their root", columns, rows, data)


def judge(report: Report, counts: dict[str, Counts]) -> None:
    percent = counts[TABLES].percent()
    met = percent >= TARGET_PERCENT
    report.target("stacks that reach their root", f"≥ {TARGET_PERCENT:.0f}%", f"{percent:.2f}%", met)
    for name in (FRAME_POINTERS, PERF_FP):
        lost = counts[name].percent("callers-c++")
        report.control(f"{name} loses the roots of callers-c++", f"{lost:.1f}% reach it", lost < 50)


def measure_walk(report: Report, pairs: int) -> None:
    samplers = [
        Design("empty", "empty program"),
        Stackhound("--call-graph", "fp", name="frame pointers"),
        Stackhound(name="tables"),
    ]
    with workers(WALK_FRAMES) as load, bpf_statistics():
        rounds = measure_rounds(samplers, WALK_HZ, load, pairs, 0.5)
    costs = {sampler.name: estimate([one[sampler.name].ns_a_run for one in rounds]) for sampler in samplers}
    rows = [(name, cost.written(0)) for name, cost in costs.items()]
    report.table(
        f"a sample {WALK_FRAMES + 3} frames deep at {WALK_HZ:,} Hz", ("walk by", "in the program, ns"), rows, costs
    )
    whole = costs["tables"]
    wanted = f"≤ {TARGET_WALK_NS:,} ns"
    report.target(
        "a whole sample with a walk of 30 frames", wanted, f"{whole.written(0)} ns", whole.mean <= TARGET_WALK_NS
    )
    report.control(
        "an empty program takes less", costs["empty program"].written(0), costs["empty program"].high < whole.low
    )


if __name__ == "__main__":
    main()
