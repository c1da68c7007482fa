"""How long the export for the Firefox Profiler takes: 1 M samples with 200 k distinct stacks, from the tables to JSON.

    .venv/bin/python benches/firefox.py [--check]

Target: ≤ 3 s for a profile that nothing was asked of before. Beside it `samply import` of a perf.data with as many
samples; it also reads symbols, which here are in the profile already.

Control: the weights of the samples in the document add up to the samples.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import cargo_program
from harness.report import Report
from stackhound.formats import by_name
from stackhound.profile import Profile
from stackhound.profile.schema import FORMAT_VERSION
from tree import SAMPLES, STACKS, make_tables

if TYPE_CHECKING:
    from arro3.core import Table

TARGET_S = 3.0
PERF_HZ = 25_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--check", action="store_true", help="a hundredth of the size, once")
    options = parser.parse_args()
    scale, turns = (100, 1) if options.check else (1, options.turns)
    tables = make_tables(SAMPLES // scale, STACKS // scale)
    report = Report("firefox", {"turns": turns, "samples": SAMPLES // scale, "stacks": STACKS // scale})
    taken = [export(tables) for _ in range(turns)]
    document = taken[-1][1]
    times = [seconds for seconds, _ in taken]
    rows = [("stackhound", f"{statistics.median(times):.2f}", f"{min(times):.2f}", f"{len(document) / 1e6:.0f}")]
    rows += samply(report, SAMPLES // scale, turns)
    report.table("export for the Firefox Profiler", ("", "median, s", "least, s", "MB"), rows, times)
    weights = sum(sum(thread["samples"]["weight"]) for thread in json.loads(document)["threads"])
    report.control("weights add up to the samples", f"{weights:,}", weights == SAMPLES // scale)
    if not options.check:
        median = statistics.median(times)
        report.target("Firefox export of 1 M samples", f"≤ {TARGET_S:.0f} s", f"{median:.2f} s", median <= TARGET_S)
    report.finish()


def export(tables: dict[str, Table]) -> tuple[float, bytes]:
    """Seconds, and the document."""
    profile = Profile(tables, {"format_version": FORMAT_VERSION})
    out = io.BytesIO()
    begin = time.perf_counter()
    by_name("firefox").write(profile, out)
    return time.perf_counter() - begin, out.getvalue()


def samply(report: Report, samples: int, turns: int) -> list[tuple[str, str, str, str]]:
    """The same of samply, if it can be had."""
    program = cargo_program("samply", "samply")
    if program is None:
        report.note("samply could not be installed: nothing is compared")
        return []
    with tempfile.TemporaryDirectory() as name:
        data, output = Path(name, "perf.data"), Path(name, "profile.json")
        perf = ("perf", "record", "-q", "-a", "-g", "-F", str(PERF_HZ), "-o", data)
        subprocess.run((*perf, "--", "sleep", str(samples / PERF_HZ)), check=True, capture_output=True)
        command = (program, "import", "--save-only", "-o", output, data)
        times = []
        for _ in range(turns):
            begin = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            times.append(time.perf_counter() - begin)
        megabytes = f"{output.stat().st_size / 1e6:.0f}"
    return [("samply import", f"{statistics.median(times):.2f}", f"{min(times):.2f}", megabytes)]


if __name__ == "__main__":
    main()
