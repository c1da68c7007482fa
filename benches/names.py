"""How fast addresses get their names: by symbol tables alone, and with lines and inlined functions.

    .venv/bin/python benches/names.py [--check]

A million different addresses of one ELF file, the program that measures it (crates/core/examples/names.rs, Rust with
debug information), go through the code that ends a recording, which has read nothing of the file before. GNU addr2line
gets some of the same addresses.

Control: function and line must be those that addr2line finds, and those of addresses a page further on must not be.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.build import build_example
from harness.report import Report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COUNTS = {"names": 1_000_000, "lines": 200_000}
TARGETS = {"names": 1_000_000, "lines": 200_000}
#: addr2line's flags that give the same.
PEER_FLAGS = {"names": "-f", "lines": "-fi"}
PAGE_BYTES = 4096
MIN_AGREEMENT = 0.95
#: Lines that happen to have the same number.
MAX_MISTAKEN = 0.2


@dataclass(frozen=True)
class Lookup:
    """One run: what it took, and some of what it found as {address: (function, line)}."""

    addresses: int
    seconds: float
    memory_bytes: int
    rows: int
    misses: int
    found: dict[int, tuple[str, int]]

    @property
    def per_second(self) -> float:
        return self.addresses / self.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="a tenth of the addresses, once")
    options = parser.parse_args()
    share, repeats = (10, 1) if options.check else (1, options.repeats)
    program = build_example("names")
    report = Report("names", {"file_bytes": program.stat().st_size, "repeats": repeats})
    lookups = {what: best(program, count // share, what, repeats) for what, count in COUNTS.items()}
    peers = {what: time_peer(program, list(lookups["lines"].found), flags) for what, flags in PEER_FLAGS.items()}
    show(report, lookups, peers)
    judge(report, lookups, program)
    report.finish()


def best(program: Path, count: int, what: str, repeats: int) -> Lookup:
    """The fastest of some runs: whatever else runs here can only slow it down."""
    return max((look_up(program, count, what) for _ in range(repeats)), key=lambda lookup: lookup.per_second)


def look_up(program: Path, count: int, what: str) -> Lookup:
    command = (program, program, str(count), what)
    summary, *shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    addresses, seconds, memory_bytes, rows, misses = summary.split()
    fields = (line.split("\t") for line in shown)
    found = {int(address, 16): (function, int(line)) for address, function, line in fields}
    return Lookup(int(addresses), float(seconds), int(memory_bytes), int(rows), int(misses), found)


def time_peer(program: Path, addresses: Sequence[int], flags: str) -> float:
    """Addresses a second."""
    begin = time.monotonic()
    ask_peer(program, addresses, flags)
    return len(addresses) / (time.monotonic() - begin)


def ask_peer(program: Path, addresses: Sequence[int], flags: str) -> str:
    command = ("addr2line", flags, "-e", program)
    text = "\n".join(map(hex, addresses))
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def show(report: Report, lookups: dict[str, Lookup], peers: dict[str, float]) -> None:
    rows = [
        (
            {"names": "names", "lines": "lines and inlined functions"}[what],
            f"{lookup.addresses:,}",
            f"{lookup.per_second:,.0f}",
            f"{lookup.rows / lookup.addresses:.1f}",
            f"{lookup.misses:,}",
            f"{lookup.memory_bytes / 1e6:.0f}",
            f"{peers[what]:,.0f}",
        )
        for what, lookup in lookups.items()
    ]
    columns = ("", "addresses", "a second", "functions each", "misses", "memory, MB", "addr2line, a second")
    report.table("from addresses to names", columns, rows, {"stackhound": lookups, "addr2line_a_second": peers})


def judge(report: Report, lookups: dict[str, Lookup], program: Path) -> None:
    for what, lookup in lookups.items():
        wanted, got = TARGETS[what], lookup.per_second
        report.target(f"{what} a second", f"≥ {wanted:,}", f"{got:,.0f}", got >= wanted)
    found = lookups["lines"].found
    right = agreement(program, found, 0)
    report.control("addr2line finds the same lines", f"{right:.1%} of {len(found):,}", right >= MIN_AGREEMENT)
    wrong = agreement(program, found, PAGE_BYTES)
    report.control("and others a page further on", f"{wrong:.1%}", wrong < MAX_MISTAKEN)


def agreement(program: Path, found: dict[int, tuple[str, int]], shift_bytes: int) -> float:
    """The share of addresses where addr2line gives the same line for the address so many bytes further on."""
    answers = ask_peer(program, [address + shift_bytes for address in found], "-f").splitlines()
    peers = (line.split(" ")[0].rpartition(":")[2].replace("?", "0") for line in answers[1::2])
    return sum(int(peer) == line for peer, (_, line) in zip(peers, found.values(), strict=True)) / len(found)


if __name__ == "__main__":
    main()
