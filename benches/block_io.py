"""How exact requests to block devices are, and what recording them costs.

    .venv/bin/python benches/block_io.py [--check]

A program reads, writes and flushes a loop device of its own, on a file that is read and written past the page cache
(tests/fixtures/workloads/requests.c). What is recorded of that device is held against what the kernel has counted of
it (/sys/block/…/stat): requests, bytes, and the sum of their times. Beside it: libbpf-tools' biolatency, where it is.

Then a program on each CPU reads at random, past its own page cache, from a loop device whose file is cached: as many
requests as the kernel gets done. Windows of a second with a recorder alternate with windows without one (ABBA); the
slowdown is what they read less.

Controls: the kernel counts what the program says that it did; windows without a recorder against windows without one
show no difference.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from harness.bpf_statistics import holds_links
from harness.build import OUTPUT, REPOSITORY, STACKHOUND, compile_program
from harness.disk import DiskCounts, disk_counts, loop_device
from harness.estimate import Estimate, estimate
from harness.load import working
from harness.machine import cpus
from harness.report import Report
from harness.samplers import LONG_SETTLING_S, Nothing, Process, Sampler, Stackhound
from harness.waiting import wait_until
from harness.windows import Round, Window, measure_rounds
from stackhound import load
from stackhound.profile.requests import request_totals

HZ = 1  # of the event cpu beside it, by which the harness sees that a recording has begun
WINDOW_S = 1.0
COUNT = 2_000  # of reads, of writes, of flushes
COUNTED_S = 0.1  # a request is counted a moment after whoever waits for it has gone on
TARGET_TIME = 0.02
REQUESTS = REPOSITORY / "tests" / "fixtures" / "workloads" / "requests.c"
SITES = ("read", "write", "flush")
BASE, CONTROL, OURS, PEER = "nothing", "nothing again", "stackhound -e block-io", "biolatency"


class Sums(NamedTuple):
    """Of one device. Times in milliseconds."""

    requests: int
    bytes: int
    ms: float


class Biolatency(Process):
    """libbpf-tools' histogram of latencies, counted in the kernel, without stacks."""

    name = PEER

    def __init__(self, program: str, *options: str) -> None:
        self._command = (program, *options)

    def spawn(self, hz: int, directory: Path) -> subprocess.Popen[bytes]:
        del hz
        with (directory / "out").open("wb") as output:
            return subprocess.Popen(self._command, stdout=output, stderr=subprocess.DEVNULL)

    def is_ready(self) -> bool:
        return holds_links(self._process.pid)

    def finish(self) -> int:
        """End it; how many requests its histograms have."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        text = Path(self._directory, "out").read_text()
        shutil.rmtree(self._directory)
        return sum(int(count) for count in re.findall(r"^ *\d+ -> \d+ +: (\d+) ", text, re.MULTILINE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10, help="pairs of rounds")
    parser.add_argument("--check", action="store_true", help="one pair, to see that it runs")
    options = parser.parse_args()
    pairs = 1 if options.check else options.pairs
    report = Report("block_io", {"pairs": pairs, "window_s": WINDOW_S, "count": COUNT})
    peer = shutil.which("biolatency")
    if peer is None:
        report.note("biolatency (libbpf-tools) is not here")
    with loop_device(direct=True) as device:
        compare_counts(report, device, peer)
    with loop_device(direct=False) as device:
        compare_rates(report, device, peer, pairs)
    report.finish()


# --- What is recorded, and what the kernel has counted ----------------------------------------------------------------


def compare_counts(report: Report, device: Path, peer: str | None) -> None:
    program = OUTPUT / "requests"
    subprocess.run(("gcc", "-O2", "-g", "-o", program, REQUESTS), check=True)
    workload = (program, str(device), str(COUNT), *SITES)
    before = disk_counts(device)
    truth, recorded = record(workload, device)
    time.sleep(COUNTED_S)
    counted = disk_counts(device).since(before)
    kernel = {
        "read": Sums(counted.reads, counted.read_bytes, counted.read_ms),
        "write, flush": Sums(counted.writes, counted.write_bytes, counted.write_ms),
    }
    rows = [
        (name, who, f"{sums.requests:,}", f"{sums.bytes:,}", f"{sums.ms:,.1f}")
        for name in kernel
        for who, sums in (("the kernel", kernel[name]), ("recorded", recorded[name]))
    ]
    report.table("requests to a device", ("operation", "by", "requests", "bytes", "ms"), rows,
                 {"kernel": kernel, "recorded": recorded})  # fmt: skip
    judge_counts(report, kernel, recorded)
    said = sum(truth[name] for name in SITES)
    report.control("the kernel counts what the program did", f"{counted.reads + counted.writes:,} of {said:,}",
                   counted.reads + counted.writes == said)  # fmt: skip
    if peer:
        compare_peer(report, peer, workload, device)


def judge_counts(report: Report, kernel: dict[str, Sums], recorded: dict[str, Sums]) -> None:
    off = sum(abs(recorded[name].requests - kernel[name].requests) for name in kernel)
    report.target("requests", "exact", f"off by {off}", off == 0)
    off = sum(abs(recorded[name].bytes - kernel[name].bytes) for name in kernel)
    report.target("their bytes", "exact", f"off by {off}", off == 0)
    worst = max(abs(recorded[name].ms / kernel[name].ms - 1) for name in kernel)
    report.target("the sum of their times", f"within {TARGET_TIME:.0%}", f"{worst:.2%}", worst <= TARGET_TIME)


def record(workload: tuple[str | Path, ...], device: Path) -> tuple[dict[str, int], dict[str, Sums]]:
    """What the program says of itself, and what is recorded of the device."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "a.hound")
        command = (STACKHOUND, "record", "--as-root", "-e", "block-io", "-o", path, "--", *workload)
        done = subprocess.run(command, check=True, capture_output=True, input="go\n", text=True)
        totals = [one for one in request_totals(load(path)) if one.device == device.name]
    sums = {
        name: Sums(
            sum(one.requests for one in totals if one.operation in name.split(", ")),
            sum(one.bytes for one in totals if one.operation in name.split(", ")),
            sum(one.latency_ns for one in totals if one.operation in name.split(", ")) / 1e6,
        )
        for name in ("read", "write, flush")
    }
    told = (line.split() for line in done.stdout.splitlines()[1:])
    return {name: int(value) for name, value in told}, sums


