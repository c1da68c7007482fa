"""A CPU that goes away and returns is sampled again."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support_bpf import bpf_ids
from support_profiles import assert_accounted_for, samples_of, where
from support_recordings import recorder, wait_for, wait_for_work
from support_workloads import FOR_EVER, Program, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.recording import Recorder
    from support_bpf import BpfId

pytestmark = pytest.mark.ebpf

CPU = 1
SWITCH = Path(f"/sys/devices/system/cpu/cpu{CPU}/online")
MOST_NS = 5_000_000_000  # a CPU that returned is sampled again by then


@contextmanager
def offline() -> Iterator[None]:
    """The CPU is away while the block runs. It is always brought back."""
    try:
        SWITCH.write_text("0")
    except OSError as error:
        pytest.skip(f"CPU {CPU} cannot be taken offline here: {error}")
    try:
        yield
    finally:
        SWITCH.write_text("1")


def boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize("aggregate", [False, True], ids=["plain", "aggregated"])
@pytest.mark.parametrize("noticed", [False, True], ids=["for a moment", "for a while"])
def test_a_cpu_that_returns_is_sampled_within_five_seconds(aggregate: bool, noticed: bool) -> None:
    if not SWITCH.exists():
        pytest.skip(f"CPU {CPU} cannot be taken offline here")
    with (
        Program(build("busy.c"), FOR_EVER) as idle,
        recorder(pids=(idle.pid,), frequency_hz=499, aggregate=aggregate) as recording,
    ):
        before = work_on_the_cpu(recording)
        links = links_held()
        with offline():
            if noticed:
                wait_for(lambda: len(links_held()) < len(links), "the recorder to let go of the CPU")
        back_ns = boottime_ns()
        wait_for(lambda: len(links_held() - links) == 1, "the recorder to take up the CPU again")
        after = work_on_the_cpu(recording)
    assert_accounted_for(recording.profile)
    samples = samples_of(recording.profile)
    assert {sample.cpu for sample in where(samples, lambda sample: sample.pid == before)} == {CPU}
    returned = where(samples, lambda sample: sample.pid == after)
    assert {sample.cpu for sample in returned} == {CPU}
    assert min(sample.boottime_ns for sample in returned) < back_ns + MOST_NS


def links_held() -> set[BpfId]:
    """The links between programs and events that this process has."""
    return {(kind, number) for kind, number in bpf_ids(os.getpid()) if kind == "link_id"}


def work_on_the_cpu(recording: Recorder) -> int:
    """Let a process work on the CPU and nowhere else; its id."""
    with Program(build("busy.c"), FOR_EVER) as program:
        os.sched_setaffinity(program.pid, {CPU})
        recording._session.add_pid(program.pid)
        program.go()
        wait_for_work(program.pid, 0.1)
        return program.pid
