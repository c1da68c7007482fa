"""What was not asked for is not in the profile."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from stackhound.errors import NoSuchProcess, UsageError
from stackhound.profile.schema import SampleFlag
from stackhound.recording.cgroups import cgroup_mount
from support_profiles import assert_accounted_for, count, samples_of
from support_recordings import record_whole, recorder, wait_for, wait_for_samples, wait_for_work
from support_workloads import FOR_EVER, Program, build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.ebpf


def test_only_the_process_asked_for_is_recorded() -> None:
    with Program(build("busy.c"), FOR_EVER) as other, Program(build("shares.c"), "300") as program:
        other.go()
        profile = record_whole(program, frequency_hz=999)
    assert {sample.pid for sample in samples_of(profile)} == {program.pid}
    assert profile.metadata["counters"]["filtered"] > 0
    assert_accounted_for(profile)


def test_a_process_may_be_let_in_while_the_recording_runs() -> None:
    with Program(build("busy.c"), FOR_EVER) as first, Program(build("shares.c"), FOR_EVER) as second:
        first.go()
        second.go()
        with recorder(pids=(first.pid,), frequency_hz=999) as recording:
            wait_for_samples(recording, 50)
            recording._session.add_pid(second.pid)
            second.end()
            wait_for_samples(recording, 50)
        samples = samples_of(recording.profile)
    assert first.pid in {sample.pid for sample in samples}
    assert {sample.pid for sample in samples} <= {first.pid, second.pid}


@pytest.mark.kernel_guest
def test_children_and_grandchildren_are_followed() -> None:
    with Program(build("family.c"), "100") as program:
        samples = samples_of(record_whole(program, frequency_hz=999))
    for function in ("parent_work", "child_work", "grandchild_work"):
        pids = {sample.pid for sample in samples if function in sample.names}
        assert len(pids) == 1, function
        assert (pids == {program.pid}) == (function == "parent_work")


def test_children_are_left_out_when_they_are_not_to_be_followed() -> None:
    with Program(build("family.c"), "100") as program:
        samples = samples_of(record_whole(program, frequency_hz=999, inherit=False))
    assert {sample.pid for sample in samples} == {program.pid}
    assert count(samples, "parent_work") > 0


@pytest.mark.kernel_guest
def test_only_threads_of_a_name_are_recorded() -> None:
    with Program(build("threads.c", "-lpthread"), "200") as program:
        profile = record_whole(program, frequency_hz=999, comm="brewer")
    samples = samples_of(profile)
    assert {sample.comm for sample in samples} == {"brewer"}
    assert count(samples, "brew") > 0
    assert_accounted_for(profile)


def test_a_name_is_compared_as_a_whole() -> None:
    with Program(build("threads.c", "-lpthread"), "50") as program:
        profile = record_whole(program, frequency_hz=999, comm="brew")
    assert profile.table("samples").num_rows == 0
    assert_accounted_for(profile)


@contextmanager
def cgroup(name: str) -> Iterator[Path]:
    """A cgroup of version 2 with nobody in it."""
    mount = cgroup_mount()
    if mount is None:
        pytest.skip("no cgroup v2 hierarchy is mounted")
    path = mount / f"{name}-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        yield path
    finally:
        wait_for(lambda: not (path / "cgroup.procs").read_text(), "the end of the cgroup's processes")
        path.rmdir()


def test_only_a_cgroup_and_the_cgroups_below_it_are_recorded() -> None:
    with cgroup("stackhound-test") as outer, Program(build("busy.c"), FOR_EVER) as other:
        inner = outer / "inner"
        inner.mkdir()
        with Program(build("shares.c"), FOR_EVER) as first, Program(build("shares.c"), FOR_EVER) as second:
            (outer / "cgroup.procs").write_text(str(first.pid))
            (inner / "cgroup.procs").write_text(str(second.pid))
            for program in (other, first, second):
                program.go()
            with recorder(frequency_hz=999, cgroup=str(outer)) as recording:
                wait_for_work(first.pid, 0.1)
                wait_for_work(second.pid, 0.1)
        profile = recording.profile
        wait_for(lambda: not (inner / "cgroup.procs").read_text(), "the end of the cgroup's processes")
        inner.rmdir()
    assert {sample.pid for sample in samples_of(profile)} == {first.pid, second.pid}
    assert set(profile.column("processes", "cgroup")) == {f"/{outer.name}", f"/{outer.name}/inner"}
    assert_accounted_for(profile)


def test_without_the_kernel_there_are_only_user_frames() -> None:
    with Program(build("shares.c"), "500") as program:
        profile = record_whole(program, frequency_hz=1999, user_only=True)
    samples = samples_of(profile)
    assert {frame.kind for sample in samples for frame in sample.frames} == {"user"}
    assert count(samples, "lets_the_kernel_work") > 0, "what the kernel did for it is counted there"
    assert_accounted_for(profile)


def test_without_user_space_there_are_only_kernel_frames() -> None:
    with Program(build("shares.c"), "500") as program:
        profile = record_whole(program, frequency_hz=1999, kernel_only=True)
    samples = samples_of(profile)
    assert all(sample.flags & SampleFlag.IN_KERNEL for sample in samples)
    assert {frame.kind for sample in samples for frame in sample.frames} <= {"kernel", "bpf"}
    assert any("vfs_read" in sample.names for sample in samples)
    assert profile.metadata["counters"]["filtered"] > count(samples), "it spends most of its time in user space"
    assert_accounted_for(profile)


def _work_here(recording_started: object) -> None:  # noqa: ARG001
    total = 0
    for number in range(3_000_000):
        total += number


def test_the_recorder_is_left_out_of_the_picture() -> None:
    with Program(build("busy.c"), FOR_EVER) as program, recorder(frequency_hz=999) as recording:
        program.go()
        _work_here(recording)
        wait_for_samples(recording, 100)
    assert os.getpid() not in {sample.pid for sample in samples_of(recording.profile)}
    assert recording.profile.metadata["counters"]["filtered"] > 0


def test_the_recorder_is_in_the_picture_when_asked_for() -> None:
    with recorder(frequency_hz=999, include_self=True) as recording:
        _work_here(recording)
    assert os.getpid() in {sample.pid for sample in samples_of(recording.profile)}


def test_a_process_that_is_not_there_is_refused_in_one_line() -> None:
    with Program(build("busy.c"), FOR_EVER) as program:
        program.end()
        with pytest.raises(NoSuchProcess) as caught:
            recorder(pids=(program.pid,))
    assert "\n" not in str(caught.value)


def test_a_directory_that_is_no_cgroup_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        recorder(cgroup=str(tmp_path))
    assert "\n" not in str(caught.value)
