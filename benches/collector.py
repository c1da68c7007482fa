"""What the collector takes: CPU and memory at 99 Hz, the whole of a busy machine.

    .venv/bin/python benches/collector.py [--check]

Each collector runs by itself for half a minute beside the same mix of programs, which start others again and again;
stackhound also beside programs that do not. Its CPU time is counted from when it has settled to before it is told to
end, its memory at the end of that; what it takes from its start to its exit is in a column of its own.

Control: a process that works 10 ms in each second and holds 64 MB must be measured as 1% and 64 MB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.build import STACKHOUND, build_example, compile_bpf
from harness.load import lasting_mix, real_mix
from harness.process_cost import cpu_ns, resident_bytes
from harness.report import Report
from stackhound import load

if TYPE_CHECKING:
    from collections.abc import Callable

HZ = 99
TARGET_CPU_PERCENT = 0.1
TARGET_MB = 64
TARGET_SAMPLE_US = 15
SETTLING_S = 5.0
OURS = "stackhound"
LASTING = "stackhound, where no program starts or ends"
#: A process that takes what it says it takes.
PLANTED_CPU_PERCENT = 1.0
PLANTED_MB = 64
PLANTED = f"""
import time
held = bytearray({PLANTED_MB} << 20)
held[::4096] = b"x" * len(held[::4096])
while True:
    begin = time.thread_time()
    while time.thread_time() < begin + {PLANTED_CPU_PERCENT / 100}:
        pass
    time.sleep(1 - {PLANTED_CPU_PERCENT / 100})
"""


@dataclass(frozen=True)
class Cost:
    cpu_percent: float
    resident_mb: float
    whole_cpu_s: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--check", action="store_true", help="two seconds, to see that it runs")
    options = parser.parse_args()
    seconds = 2.0 if options.check else options.seconds
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell, and inherited
    report = Report("collector", {"hz": HZ, "seconds": seconds})
    with tempfile.TemporaryDirectory() as directory:
        starts = collectors(Path(directory))  # what is to be compiled, is compiled on a quiet machine
        with real_mix():
            costs = {name: measure(spawn, seconds) for name, spawn in starts.items()}
            sample_us = cost_of_a_sample(Path(directory, "a.hound"))
        with lasting_mix():
            costs[LASTING] = measure(starts[OURS], seconds)
    show(report, costs)
    judge(report, costs, sample_us)
    report.finish()


def collectors(directory: Path) -> dict[str, Callable[[], subprocess.Popen[bytes]]]:
    """How to start each; SIGINT ends all of them."""
    tutorial = (build_example("attach"), compile_bpf("tutorial"), str(HZ))
    found: dict[str, tuple[str | Path, ...]] = {
        OURS: (STACKHOUND, "record", "-F", str(HZ), "-o", directory / "a.hound"),
        "perf record -a -g": ("perf", "record", "-a", "-g", "-F", str(HZ), "-o", directory / "perf.data"),
        "tutorial": tutorial,
        "planted": (sys.executable, "-c", PLANTED),
    }
    if shutil.which("bpftrace"):
        program = f"profile:hz:{HZ} {{ @[comm, kstack, ustack] = count(); }}"
        found["bpftrace"] = ("bpftrace", "-o", directory / "bpftrace.txt", "-e", program)
    return {name: lambda command=command: spawn(command) for name, command in found.items()}


def spawn(command: tuple[str | Path, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def measure(spawn_it: Callable[[], subprocess.Popen[bytes]], seconds: float) -> Cost:
    process = spawn_it()
    time.sleep(SETTLING_S)
    begin_ns, begin_s = cpu_ns(process.pid), time.monotonic()
    time.sleep(seconds)
    cpu_percent = (cpu_ns(process.pid) - begin_ns) / 1e7 / (time.monotonic() - begin_s)
    resident_mb = resident_bytes(process.pid) / 1e6
    process.send_signal(signal.SIGINT)
    usage = os.wait4(process.pid, 0)[2]
    process.returncode = 0  # reaped here, for its usage
    return Cost(cpu_percent, resident_mb, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6)


def cost_of_a_sample(path: Path) -> float:
    """In the BPF program, caches as the mix leaves them: µs, the mean of the runs that timed themselves."""
    return load(path).metadata["cost"]["bpf_ns_per_run"] / 1000


def show(report: Report, costs: dict[str, Cost]) -> None:
    rows = [
        (name, f"{cost.cpu_percent:.3f}", f"{cost.resident_mb:.0f}", f"{cost.whole_cpu_s:.2f}", f"{cost.peak_mb:.0f}")
        for name, cost in costs.items()
    ]
    columns = ("collector", "% of a CPU", "resident, MB", "CPU from start to exit, s", "peak, MB")
    report.table(f"collectors at {HZ} Hz, whole system", columns, rows, costs)


def judge(report: Report, costs: dict[str, Cost], sample_us: float) -> None:
    ours, planted = costs[OURS], costs["planted"]
    wanted = f"≤ {TARGET_CPU_PERCENT}% of a CPU"
    for name, cost in (("", ours), (", where no program starts or ends", costs[LASTING])):
        cpu = cost.cpu_percent
        report.target(f"collector's CPU{name}", wanted, f"{cpu:.3f}%", cpu <= TARGET_CPU_PERCENT)
    memory = ours.resident_mb
    report.target("collector's memory", f"≤ {TARGET_MB} MB", f"{memory:.0f} MB", memory <= TARGET_MB)
    wanted = f"≤ {TARGET_SAMPLE_US} µs"
    report.target("a sample on the mix, cold caches", wanted, f"{sample_us:.1f} µs", sample_us <= TARGET_SAMPLE_US)
    cpu_is_seen = abs(planted.cpu_percent - PLANTED_CPU_PERCENT) < 0.1
    report.control("1% that was planted is seen", f"{planted.cpu_percent:.2f}%", cpu_is_seen)
    memory_is_seen = PLANTED_MB < planted.resident_mb < 1.5 * PLANTED_MB
    report.control("64 MB that were planted are seen", f"{planted.resident_mb:.0f} MB with Python", memory_is_seen)


if __name__ == "__main__":
    main()
