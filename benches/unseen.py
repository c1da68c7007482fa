"""How soon a program's stacks are complete: 20 MB of code without frame pointers, never seen before, then cached.

    .venv/bin/python benches/unseen.py [--check]

While stackhound records the whole system at 999 Hz the program is started again and again: first as files that nobody
has seen, each with a build-id of its own, then as one whose unwind table is on disk. The time is from its first sample,
at its exec, to the first after which all are complete; a millisecond lies between two.

Control: by frame pointers alone no stack may ever be complete.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import stackhound
from harness.bpf_statistics import is_sampling
from harness.build import BENCHES, OUTPUT, STACKHOUND
from harness.estimate import estimate
from harness.report import Report
from harness.waiting import wait_until
from stackhound.profile.completeness import COMPLETE, END_NAMES, ends

HZ = 999
CODE_MB = 20
RUN_S = 0.8
PAUSE_S = 0.5
TARGET_COLD_MS = 250
TARGET_CACHED_MS = 30
#: Header of the note that holds a build-id: sizes of name and contents, NT_GNU_BUILD_ID, name.
SHA1_NOTE = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=8, help="of each kind")
    parser.add_argument("--check", action="store_true", help="two runs, to see that it works")
    options = parser.parse_args()
    runs = 2 if options.check else options.runs
    if platform.machine() != "x86_64":
        sys.exit("error: the program is written for x86-64")
    report = Report("unseen", {"hz": HZ, "code_mb": CODE_MB, "runs": runs})
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        program = assemble()
        cold = waits_ms(record(directory, [copy(program, directory, run) for run in range(runs)], "cold"))
        cached = waits_ms(record(directory, [copy(program, directory, 0)] * runs, "cached"))
        control = waits_ms(record(directory, [copy(program, directory, 0)], "control", "--call-graph", "fp"))
    show(report, cold, cached)
    never = [wait for wait in control if wait is None]
    report.control("by frame pointers alone nothing is complete", f"{len(never)} of {len(control)}", never == control)
    report.finish()


def assemble() -> Path:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    program = OUTPUT / "large"
    source = BENCHES / "programs" / "large.S"
    flags = (f"-Wa,--defsym,SIZE_MB={CODE_MB}", "-Wl,--build-id=sha1")
    subprocess.run(("gcc", *flags, str(source), "-o", str(program)), check=True)
    return program


def copy(program: Path, directory: Path, number: int) -> Path:
    """The same code under another build-id, in a file of its own."""
    whole = bytearray(program.read_bytes())
    note = whole.index(SHA1_NOTE) + len(SHA1_NOTE)
    whole[note : note + 4] = number.to_bytes(4, "little")
    path = directory / f"large-{number}"
    path.write_bytes(whole)
    path.chmod(0o755)
    return path


def record(directory: Path, programs: list[Path], name: str, *options: str) -> stackhound.Profile:
    output = directory / f"{name}.hound"
    environment = {**os.environ, "XDG_CACHE_HOME": str(directory)}
    command = (STACKHOUND, "record", "-F", str(HZ), "-o", output, "--no-lines", *options)
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    wait_until("stackhound to sample", lambda: is_sampling(recorder.pid))
    for program in programs:
        time.sleep(PAUSE_S)
        worker = subprocess.Popen((program,))
        time.sleep(RUN_S)
        worker.kill()
        worker.wait()
    recorder.send_signal(signal.SIGINT)
    recorder.wait()
    return stackhound.load(output)


def waits_ms(profile: stackhound.Profile) -> list[float | None]:
    """Of each run: from its first sample to the first after which all are complete; None: never."""
    event = profile.events[0]
    samples = profile.samples_of(event)
    comms = np.array(profile.texts("threads", "comm"))[samples.thread]
    process = profile.numbers("threads", "process")[samples.thread]
    times_ns = profile.numbers("samples", "boottime_ns")
    is_complete = ends(samples) == END_NAMES.index(COMPLETE)
    waits: list[float | None] = []
    is_ours = np.char.startswith(comms, "large-")
    for one in np.unique(process[is_ours]):
        rows = np.flatnonzero(is_ours & (process == one))[:-2]  # the last ones may be of its end, without memory
        late = np.flatnonzero(~is_complete[rows])
        after = int(late[-1]) + 1 if len(late) else 0
        waits.append(None if after == len(rows) else float(times_ns[rows[after]] - times_ns[rows[0]]) / 1e6)
    return waits


def show(report: Report, cold: list[float | None], cached: list[float | None]) -> None:
    rows, data = [], {}
    for name, waits, target_ms in (("cold", cold, TARGET_COLD_MS), ("cached", cached, TARGET_CACHED_MS)):
        found = [wait for wait in waits if wait is not None]
        middle = estimate(found)
        data[name] = waits
        rows.append((name, str(len(waits)), middle.written(0), f"{max(found):.0f}"))
        wanted, met = f"≤ {target_ms} ms", len(found) == len(waits) and middle.mean <= target_ms
        report.target(f"exec to complete stacks, {name}", wanted, f"{middle.written(0)} ms", met)
    columns = ("table", "runs", "ms, mean", "longest, ms")
    report.table(f"a program of {CODE_MB} MB, from its first sample to complete stacks", columns, rows, data)


if __name__ == "__main__":
    main()
