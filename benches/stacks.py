"""Whether stacks reach their root, whether frames have names, what a walk takes: programs as distributions build them.

    .venv/bin/python benches/stacks.py [--check]

C++ and Rust without frame pointers, Go, the distribution's Python, Node, and whatever else runs on the machine, sampled
by stackhound (unwind tables; frame pointers alone) and by perf (frame pointers; copies of 8 KiB of each stack) in turn.
A stack is complete when its outermost function is where a thread begins. Languages that are not installed are left out.

Of the same samples: which frames have a name, in files that have a symbol table or a debug file on this machine, and in
the others.

Of programs that live for milliseconds, a shell that starts one after the other: how many stacks stackhound calls
complete (these programs have no symbols, so that no name tells a root).

Then the whole sample, 30 frames deep, in the program's own time: the walk is a part of it.

Control: without its tables stackhound must lose roots, and so must perf without copies; frames of files without symbols
must have fewer names.
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
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.bpf_statistics import bpf_statistics
from harness.build import BENCHES, OUTPUT, STACKHOUND
from harness.estimate import estimate
from harness.load import end, start, workers
from harness.report import Report
from harness.samplers import Design, Stackhound
from harness.windows import measure_rounds
from stackhound import load
from stackhound.profile.completeness import count_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HZ = 499
SETTLING_S = 3.0
TARGET_PERCENT = 99.0
WALK_HZ = 9_999
WALK_FRAMES = 27  # and main, the C library's two, _start
TARGET_WALK_NS = 3_000
TARGET_NAMED_PERCENT = 99.0

TABLES, FRAME_POINTERS, PERF_FP, PERF_DWARF = "stackhound", "stackhound, fp", "perf, fp", "perf, dwarf"

#: The function that a thread begins with. Go's and V8's runtimes begin their own.
ROOTS = re.compile(
    r"^(_start|_dl_start_user|__?clone3?|start_thread|thread_start|runtime\.(goexit|mstart|rt0_go|mcall|gcBgMarkWorker|"
    r"morestack|systemstack|sigreturn).*|_rt0_.*|ret_from_fork.*)$"
)
#: An address, the function there, its file: ``7f3a10002000 malloc (/usr/lib/libc.so.6)``.
PERF_FRAME = re.compile(r"\s*[0-9a-f]+ (.*) \(([^()]*(?:\(deleted\))?)\)")
KERNEL_ENTRY = re.compile(r"^(entry_SYSCALL_64_after_hwframe|entry_SYSCALL_64|asm_\w+|el0t_64_sync)(_\[k\])?$")
KERNEL_ROOTS = re.compile(r"^(ret_from_fork_asm|ret_from_fork|kthread)$")


#: Programs that live for milliseconds.
BRIEF_HZ = 999
BRIEF = ("ls /usr/bin", "grep -c x /etc/passwd", "sed s/a/b/ /etc/passwd", "sort /etc/services")


@dataclass
class Counts:
    """Samples of user processes by program: all, and those that reach a root. Frames by file: all, the named ones."""

    all: Counter[str] = field(default_factory=Counter)
    complete: Counter[str] = field(default_factory=Counter)
    frames: Counter[str] = field(default_factory=Counter)
    named: Counter[str] = field(default_factory=Counter)

    def percent(self, program: str | None = None) -> float:
        whole = self.all.total() if program is None else self.all[program]
        found = self.complete.total() if program is None else self.complete[program]
        return 100 * found / max(1, whole)

    def named_percent(self, *, with_symbols: bool) -> float:
        files = [file for file in self.frames if has_symbols(file) == with_symbols]
        return 100 * sum(self.named[file] for file in files) / max(1, sum(self.frames[file] for file in files))


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
        show_brief(report, seconds, Path(name))
    show(report, counts, list(commands))
    show_names(report, counts)
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
    profile, folded = directory / "a.hound", directory / "a.folded"
    run(STACKHOUND, "record", "-F", str(HZ), "-d", f"{seconds:g}", "-o", profile, "--no-lines", *options)
    run(STACKHOUND, "export", profile, "-o", folded)
    counts = Counts()
    for line in folded.read_text().splitlines():
        stack, _, samples = line.rpartition(" ")
        comm, *frames = stack.split(";")
        count(counts, comm, frames, int(samples))
    count_names(counts, profile)
    return counts


def count_names(counts: Counts, path: Path) -> None:
    """Frames of files, each as often as it was sampled."""
    profile = load(path)
    parent, location = (profile.numbers("stacks", name) for name in ("parent", "location"))
    weight = np.bincount(profile.numbers("samples", "stack"), profile.numbers("samples", "count"), len(parent))
    for stack in range(len(parent) - 1, 0, -1):
        weight[parent[stack]] += weight[stack]
    reasons = profile.column("locations", "reason")
    kinds, paths = profile.texts("objects", "kind"), profile.texts("objects", "path")
    frames = np.bincount(location[1:], weight[1:], len(reasons)).astype(int).tolist()
    for in_object, samples, reason in zip(profile.numbers("locations", "object"), frames, reasons, strict=True):
        if kinds[in_object] == "elf":
            counts.frames[paths[in_object]] += samples
            counts.named[paths[in_object]] += samples if reason is None else 0


def record_with_perf(seconds: float, directory: Path, mode: str) -> Counts:
    data = directory / "perf.data"
    run("perf", "record", "-a", "--call-graph", mode, "-F", str(HZ), "-o", data, "--", "sleep", str(seconds))
    script = ("perf", "script", "-i", data, "--no-inline", "-F", "comm,ip,sym,dso")
    shown = subprocess.run(script, capture_output=True, text=True, check=True, errors="replace").stdout
    counts = Counts()
    for block in shown.split("\n\n"):
        comm, *lines = block.strip("\n").split("\n")
        frames = [found.groups() for found in map(PERF_FRAME.fullmatch, lines) if found]
        count(counts, comm.strip(), [name.partition("+")[0] for name, _ in frames[::-1]], 1)
        for name, file in frames:
            if file.startswith("/"):
                counts.frames[file] += 1
                counts.named[file] += name != "[unknown]"
    return counts


@cache
def has_symbols(path: str) -> bool:
    """Whether a file has a symbol table, or a debug file on this machine."""
    command = ("readelf", "-SnW", path)
    shown = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace").stdout
    build_id = shown.partition("Build ID: ")[2].partition("\n")[0].strip()
    return " .symtab " in shown or Path(f"/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug").is_file()


def count(counts: Counts, comm: str, frames: list[str], samples: int) -> None:
    """One stack, root first. Kernel threads, idle CPUs, and threads at their end or being loaded have no user stack."""
    is_between = any(one.startswith(("do_exit", "do_execveat")) for one in frames) and KERNEL_ENTRY.match(frames[0])
    if not frames or is_between or KERNEL_ROOTS.match(frames[0]) or comm.startswith("swapper"):
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


def show_brief(report: Report, seconds: float, directory: Path) -> None:
    output = directory / "brief.hound"
    with running({"sh": ("sh", "-c", f"while :; do {'; '.join(BRIEF)}; done")}):
        run(STACKHOUND, "record", "-F", str(BRIEF_HZ), "-d", f"{seconds:g}", "-o", output, "--no-lines")
    profile = load(output)
    found = count_ends(profile.samples_of(profile.events[0]))
    whole = sum(found.values())
    rows = [(end, f"{samples:,}", f"{100 * samples / whole:.2f}") for end, samples in found.items()]
    title = f"programs that live for milliseconds, at {BRIEF_HZ} Hz"
    report.table(title, ("stacks", "samples", "%"), rows, found)


def show_names(report: Report, counts: dict[str, Counts]) -> None:
    rows = []
    for name, found in counts.items():
        shares = [f"{found.named_percent(with_symbols=known):.2f}" for known in (True, False)]
        rows.append((name, f"{found.frames.total():,}", *shares))
    data = {name: {"frames": dict(found.frames), "named": dict(found.named)} for name, found in counts.items()}
    columns = ("", "frames of files", "with symbols here: named, %", "without: named, %")
    report.table("frames that have a name", columns, rows, data)


def judge(report: Report, counts: dict[str, Counts]) -> None:
    percent = counts[TABLES].percent()
    met = percent >= TARGET_PERCENT
    report.target("stacks that reach their root", f"≥ {TARGET_PERCENT:.0f}%", f"{percent:.2f}%", met)
    named, others = (counts[TABLES].named_percent(with_symbols=known) for known in (True, False))
    wanted = f"≥ {TARGET_NAMED_PERCENT:.0f}%"
    report.target("frames with a name, in files with symbols", wanted, f"{named:.2f}%", named >= TARGET_NAMED_PERCENT)
    report.control("frames of other files have fewer names", f"{others:.2f}%", others < named)
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
        rounds = measure_rounds(samplers, WALK_HZ, load, pairs, 0.5, counts_runs=True)
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
