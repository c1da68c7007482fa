"""How fast the table of unwind rules of a program is built, how large it is, and how much memory that takes.

    .venv/bin/python benches/unwind.py [--check]

The C library and Node.js, as they are installed; each run is a process of its own (crates/core/examples/unwind.rs),
which has the file in memory already. The best of all runs counts: whatever else runs here can only slow it down.
Beside it gimli's evaluation of the same call frame information, which keeps nothing of what it finds.

Control: the CFA of a sample of addresses must be what readelf says, and that of addresses 16 bytes further on must not.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import build_example
from harness.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Milliseconds to build the table.
TARGETS_MS = {"libc": 3.0, "node": 40.0}
MAX_BYTES_A_ROW = 5
MAX_MEMORY_BYTES = 256 << 20
SAMPLES = 1000
SHIFT_BYTES = 16
#: Where stacks begin, the table says so, and no CFA.
MIN_AGREEMENT = 0.99
#: Code that happens to have the same frame a little further on.
MAX_MISTAKEN = 0.9
#: A row as readelf shows it: address, and register + offset.
ROW = re.compile(r"^([0-9a-f]{16}) (r[sb]p\+\d+) ", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """One process: what it took, and what the table is like."""

    seconds: float
    memory_bytes: int
    rows: int
    rules: int
    functions: int
    table_bytes: int

    @property
    def ms(self) -> float:
        return self.seconds * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--check", action="store_true", help="three runs of each, to see that everything runs")
    options = parser.parse_args()
    repeats = 3 if options.check else options.repeats
    program = build_example("unwind")
    files = find_files()
    report = Report("unwind", {"repeats": repeats, "files": {name: str(path) for name, path in files.items()}})
    runs = {name: {what: best(program, path, what, repeats) for what in ("build", "load", "gimli")}
            for name, path in files.items()}  # fmt: skip
    show(report, runs)
    judge(report, runs)
    check(report, program, files["libc"])
    report.finish()


def find_files() -> dict[str, Path]:
    """The C library that this interpreter runs with, and node, if there is one."""
    maps = Path("/proc/self/maps").read_text()
    libc = re.search(r"/\S*/libc\.so\.6$|/\S*/ld-musl-\S*$", maps, re.MULTILINE)
    if libc is None:
        sys.exit("error: no C library in /proc/self/maps")
    node = shutil.which("node")
    return {"libc": Path(libc[0])} | ({"node": Path(node).resolve()} if node else {})


def best(program: Path, path: Path, what: str, repeats: int) -> Run:
    return min((run(program, path, what) for _ in range(repeats)), key=lambda one: one.seconds)


def run(program: Path, path: Path, what: str) -> Run:
    seconds, *numbers = ask(program, path, what)[0].split()
    return Run(float(seconds), *map(int, numbers))


def ask(program: Path, path: Path, what: str, addresses: Sequence[str] = ()) -> list[str]:
    command = (program, path, what, *addresses)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def show(report: Report, runs: dict[str, dict[str, Run]]) -> None:
    rows = [
        (
            name,
            f"{run['build'].functions:,}",
            f"{run['build'].rows:,}",
            f"{run['build'].rules:,}",
            f"{run['build'].table_bytes / 1e3:,.0f}",
            f"{run['build'].ms:.2f}",
            f"{run['load'].ms:.2f}",
            f"{run['gimli'].ms:.2f}",
            f"{run['build'].memory_bytes / 1e6:.1f}",
        )
        for name, run in runs.items()
    ]
    columns = ("", "functions", "rows", "rules", "table, kB", "built, ms", "loaded, ms", "gimli, ms", "memory, MB")
    report.table("tables of unwind rules", columns, rows, runs)


def judge(report: Report, runs: dict[str, dict[str, Run]]) -> None:
    for name, run in runs.items():
        wanted, build = TARGETS_MS[name], run["build"]
        report.target(f"table of {name}", f"≤ {wanted:.0f} ms", f"{build.ms:.2f} ms", build.ms <= wanted)
        million = build.table_bytes / build.rows
        report.target(f"1 M rows as {name} has them", f"≤ {MAX_BYTES_A_ROW} MB", f"{million:.2f} MB",
                      million <= MAX_BYTES_A_ROW)  # fmt: skip
        report.target(f"memory to build the table of {name}", f"< {MAX_MEMORY_BYTES >> 20} MB",
                      f"{build.memory_bytes / 1e6:.1f} MB", build.memory_bytes < MAX_MEMORY_BYTES)  # fmt: skip


def check(report: Report, program: Path, path: Path) -> None:
    command = ("readelf", "--debug-dump=frames-interp", path)
    said = ROW.findall(subprocess.run(command, capture_output=True, text=True, check=False).stdout)  # warns with 1
    sample = said[:: max(1, len(said) // SAMPLES)]
    right = agreement(program, path, sample, 0)
    report.control("readelf says the same", f"{right:.1%} of {len(sample):,}", right >= MIN_AGREEMENT)
    wrong = agreement(program, path, sample, SHIFT_BYTES)
    report.control(f"and something else {SHIFT_BYTES} bytes further on", f"{wrong:.1%}", wrong < MAX_MISTAKEN)


def agreement(program: Path, path: Path, sample: Sequence[tuple[str, str]], shift_bytes: int) -> float:
    """The share of addresses where the table has what readelf says of those so many bytes before."""
    addresses = [f"{int(address, 16) + shift_bytes:x}" for address, _ in sample]
    found = [line.split("\t")[1] for line in ask(program, path, "build", addresses)[1:]]
    return sum(one == cfa for one, (_, cfa) in zip(found, sample, strict=True)) / len(sample)


if __name__ == "__main__":
    main()
