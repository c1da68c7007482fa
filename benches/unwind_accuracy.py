"""How often the walk of user stacks finds what an independent unwinder finds, frame by frame.

    .venv/bin/python benches/unwind_accuracy.py [--check] [--stacks N]

Programs of all kinds run one after the other; each is stopped again and again, and at each stop taken through some
dozen single instructions, so that prologues, epilogues and PLT entries are met as often as they are long. For each
stack the walker of bpf/stack/unwind.h, compiled for user space and given the tables that the kernel would have, and
gimli, which evaluates the call frame information of the very files with all registers, start from the same registers
and the same memory (crates/replay).

Frames that were found by frame pointers, for want of call frame information, are counted apart: of those nobody knows
better. So are those behind the last frame that gimli can find: in code without call frame information, and behind
functions of Go's runtime that switch stacks. One wrong frame makes all behind it wrong.

Controls: with one rule in the tables wrong by 8 bytes, and with frame pointers alone, the same comparison must fail.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.build import OUTPUT, REPOSITORY, build_example, cargo_environment
from harness.load import end, start
from harness.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

STACKS = 110_000
CHECK_STACKS = 2_600
#: Single instructions at each stop.
STEPS = 100
TARGET = 0.999
#: A control has failed unless so much differs.
MIN_CONTROL = 0.001
CONTROL_STACKS = 4_000
#: For what it takes until a program is at work.
START_S = 0.5
#: A program that stands still more often than it moves gives fewer stacks.
PATIENCE_S = 60
KINDS = (
    "deep",
    "endless",
    "dynamic",
    "realigned",
    "sorted",
    "strings",
    "signals",
    "alternate",
    "ticked",
    "threads",
    "clocks",
)
CONTROL_PROGRAMS = ("deep", "sorted", "strings")

PYTHON = """
import hashlib, json, re
while True:
    hashlib.sha256(bytes(100_000)); re.findall("(a+)+b", "a" * 14); sorted(range(999), key=lambda n: -n)
    json.loads(json.dumps({"a": [1, 2.5, None] * 20}))
"""
NODE = """
const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));
for (;;) {
  fib(18); JSON.parse(JSON.stringify({a: [1, 2, 3]})); "abcabc".replace(/b+/g, "x"); new Array(999).fill(3).sort();
}
"""
SHELL = 'while :; do for i in 1 2 3; do x=$((i * i)); [[ "$x y" =~ ^[0-9]+\\ y$ ]]; done; done'
#: Programs of the distribution, with what makes them work.
DISTRIBUTION: dict[str, Sequence[str]] = {
    "python3": ("/usr/bin/python3", "-c", PYTHON),
    "node": ("node", "-e", NODE),
    "openssl": ("openssl", "speed", "-seconds", "60", "sha256", "aes-256-gcm", "rsa2048", "ecdsap256"),
    "bash": ("bash", "-c", SHELL),
    "perl": (
        "perl",
        "-e",
        'while (1) { my %h = map { $_ => "x$_" } 1..99; my $s = join ",", sort keys %h; $s =~ s/1+/y/g }',
    ),
    "xz": ("sh", "-c", "exec xz -9 -c < /dev/urandom > /dev/null"),
    "dbus-daemon": ("dbus-daemon", "--session", "--nofork", "--address=unix:path={directory}/bus"),
}
#: What keeps a daemon at work.
CLIENTS = {
    "dbus-daemon": "while :; do dbus-send --bus=unix:path={directory}/bus --print-reply --dest=org.freedesktop.DBus / "
    "org.freedesktop.DBus.ListNames; done"
}


@dataclass(frozen=True)
class Program:
    name: str
    command: Sequence[str | Path]
    client: Sequence[str] | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stacks", type=int, default=STACKS)
    parser.add_argument("--check", action="store_true", help="few stacks, to see that everything runs")
    options = parser.parse_args()
    stacks = CHECK_STACKS if options.check else options.stacks
    walker = build_example("unwind_accuracy")
    with tempfile.TemporaryDirectory() as directory:
        programs, missing = find_programs(Path(directory))
        report = Report("unwind_accuracy", {"stacks": stacks, "steps": STEPS, "missing": missing})
        found = {one.name: compare(walker, "right", one, stacks // len(programs)) for one in programs}
        of_control = [one for one in programs if one.name in CONTROL_PROGRAMS]
        controls = {rules: run_control(walker, rules, of_control) for rules in ("shifted", "frame-pointers")}
    if missing:
        report.note(f"not on this machine: {', '.join(missing)}")
    show(report, found)
    judge(report, found, controls)
    report.finish()


def find_programs(directory: Path) -> tuple[list[Program], list[str]]:
    """What can run here, and what cannot."""
    realign = ("-mstackrealign",) if platform.machine() == "x86_64" else ()
    frames = compile_source("frames.c", "gcc", "-O2", "-fomit-frame-pointer", "-pthread", *realign)
    programs = [Program(kind, (frames, kind)) for kind in KINDS]
    programs.append(Program("exceptions", (compile_source("exceptions.cpp", "g++", "-O2", "-fomit-frame-pointer"),)))
    programs.append(Program("rust", (compile_source("work.rs", "rustc", "-O"),)))
    if shutil.which("go"):
        programs.append(Program("go", (compile_source("work.go", "go", "build"),)))
    for name, command in DISTRIBUTION.items():
        if shutil.which(command[0]):
            programs.append(distribution_program(name, command, directory))
    known = {program.name for program in programs}
    return programs, [name for name in ("go", *DISTRIBUTION) if name not in known]


def distribution_program(name: str, command: Sequence[str], directory: Path) -> Program:
    client = CLIENTS.get(name)
    filled = [word.replace("{directory}", str(directory)) for word in command]
    return Program(name, filled, client and ("sh", "-c", client.replace("{directory}", str(directory))))


def compile_source(source: str, *command: str) -> Path:
    path = REPOSITORY / "crates" / "replay" / "programs" / source
    OUTPUT.mkdir(parents=True, exist_ok=True)
    target = OUTPUT / path.name.replace(".", "-")
    subprocess.run((*command, "-o", target, path), env=cargo_environment(), check=True)
    return target


def compare(walker: Path, rules: str, program: Program, stacks: int) -> dict[str, Any]:
    """What the walker's example says of one program, while that runs."""
    commands = (program.command, program.client) if program.client else (program.command,)
    processes = [start(command) for command in commands]
    try:
        time.sleep(START_S)
        command = (walker, rules, str(stacks), str(STEPS), str(PATIENCE_S), f"{program.name}={processes[0].pid}")
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        end(processes)
    found = json.loads(output)
    return {**found["programs"].get(program.name, {"stacks": 0}), "differences": found["differences"]}