def compare_peer(report: Report, peer: str, workload: tuple[str | Path, ...], device: Path) -> None:
    biolatency = Biolatency(peer, "-d", device.name)
    biolatency.start(HZ)
    time.sleep(LONG_SETTLING_S)
    before = disk_counts(device)
    subprocess.run(workload, check=True, capture_output=True, input="go\n", text=True)
    time.sleep(COUNTED_S)
    counted: DiskCounts = disk_counts(device).since(before)
    found = biolatency.finish()
    wanted = counted.reads + counted.writes
    report.note(f"biolatency -d {device.name} counts {found:,} requests where the kernel counts {wanted:,}")


# --- What it costs ----------------------------------------------------------------------------------------------------


def compare_rates(report: Report, device: Path, peer: str | None, pairs: int) -> None:
    program = compile_program("random_reads.c")
    ours = Stackhound("-e", "cpu,block-io", name=OURS)
    peers: list[Sampler] = [Biolatency(peer)] if peer else []
    samplers = [Nothing(BASE), Nothing(CONTROL), ours, *peers]
    with working(lambda path: (program, path, device), cpus()) as reading:
        wait_until("the first reads", reading.have_begun)
        rounds = measure_rounds(samplers, HZ, reading, pairs, WINDOW_S, LONG_SETTLING_S)
    slowdowns = {sampler.name: slowdown(sampler.name, rounds) for sampler in samplers[1:]}
    reads = estimate([rate(one[BASE]) for one in rounds])
    report.table(
        f"slowdown at {reads.written(0)} requests a second (trimmed mean, 95% interval)",
        ("recorder", "slowdown, %"),
        [(name, found.written()) for name, found in slowdowns.items()],
        slowdowns | {"requests_per_s": reads},
    )
    control = slowdowns[CONTROL]
    report.control("nothing against nothing", control.written(), control.low <= 0 <= control.high)


def rate(window: Window) -> float:
    return window.work.pieces / window.wall_s


def slowdown(name: str, rounds: list[Round]) -> Estimate:
    """In percent, by the clock on the wall."""
    return estimate([100 * (1 - rate(one[name]) / rate(one[BASE])) for one in rounds])


if __name__ == "__main__":
    main()
