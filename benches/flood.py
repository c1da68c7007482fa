"""A minute at 9,999 Hz on a busy machine: what is lost, and what the file takes.

    .venv/bin/python benches/flood.py [--check]

A mix of programs, more than there are CPUs. stackhound records it for a minute, then perf for a quarter of one. The
samples table is counted by its bytes in the .hound file; stacks and names, which grow with the programs and not with
the samples, apart.

Control: a ring of two pages must lose samples, and each must be counted: program entries = idle + filtered + stored +
lost, exactly.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from harness.build import STACKHOUND
from harness.load import real_mix
from harness.report import Report
from stackhound import load

HZ = 9_999
SECONDS = 60.0
TARGET_BYTES = 6.0
TARGET_SAMPLES = 1_000_000
TINY_RING = "8K"
TINY_SECONDS = 3.0
PERF = "perf record -a -g"


@dataclass(frozen=True)
class Flood:
    """What one recording stored and lost."""

    samples: int
    entries: int
    left_out: int
    lost: dict[str, int]
    estimated: dict[str, int]
    table_bytes: dict[str, int]

    @property
    def unaccounted(self) -> int:
        return self.entries - self.left_out - self.samples - sum(self.lost.values())

    @property
    def bytes_a_sample(self) -> float:
        return self.table_bytes["samples"] / self.samples

    @property
    def fixed_bytes(self) -> int:
        return sum(self.table_bytes.values()) - self.table_bytes["samples"]


@dataclass(frozen=True)
class PerfFlood:
    samples: int
    lost: int
    file_bytes: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--check", action="store_true", help="three seconds, to see that it runs")
    options = parser.parse_args()
    seconds = 3.0 if options.check else options.seconds
    report = Report("flood", {"hz": HZ, "seconds": seconds, "tiny_ring": TINY_RING})
    with real_mix(), tempfile.TemporaryDirectory() as directory:
        ours = record(Path(directory), seconds)
        perf = record_with_perf(Path(directory), seconds / 4)
        tiny = record(Path(directory), min(seconds, TINY_SECONDS), "--ring-size", TINY_RING)
    show(report, ours, tiny, perf)
    judge(report, ours, tiny)
    report.finish()


def record(directory: Path, seconds: float, *options: str) -> Flood:
    output = directory / "a.hound"
    run(STACKHOUND, "record", "-F", str(HZ), "-d", str(seconds), "-o", output, *options)
    profile = load(output)
    counters = profile.metadata["counters"]
    with zipfile.ZipFile(output) as archive:
        sizes = {Path(member.filename).stem: member.compress_size for member in archive.infolist()}
    return Flood(
        samples=int(profile.numbers("samples", "count").sum()),
        entries=counters["entries"],
        left_out=counters["idle"] + counters["filtered"],
        lost={loss.cause: loss.count for loss in profile.losses if not loss.estimated},
        estimated={loss.cause: loss.count for loss in profile.losses if loss.estimated},
        table_bytes=sizes,
    )


def record_with_perf(directory: Path, seconds: float) -> PerfFlood:
    output = directory / "perf.data"
    run("perf", "record", "-a", "-g", "-F", str(HZ), "-o", output, "sleep", str(seconds))
    script = ("perf", "script", "-i", output, "--show-lost-events", "-F", "time")
    shown = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    lost = sum(map(int, re.findall(r"PERF_RECORD_LOST\w* lost (\d+)", shown)))
    return PerfFlood(len(re.findall(r"^ *[0-9.]+: *$", shown, re.MULTILINE)), lost, output.stat().st_size)


def run(*command: str | Path) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def show(report: Report, ours: Flood, tiny: Flood, perf: PerfFlood) -> None:
    rows = [
        (name, f"{one.samples:,}", describe(one.lost), describe(one.estimated), f"{one.bytes_a_sample:.2f}")
        for name, one in (("stackhound", ours), (f"its ring {TINY_RING}", tiny))
    ]
    rows.append((PERF, f"{perf.samples:,}", f"{perf.lost:,}", "–", f"{perf.file_bytes / perf.samples:.0f}"))
    columns = ("", "samples", "lost", "estimated beside it", "bytes a sample")
    data = {"stackhound": ours, "tiny_ring": tiny, "perf": perf}
    report.table(f"a busy machine at {HZ:,} Hz", columns, rows, data)
    report.note(f"the fixed part of the .hound file, stacks and names: {ours.fixed_bytes / 1e6:.2f} MB")


def describe(losses: dict[str, int]) -> str:
    return ", ".join(f"{cause} {count:,}" for cause, count in losses.items() if count) or "0"


def judge(report: Report, ours: Flood, tiny: Flood) -> None:
    lost = sum(ours.lost.values())
    report.target(f"lost at {HZ:,} Hz", "0", f"{lost:,} of {ours.entries:,}", lost == 0)
    size = f"{ours.bytes_a_sample:.2f} bytes at {ours.samples:,} samples"
    is_small = ours.bytes_a_sample <= TARGET_BYTES and ours.samples >= TARGET_SAMPLES
    report.target("samples table", f"≤ {TARGET_BYTES:.0f} bytes a sample at {TARGET_SAMPLES:,}", size, is_small)
    for name, flood in (("", ours), (f", ring of {TINY_RING}", tiny)):
        report.control(f"every entry is accounted for{name}", f"{flood.unaccounted} are not", flood.unaccounted == 0)
    report.control("a tiny ring loses samples", describe(tiny.lost), sum(tiny.lost.values()) > 0)


if __name__ == "__main__":
    main()
