"""A profile says what the measuring itself cost."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stackhound
from support_profiles import count, samples_of
from support_recordings import record_running, record_some, record_system, recorder, run_stackhound, wait_for_samples
from support_workloads import FOR_EVER, Program, build

if TYPE_CHECKING:
    from stackhound import Profile

pytestmark = pytest.mark.ebpf


def test_the_time_in_bpf_programs_is_measured() -> None:
    with Program(build("shares.c"), FOR_EVER) as program:
        profile = record_some(1000, program, frequency_hz=1999)
    cost = profile.metadata["cost"]
    assert cost["bpf_runs"] == count(samples_of(profile))
    assert 100 < cost["bpf_ns_per_run"] < 1_000_000
    assert cost["bpf_ns"] == pytest.approx(cost["bpf_ns_per_run"] * cost["bpf_runs"], abs=1)


@pytest.fixture(scope="module")
def of_the_system() -> Profile:
    return record_system(0.1, frequency_hz=999)


def test_the_interrupt_is_calibrated(of_the_system: Profile) -> None:
    assert 100 < of_the_system.metadata["cost"]["interrupt_ns_per_sample"] < 10_000_000


def test_the_cpu_time_of_the_collector_is_that_of_its_process() -> None:
    before_ns = time.process_time_ns()
    with recorder(frequency_hz=99) as recording:
        while time.process_time_ns() < before_ns + 200_000_000:
            pass
        inside_ns = time.process_time_ns()
    cost = recording.profile.metadata["cost"]
    assert 100_000_000 < cost["collector_cpu_ns"] <= time.process_time_ns() - before_ns
    assert cost["collector_cpu_ns"] >= 0.5 * (inside_ns - before_ns)


def test_the_memory_of_the_collector_is_that_of_its_process(of_the_system: Profile) -> None:
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert 5_000_000 < of_the_system.metadata["cost"]["resident_bytes"] <= peak_bytes


def test_the_elapsed_time_is_that_of_the_recording() -> None:
    begun_ns = time.monotonic_ns()
    profile = record_system(0.05, frequency_hz=499)
    whole_ns = time.monotonic_ns() - begun_ns
    clock, cost = profile.metadata["clock"], profile.metadata["cost"]
    assert cost["elapsed_ns"] == clock["end_boottime_ns"] - clock["start_boottime_ns"]
    assert 0 < cost["elapsed_ns"] <= whole_ns


def test_the_status_grows_while_the_recording_runs() -> None:
    with Program(build("shares.c"), FOR_EVER) as program, recorder(pids=(program.pid,), frequency_hz=999) as recording:
        program.go()
        wait_for_samples(recording, 50)
        first = recording.status()
        wait_for_samples(recording, 50)
        second = recording.status()
    for name in ("samples", "entries", "bpf_ns", "bpf_runs", "collector_cpu_ns", "elapsed_ns"):
        assert getattr(first, name) < getattr(second, name), name
    assert second.lost == 0
    assert second.resident_bytes > 5_000_000
    assert recording.profile.metadata["counters"]["entries"] >= second.entries


def test_the_frequency_that_was_achieved_is_said_beside_the_one_that_was_asked_for() -> None:
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        frequency = record_running(program.pid, 0.3, frequency_hz=999).metadata["frequency"]
    assert frequency["asked_hz"] == 999
    assert 0 < frequency["achieved_hz"] <= 999 * 1.05
    limit = int(Path("/proc/sys/kernel/perf_event_max_sample_rate").read_text())
    assert frequency["max_sample_rate_after"] == limit
    assert frequency["max_sample_rate_before"] >= limit


def test_each_recording_ends_with_what_it_cost_and_lost(tmp_path: Path) -> None:
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        result = run_stackhound("record", "-F", "999", "-d", "0.5", "-p", str(program.pid), "-o", tmp_path / "x.hound")
    samples = count(samples_of(stackhound.load(tmp_path / "x.hound")))
    line = next(line for line in result.stderr.decode().splitlines() if " lost" in line)
    assert line.startswith(f"{samples:,} samples · 0 lost · ")
    assert "µs each" in line
    assert "µs interrupt (calibrated)" in line
    assert "% of a CPU, " in line
