"""Programs that start and end a thousand times a second: what of them is lost, known wrongly, and taken to follow them.

    .venv/bin/python benches/exec_storm.py [--check] [--seconds S]

One program starts another so many times a second (tests/fixtures/workloads/storm.c) while the whole machine is sampled
at 99 Hz, by stackhound and by perf in turn. What a recorder says that it lost is counted, records of what processes do
among it; of the samples of these programs, those whose process has another program or command line than they had.

Control: a recorder that is stopped during the storm must lose records, and say so.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.bpf_statistics import is_sampling
from harness.build import OUTPUT, REPOSITORY, STACKHOUND
from harness.process_cost import cpu_ns
from harness.report import Report
from harness.waiting import wait_until
from stackhound import load

if TYPE_CHECKING:
    from stackhound import Profile

STORM: Final = REPOSITORY / "tests" / "fixtures" / "workloads" / "storm.c"
STARTED: Final = "/usr/bin/true"
HZ = 99
RATES = (500, 1_000, 1_500)
SECONDS = 20.0
SETTLING_S = 2.0


@dataclass(frozen=True)
class Storm:
    """One recording of one.

    Attributes:
        programs: that were started.
        a_second: of them.
        lost: records and samples, by what became of them; those that are estimates are left out.
        samples: of the programs that were started.
        wrong: of these, whose program or command line is another one.
        cpu_percent: of one CPU, taken by the recorder in user space.
    """

    programs: int
    a_second: int
    lost: dict[str, int]
    samples: int
    wrong: int
    cpu_percent: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each storm")
    parser.add_argument("--check", action="store_true", help="two seconds of the slowest, to see that it runs")
    options = parser.parse_args()
    seconds, rates = (2.0, RATES[:1]) if options.check else (options.seconds, RATES)
    report = Report("exec_storm", {"hz": HZ, "seconds": seconds, "started": STARTED})
    program = compile_storm()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        ours = {rate: record(directory, program, rate, seconds) for rate in rates}
        perf = {rate: record_with_perf(directory, program, rate, seconds) for rate in rates}
        stopped = record(directory, program, max(rates), max(seconds, 10.0), stopped=True)
    show(report, ours, perf)
    for rate, storm in ours.items():
        lost = sum(storm.lost.values())
        report.target(f"lost at {rate} programs a second", "0", f"{lost} beside {storm.programs:,}", lost == 0)
    report.control("a recorder that is stopped loses records", describe(stopped.lost), sum(stopped.lost.values()) > 0)
    report.finish()


def compile_storm() -> Path:
    program = OUTPUT / "storm"
    OUTPUT.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-O2", "-o", program, STORM], check=True)
    return program


def record(directory: Path, program: Path, rate: int, seconds: float, *, stopped: bool = False) -> Storm:
    output = directory / "a.hound"
    command = (STACKHOUND, "record", "-F", str(HZ), "-o", output)
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until("stackhound to sample", lambda: is_sampling(recorder.pid))
    told = blow(recorder, program, rate, seconds, stopped=stopped)
    profile = load(output)
    lost = {loss.cause: loss.count for loss in profile.losses if not loss.estimated and loss.count}
    samples, wrong = count_wrong(profile)
    return Storm(told["children"], told["a_second"], lost, samples, wrong, told["cpu_ns"] / seconds / 1e7)


def record_with_perf(directory: Path, program: Path, rate: int, seconds: float) -> Storm:
    output = directory / "perf.data"
    command = ("perf", "record", "-a", "-g", "-F", str(HZ), "-o", output)
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    told = blow(recorder, program, rate, seconds)
    script = ("perf", "script", "-i", output, "--show-lost-events", "-F", "comm")
    shown = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    lost = {"records": sum(map(int, re.findall(r"PERF_RECORD_LOST\w* lost (\d+)", shown)))}
    samples = len(re.findall(rf"^ *{Path(STARTED).name}\b", shown, re.MULTILINE))
    return Storm(told["children"], told["a_second"], lost, samples, 0, told["cpu_ns"] / seconds / 1e7)


def blow(
    recorder: subprocess.Popen[bytes], program: Path, rate: int, seconds: float, *, stopped: bool = False
) -> dict[str, int]:
    """A storm beside a recorder, which ends then: what the storm tells, and the recorder's CPU time during it."""
    time.sleep(SETTLING_S)
    command = (program, "exec", str(round(rate * seconds)), str(rate), STARTED)
    storm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    before = cpu_ns(recorder.pid)
    if stopped:
        os.kill(recorder.pid, signal.SIGSTOP)
    said, _ = storm.communicate("\n")
    if stopped:
        os.kill(recorder.pid, signal.SIGCONT)
    after = cpu_ns(recorder.pid)
    recorder.send_signal(signal.SIGINT)
    recorder.wait()
    told = {name: int(value) for name, value in (line.split() for line in said.splitlines()[1:])}
    return told | {"cpu_ns": after - before}


def count_wrong(profile: Profile) -> tuple[int, int]:
    """The samples of the programs that were started, and those whose process says something else."""
    thread = profile.numbers("samples", "thread")
    process = profile.numbers("threads", "process")[thread].tolist()
    comms = profile.texts("threads", "comm")
    executables, command_lines = (profile.texts("processes", name) for name in ("executable", "command_line"))
    rows = [row for row, one in zip(process, thread.tolist(), strict=True) if comms[one] == Path(STARTED).name]
    wrong = sum((executables[row], command_lines[row]) != (STARTED, STARTED) for row in rows)
    return len(rows), wrong


def show(report: Report, ours: dict[int, Storm], perf: dict[int, Storm]) -> None:
    named = {f"stackhound, {rate}": storm for rate, storm in ours.items()}
    named |= {f"perf, {rate}": storm for rate, storm in perf.items()}
    rows = [
        (
            name,
            f"{storm.programs:,}",
            f"{storm.a_second:,}",
            describe(storm.lost),
            f"{storm.samples:,}",
            "–" if name.startswith("perf") else f"{storm.wrong:,}",
            f"{storm.cpu_percent:.2f}",
        )
        for name, storm in named.items()
    ]
    columns = ("", "programs", "a second", "lost", "their samples", "known wrongly", "recorder, % of a CPU")
    report.table("storms of programs", columns, rows, named)


def describe(lost: dict[str, int]) -> str:
    return ", ".join(f"{cause} {count:,}" for cause, count in lost.items() if count) or "0"


if __name__ == "__main__":
    main()