def run_control(walker: Path, rules: str, programs: Sequence[Program]) -> float:
    """The share of frames that differ."""
    found = [compare(walker, rules, program, CONTROL_STACKS // len(programs)) for program in programs]
    return 1 - share_equal(found)


def share_equal(found: Sequence[dict[str, Any]]) -> float:
    equal, different = (sum(one.get(key, 0) for one in found) for key in ("equal", "different"))
    return equal / (equal + different)


def show(report: Report, found: dict[str, dict[str, Any]]) -> None:
    columns = (
        "program",
        "stacks",
        "equal",
        "frames",
        "by frame pointers",
        "gimli cannot know",
        "different",
        "frames equal",
        "reach the root",
    )
    rows = [
        (
            name,
            f"{one['stacks']:,}",
            f"{one['equal_stacks']:,}",
            f"{one['equal']:,}",
            f"{one['equal_by_frame_pointers']:,}",
            f"{one['beyond']:,}",
            f"{one['different']:,}",
            f"{share_equal([one]):.3%}",
            f"{one['rooted'] / one['stacks']:.1%}",
        )
        for name, one in found.items()
        if one["stacks"]
    ]
    report.table("walks, beside gimli's", columns, rows, found)
    show_differences(report, [difference for one in found.values() for difference in one["differences"]])


def show_differences(report: Report, differences: Sequence[dict[str, Any]]) -> None:
    columns = ("where the walks part", "address", "program", "the walker", "gimli", "frames", "stacks")
    ordered = sorted(differences, key=lambda difference: -difference["frames"])
    rows = [
        (
            f"{Path(one['object']).name} {one['function']}",
            one["address"],
            one["program"],
            one["walker"],
            one["oracle"],
            f"{one['frames']:,}",
            f"{one['stacks']:,}",
        )
        for one in ordered[:30]
    ]
    if rows:
        report.table("differences, most frames first", columns, rows, ordered)


def judge(report: Report, found: dict[str, dict[str, Any]], controls: dict[str, float]) -> None:
    every = list(found.values())
    stacks = sum(one["stacks"] for one in every)
    frames = sum(one.get("equal", 0) + one.get("different", 0) for one in every)
    equal = share_equal(every)
    what = f"frames equal to an independent unwinder's ({frames:,} of {stacks:,} stacks)"
    report.target(what, f"≥ {TARGET:.1%}", f"{equal:.4%}", equal >= TARGET)
    report.control("one rule wrong by 8 bytes differs", f"{controls['shifted']:.1%}", controls["shifted"] > MIN_CONTROL)
    alone = controls["frame-pointers"]
    report.control("frame pointers alone differ", f"{alone:.1%}", alone > MIN_CONTROL)


if __name__ == "__main__":
    main()
