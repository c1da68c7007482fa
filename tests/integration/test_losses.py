"""Program entries = stored + Σ losses, exactly, whatever goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

import stackhound
from support_kernels import needs
from support_profiles import assert_accounted_for, count, samples_of
from support_recordings import command_line, record_running, record_whole, wait_for_work, wait_until_it_samples
from support_workloads import FOR_EVER, HANG_S, Program, build

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ebpf

TWO_PAGES = 8192


@pytest.mark.kernel_guest
@pytest.mark.parametrize("aggregate", [False, True], ids=["plain", "aggregated"])
def test_every_sample_is_stored_or_counted_as_lost(aggregate: bool) -> None:
    with Program(build("shares.c"), FOR_EVER) as program:
        program.go()
        profile = record_running(program.pid, 0.3, frequency_hz=4999, aggregate=aggregate)
    counters = profile.metadata["counters"]
    assert_accounted_for(profile)
    assert (counters["combined"] > 0) == aggregate
    assert (counters["emitted"] > 0) == (not aggregate)


@pytest.mark.parametrize("aggregate", [False, True], ids=["plain", "aggregated"])
def test_a_ring_of_two_pages_loses_samples_and_counts_each(aggregate: bool) -> None:
    with Program(build("shares.c"), "1000") as program:
        profile = record_whole(program, frequency_hz=9999, aggregate=aggregate, ring_bytes=TWO_PAGES)
        truth_ns = program.truth()["work"]
    assert_accounted_for(profile)
    lost = {loss.cause: loss.count for loss in profile.losses if loss.count and not loss.estimated}
    if not aggregate:
        assert set(lost) <= {"ring full", "ring busy"}
        assert lost["ring full"] > 0
    seen = count(samples_of(profile)) + sum(lost.values())
    assert seen >= truth_ns / 1e9 * 9999 * 0.9, "what was lost is missing in the counters, too"


def test_a_reader_that_was_stopped_for_a_while_loses_samples_and_counts_each(tmp_path: Path) -> None:
    path = tmp_path / "stopped.hound"
    options = ("-F", "9999", "--ring-size", "64K", "-o", path, "--no-lines")
    with Program(build("shares.c"), FOR_EVER) as program:
        command = command_line("record", *options, "-p", str(program.pid))
        with subprocess.Popen(command, stderr=subprocess.PIPE) as recorder:
            wait_until_it_samples(recorder.pid)
            os.kill(recorder.pid, signal.SIGSTOP)
            program.go()
            wait_for_work(program.pid, 0.5)  # 5,000 samples that nobody reads, a ring of 500
            os.kill(recorder.pid, signal.SIGCONT)
            program.end()
            _, said = recorder.communicate(timeout=HANG_S)
    assert recorder.returncode == 0, said
    profile = stackhound.load(path)
    assert_accounted_for(profile)
    lost = profile.metadata["counters"]["lost_ring_full"]
    assert lost > 0
    assert f"{lost:,} ring full" in said.decode()


@pytest.mark.kernel_guest
def test_several_events_at_once_are_accounted_for() -> None:
    needs("bpf_get_attach_cookie")
    with Program(build("shares.c"), "1000") as program:
        profile = record_whole(
            program, frequency_hz=999, events=("cpu", "context-switches", "sched:sched_switch", "page-faults")
        )
    assert_accounted_for(profile)


@pytest.mark.kernel_guest
def test_filtered_samples_are_accounted_for() -> None:
    with Program(build("threads.c", "-lpthread"), "300") as program:
        profile = record_whole(program, frequency_hz=4999, comm="baker", user_only=True)
    assert_accounted_for(profile)
    assert profile.metadata["counters"]["filtered"] > 0


def test_the_losses_survive_in_the_file(tmp_path: Path) -> None:
    with Program(build("shares.c"), "300") as program:
        profile = record_whole(program, frequency_hz=9999, ring_bytes=TWO_PAGES)
    profile.save(tmp_path / "x.hound")
    loaded = stackhound.load(tmp_path / "x.hound")
    assert loaded.losses == profile.losses
    assert json.dumps(loaded.metadata["counters"]) == json.dumps(profile.metadata["counters"])
    assert_accounted_for(loaded)
