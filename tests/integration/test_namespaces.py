"""Processes in PID namespaces have the ids of both sides, wherever the recorder stands."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import stackhound
from support_profiles import assert_accounted_for, count, misses, named_share, samples_of, where
from support_recordings import command_line, record_running, recorder, wait_for_samples
from support_workloads import FOR_EVER, HANG_S, Program, build

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ebpf

IN_A_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def run_inside(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    command = [*IN_A_NAMESPACE, *command_line(*arguments)]
    return subprocess.run(command, capture_output=True, timeout=HANG_S, check=False)


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


@pytest.fixture
def inside() -> Iterator[Program]:
    """Three threads that work, in a process that is number 1 of its namespace."""
    with Program(*IN_A_NAMESPACE, build("threads.c", "-lpthread"), FOR_EVER) as program:
        yield program


def test_threads_in_a_pid_namespace_have_their_ids_on_both_sides(inside: Program) -> None:
    pid = child_of(inside.pid)
    with recorder(pids=(pid,), frequency_hz=999) as recording:
        inside.go()
        wait_for_samples(recording, 200)
        truth = {int(task.name): ns_tid_of(task) for task in Path(f"/proc/{pid}/task").iterdir()}
    samples = samples_of(recording.profile)
    assert {(sample.pid, sample.ns_pid) for sample in samples} == {(pid, 1)}
    assert {(sample.tid, sample.ns_tid) for sample in samples} <= set(truth.items())
    assert len({sample.tid for sample in samples if sample.comm in ("baker", "brewer", "cleaner")}) == 3
    assert named_share(where(samples, lambda sample: sample.comm == "baker")) > 0.9, misses(samples)


def ns_tid_of(task: Path) -> int:
    lines = (task / "status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("NSpid:")).split()[-1])


def test_the_whole_system_includes_namespaces(inside: Program) -> None:
    inside.go()
    pid = child_of(inside.pid)
    samples = samples_of(record_running(pid, 0.1, frequency_hz=999))
    own = where(samples, lambda sample: sample.pid == pid)
    assert {sample.ns_pid for sample in own} == {1}


def test_a_recording_inside_a_namespace_shows_the_ids_of_that_namespace(tmp_path: Path) -> None:
    path, program = tmp_path / "inside.hound", build("family.c")
    result = run_inside("record", "-F", "999", "-o", path, "--", "sh", "-c", f"echo | {program} 100")
    assert result.returncode == 0, result.stderr
    profile = stackhound.load(path)
    samples = samples_of(profile)
    assert all(1 <= sample.pid < 100 for sample in samples)
    assert all((sample.pid, sample.tid) == (sample.ns_pid, sample.ns_tid) for sample in samples)
    for function in ("parent_work", "child_work", "grandchild_work"):
        assert count(samples, function) > 0
    assert_accounted_for(profile)


def test_a_recording_inside_a_namespace_counts_what_it_cannot_see(tmp_path: Path) -> None:
    path = tmp_path / "inside.hound"
    with Program(build("busy.c"), FOR_EVER) as outside:
        outside.go()
        script = f"echo | {build('busy.c')} 200"
        result = run_inside("record", "-a", "-F", "999", "-o", path, "--", "sh", "-c", script)
    assert result.returncode == 0, result.stderr
    profile = stackhound.load(path)
    assert all(1 <= sample.pid < 100 for sample in samples_of(profile))
    assert_accounted_for(profile)
    unseen = next(loss for loss in profile.losses if loss.cause == "process not visible")
    assert unseen.count == profile.metadata["counters"]["lost_no_process"] > 0
