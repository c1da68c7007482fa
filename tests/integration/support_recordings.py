"""Recordings of workloads: from Python in this process, or by the command line in one of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from stackhound.recording import Recorder, RecordOptions
from support_bpf import attached_events
from support_workloads import FOR_EVER, HANG_S, Program, build, cpu_count, cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stackhound import Profile

STACKHOUND: Final = (sys.executable, "-m", "stackhound")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until something is so; a test that waits for ever fails."""
    deadline_s = time.monotonic() + HANG_S
    while not condition():
        if time.monotonic() > deadline_s:
            pytest.fail(f"waited {HANG_S} s for {what}")
        time.sleep(0.02)


def recorder(**options: Any) -> Recorder:
    """A recorder that is not started yet; ``options`` are attributes of `RecordOptions`."""
    return Recorder(RecordOptions(**options))


def record_whole(program: Program, **options: Any) -> Profile:
    """A workload from before its first work to its end."""
    with recorder(pids=(program.pid,), **options) as recording:
        program.go()
        wait_for(lambda: ended(recording), "the end of the workload")
    return recording.profile


def record_some(samples: int, program: Program, **options: Any) -> Profile:
    """So many samples, or some more, of a workload without end that has yet to begin."""
    options.setdefault("pids", (program.pid,))
    with recorder(**options) as recording:
        program.go()
        wait_for_samples(recording, samples)
    return recording.profile


def record_running(pid: int, work_s: float, **options: Any) -> Profile:
    """While a process that runs already uses so much CPU time; the whole system, if the options do not limit it.

    Other than a number of samples of the system, this is reached on an idle machine, and has its part on a busy one.
    """
    with recorder(**options) as recording:
        wait_for_work(pid, work_s)
    return recording.profile


def record_system(work_s: float, **options: Any) -> Profile:
    """The whole system, with one busy loop in it that uses so much CPU time."""
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        return record_running(program.pid, work_s, **options)


def wait_for_work(pid: int, work_s: float) -> None:
    """Wait until a process has used so much more CPU time."""
    until_s = cpu_s(pid) + work_s
    wait_for(lambda: cpu_s(pid) >= until_s, f"{work_s} s of work")


def wait_for_samples(recording: Recorder, samples: int) -> None:
    """Wait until a running recording has stored so many more."""
    wanted = recording.status().samples + samples

    def are_there() -> bool:
        return recording.status().samples >= wanted

    wait_for(lambda: are_there() or ended(recording), f"{samples} samples")
    assert are_there(), "every process of the recording has ended"


def ended(recording: Recorder) -> bool:
    """Whether every process of a recording is gone."""
    outcome = recording.wait(0)
    assert outcome != "failed"
    return outcome == "targets-exited"


def run_stackhound(*arguments: str | Path | bytes, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """The command line, run to its end."""
    return subprocess.run(
        [*STACKHOUND, *arguments], capture_output=True, timeout=HANG_S, check=False, stdin=subprocess.DEVNULL, **options
    )


def command_line(*arguments: str | Path) -> tuple[str | Path, ...]:
    """The command line, to be started as a `Program` or with `subprocess.Popen`."""
    return (*STACKHOUND, *arguments)


def wait_until_it_samples(pid: int) -> None:
    """Wait until a recorder has attached its programs on each CPU."""
    wait_for(lambda: attached_events(pid) >= cpu_count(), "the recorder to begin")
