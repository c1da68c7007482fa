"""What a crowd costs: the collector's memory with 300 processes and 500 files, and with 500 Python processes.

    .venv/bin/python benches/scale.py [--check]

300 processes have 500 libraries of this system mapped between them, and are recorded by their ids, so that the unwind
tables of all files are made before the first sample. Then the whole system is recorded while 500 interpreters compute
now and then; the profile says what finding each of them took.

Control: a collector that has two processes to record takes less.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.build import STACKHOUND
from harness.process_cost import cpu_ns, resident_bytes
from harness.report import Report
from harness.waiting import wait_until
from stackhound import load
from stackhound.profile.schema import SampleFlag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile import Profile

PROCESSES, FILES, PYTHONS = 300, 500, 500
EACH_MAPS = 24  # libraries of a process
SETTLING_S, SECONDS = 5.0, 10.0
TARGET_MB = 128
TARGET_DETECTION_MS = 5.0
#: Works for a millisecond in each hundred, with some libraries mapped.
PROGRAM = """
import ctypes, sys, time
def work():
    until = time.perf_counter() + 0.001
    while time.perf_counter() < until:
        sum(range(100))
for path in sys.argv[1:]:
    try:
        ctypes.CDLL(path)
    except OSError:
        pass
print("ready", flush=True)
while True:
    work()
    time.sleep(0.5)
"""


@dataclass(frozen=True)
class Cost:
    resident_mb: float
    unwind_mb: float
    cpu_percent: float
    samples: int
    python_percent: float
    detection_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="a tenth of everything")
    options = parser.parse_args()
    scale = 10 if options.check else 1
    report = Report("scale", {"processes": PROCESSES // scale, "files": FILES // scale, "pythons": PYTHONS // scale})
    costs = {}
    with programs(PROCESSES // scale, libraries(FILES // scale)) as pids:
        name = f"{len(pids)} processes, {mapped_files(pids)} files"
        costs[name] = record(pids, "-p", ",".join(map(str, pids)))
        costs["2 of them"] = record(pids, "-p", f"{pids[0]},{pids[1]}")
    with programs(PYTHONS // scale, []) as pids:
        costs[f"{len(pids)} Python processes"] = record(pids)
    show(report, costs)
    judge(report, costs)
    report.finish()


def libraries(count: int) -> list[Path]:
    """Real ones, each with a build of its own."""
    found = {path.resolve() for path in Path("/usr/lib").rglob("*.so*") if path.is_file()}
    return sorted(path for path in found if path.suffix != ".py")[:count]


@contextmanager
def programs(count: int, files: list[Path]) -> Iterator[list[int]]:
    chance = random.Random(1)
    each = [files[at::count] + chance.sample(files, min(EACH_MAPS, len(files))) for at in range(count)]
    started = [
        subprocess.Popen(
            (sys.executable, "-S", "-c", PROGRAM, *some), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        for some in each
    ]
    try:
        yield [one.pid for one in started if one.stdout and one.stdout.readline() == b"ready\n"]
    finally:
        for one in started:
            one.kill()
            one.wait()


def mapped_files(pids: list[int]) -> int:
    """Files of code that these processes have mapped."""
    lines = (line.split() for pid in pids for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
    return len({line[5] for line in lines if len(line) > 5 and "x" in line[1] and line[5].startswith("/")})


def record(pids: list[int], *options: str) -> Cost:
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "a.hound")
        command = (STACKHOUND, "record", *options, "-o", output)
        recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(SETTLING_S)
        begin_ns, begin_s = cpu_ns(recorder.pid), time.monotonic()
        time.sleep(SECONDS)
        cpu_percent = (cpu_ns(recorder.pid) - begin_ns) / 1e7 / (time.monotonic() - begin_s)
        resident_mb = resident_bytes(recorder.pid) / 1e6
        recorder.send_signal(signal.SIGINT)
        wait_until("the recording's end", lambda: recorder.poll() is not None)
        profile = load(output)
    with_frames = share_with_frames(profile, pids)
    cost = profile.metadata["cost"]
    detection_ms = cost["python_attach_ns"] / max(1, cost["python_processes"]) / 1e6
    unwind_mb = cost["unwind_bytes"] / 1e6
    samples = profile.table("samples").num_rows
    return Cost(resident_mb, unwind_mb, cpu_percent, samples, 100 * with_frames, detection_ms)


def share_with_frames(profile: Profile, pids: list[int]) -> float:
    """Of the samples of these processes, once all have been looked at: how many have Python frames."""
    times_ns, flags = (profile.numbers("samples", name) for name in ("boottime_ns", "flags"))
    processes = profile.numbers("threads", "process")[profile.numbers("samples", "thread")]
    is_ours = np.isin(profile.numbers("processes", "pid")[processes], pids)
    chosen = flags[is_ours & (times_ns >= times_ns.min() + int(SETTLING_S * 1e9))]
    return float((chosen & SampleFlag.PYTHON != 0).mean()) if len(chosen) else 0.0


def show(report: Report, costs: dict[str, Cost]) -> None:
    rows = [
        (name, f"{one.resident_mb:.0f}", f"{one.unwind_mb:.0f}", f"{one.cpu_percent:.2f}", f"{one.samples:,}",
         f"{one.python_percent:.1f}")
        for name, one in costs.items()
    ]  # fmt: skip
    columns = ("recorded", "resident, MB", "tables in the kernel, MB", "% of a CPU", "samples", "with Python frames, %")
    report.table("the collector beside a crowd", columns, rows, {name: asdict(one) for name, one in costs.items()})


def judge(report: Report, costs: dict[str, Cost]) -> None:
    crowd, two, pythons = costs.values()
    for what, one in (("processes and files", crowd), ("Python processes", pythons)):
        got = f"{one.resident_mb:.0f} MB"
        report.target(f"resident with {what}", f"≤ {TARGET_MB} MB", got, one.resident_mb <= TARGET_MB)
    each_ms = pythons.detection_ms
    report.target(
        "finding an interpreter", f"≤ {TARGET_DETECTION_MS:.0f} ms", f"{each_ms:.2f} ms", each_ms <= TARGET_DETECTION_MS
    )
    less = f"{two.resident_mb:.0f} beside {crowd.resident_mb:.0f} MB, {two.unwind_mb:.0f} beside {crowd.unwind_mb:.0f}"
    report.control("two processes take less", less, two.unwind_mb < crowd.unwind_mb)


if __name__ == "__main__":
    main()
