"""What a recording takes of memory when each absence has another stack: 10,000 of them a second, for a minute.

    .venv/bin/python benches/off_cpu_memory.py [--check]

Threads sleep at the end of random paths of 24 calls (programs/paths.c), of which there are 16 million. Each sleep is a
sample (--off-cpu-exact). The memory is the collector's resident set at the end of sampling, as it says itself, which
/proc is asked about. The most that it takes afterwards, with names, tables, the file and its report, is told, too.

Control: nearly as many distinct stacks are recorded as there were sleeps.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from harness.build import STACKHOUND, compile_program
from harness.report import Report
from stackhound import load

SECONDS = 60
THREADS = 8
TARGET_BYTES = 128 << 20
WANTED_PER_S = 10_000
NAPS_PER_S = 10_500  # not each is recorded as such: a sleep that is over when it begins is none
LEAST_DISTINCT = 0.9  # of the samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of recording")
    parser.add_argument("--check", action="store_true", help="two seconds, to see that it runs")
    arguments = parser.parse_args()
    seconds = 2 if arguments.check else arguments.seconds
    report = Report("off_cpu_memory", {"seconds": seconds, "threads": THREADS})
    program = compile_program("paths.c")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "a.hound")
        command = (program, str(THREADS), str(seconds), str(NAPS_PER_S))
        options = ("--as-root", "-e", "off-cpu", "--off-cpu-exact", "--no-lines", "-o", path)
        recorder = (STACKHOUND, "record", *options, "--", *command)
        start_s = time.monotonic()
        done = subprocess.run(recorder, check=True, capture_output=True, text=True)
        rest_s = time.monotonic() - start_s - seconds
        peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
        profile = load(path)
        file_bytes = path.stat().st_size
    naps = int(done.stdout.split()[0])
    samples, stacks = profile.table("samples").num_rows, len(set(profile.numbers("samples", "stack").tolist()))
    lost = sum(loss.count for loss in profile.losses if not loss.estimated)
    resident_bytes = profile.metadata["cost"]["resident_bytes"]
    rows = [
        ("sleeps a second", f"{naps / seconds:,.0f}"),
        ("samples", f"{samples:,}"),
        ("distinct stacks", f"{stacks:,}"),
        ("lost", f"{lost:,}"),
        ("memory at the end of sampling", f"{resident_bytes / 1e6:,.0f} MB"),
        ("the most, until the file is written", f"{peak_bytes / 1e6:,.0f} MB"),
        ("start and finish", f"{rest_s:.1f} s"),
        ("file", f"{file_bytes / 1e6:,.1f} MB"),
    ]
    data = {"naps": naps, "samples": samples, "stacks": stacks, "lost": lost, "resident_bytes": resident_bytes}
    data |= {"peak_bytes": peak_bytes, "rest_s": rest_s}
    report.table("each absence with a stack of its own", ("", ""), rows, data)
    report.control("stacks are distinct", f"{stacks:,} of {samples:,}", stacks >= LEAST_DISTINCT * samples > 0)
    if seconds >= SECONDS:
        enough = samples / seconds >= WANTED_PER_S
        report.control(f"there are {WANTED_PER_S:,} a second", f"{samples / seconds:,.0f}", enough)
        wanted, got = f"≤ {TARGET_BYTES >> 20} MiB", f"{resident_bytes / (1 << 20):,.0f} MiB"
        report.target("memory at 10,000 distinct stacks a second, 60 s", wanted, got, resident_bytes <= TARGET_BYTES)
    report.finish()


if __name__ == "__main__":
    main()
