"""Programs are followed and named, however they begin and whatever becomes of their files."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import stackhound
from stackhound.profile.schema import SampleFlag
from support_profiles import (
    Sample,
    assert_accounted_for,
    assert_every_miss_has_one_reason,
    count,
    count_margin,
    misses,
    named_share,
    samples_of,
    where,
)
from support_recordings import ended, record_some, record_whole, recorder, run_stackhound, wait_for, wait_for_samples
from support_workloads import FOR_EVER, FREESTANDING, Program, build

if TYPE_CHECKING:
    import subprocess

pytestmark = pytest.mark.ebpf

MIB = 2**20


def record_command(path: Path, *command: str | Path, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    return run_stackhound("record", "-F", "9999", *options, "-o", path, "--", *command)


def test_a_command_is_sampled_from_its_first_instruction(tmp_path: Path) -> None:
    program = build("start.c", *FREESTANDING)
    lengths = tmp_path / "lengths"
    result = record_command(tmp_path / "x.hound", "sh", "-c", f"exec {program} > {lengths}")
    assert result.returncode == 0, result.stderr
    samples = where(samples_of(stackhound.load(tmp_path / "x.hound")), lambda sample: sample.comm == "start")
    first_ns, second_ns = np.frombuffer(lengths.read_bytes(), np.uint64).tolist()
    for function, length_ns in (("first_phase", first_ns), ("second_phase", second_ns)):
        expected = length_ns / 1e9 * 9999
        assert abs(count(samples, function) - expected) <= count_margin(expected), function
    working = where(samples, lambda sample: not {"first_phase", "second_phase"}.isdisjoint(sample.names))
    assert {sample.names[0] for sample in working} == {"_start"}


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 128 + signal.SIGTERM), ("kill -SEGV $$", 128 + signal.SIGSEGV)],
)
def test_the_status_of_a_command_is_passed_on(tmp_path: Path, script: str, status: int) -> None:
    result = record_command(tmp_path / "x.hound", "sh", "-c", script)
    assert result.returncode == status
    stackhound.load(tmp_path / "x.hound")


def test_a_program_is_known_by_its_name_path_and_command_line() -> None:
    program_path = build("busy.c")
    with Program(program_path, FOR_EVER) as program:
        profile = record_some(50, program, frequency_hz=999)
    (row,) = rows_of(profile, "processes")
    assert row["pid"] == row["ns_pid"] == program.pid
    assert row["parent_pid"] == os.getpid()
    assert row["comm"] == "busy"
    assert row["executable"] == str(program_path)
    assert row["command_line"] == f"{program_path} {FOR_EVER}"


def rows_of(profile: stackhound.Profile, table: str) -> list[dict[str, object]]:
    found = profile.table(table)
    columns = [found[name].to_pylist() for name in found.column_names]
    return [dict(zip(found.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def test_programs_that_live_for_milliseconds_are_known_by_their_command_lines() -> None:
    script = (
        "echo ready; read go; i=0; while [ $i -lt 60 ]; do i=$((i+1)); head -c 300000 /dev/zero | sha256sum -; done"
    )
    with Program("sh", "-c", script) as program:
        profile = record_whole(program, frequency_hz=4999)
    # By the file: in the middle of its exec a process has the new name already, and is the old program still.
    rows = [row for row in rows_of(profile, "processes") if str(row["executable"]).endswith("/sha256sum")]
    assert len(rows) > 30
    assert {row["command_line"] for row in rows} == {"sha256sum -"}


def test_a_process_that_becomes_another_program_is_both_one_after_the_other() -> None:
    count_up = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    script = f"echo ready; read go; {count_up}; exec {build('shares.c')} 100 < /dev/zero"
    with Program("sh", "-c", script) as program:
        profile = record_whole(program, frequency_hz=1999)
    samples = samples_of(profile)
    before, after = (where(samples, lambda sample, comm=comm: sample.comm == comm) for comm in ("sh", "shares"))
    assert count(after, "takes_half") > 0
    assert count(before, "takes_half") == 0
    assert {sample.pid for sample in samples} == {program.pid}
    shell, shares = rows_of(profile, "processes")
    assert (shell["comm"], shares["comm"]) == ("sh", "shares")
    assert before[-1].boottime_ns <= shell["exit_boottime_ns"] <= after[0].boottime_ns
    assert shares["executable"] == str(build("shares.c"))


def test_a_process_that_a_later_thread_turns_into_another_program_is_that_program() -> None:
    turn = f"os.execv('{build('busy.c')}', ['busy', '300'])"
    script = f"import os, threading; threading.Thread(target=lambda: {turn}).start()"
    with Program(sys.executable, "-c", script) as program:
        samples = samples_of(record_whole(program, frequency_hz=999))
    assert {(sample.pid, sample.tid, sample.comm) for sample in samples} == {(program.pid, program.pid, "busy")}
    assert count(samples, "churn") > 0.9 * count(samples), misses(samples)


def test_a_program_that_has_ended_keeps_its_names() -> None:
    with recorder(frequency_hz=999) as recording:
        with Program(build("busy.c"), "200") as program:
            program.go()
            program.truth()
        with Program(build("shares.c"), "200") as later:
            later.go()
            later.truth()
    samples = samples_of(recording.profile)
    for past, function in ((program, "churn"), (later, "takes_half")):
        own = where(samples, lambda sample, pid=past.pid: sample.pid == pid and "main" in sample.names)
        assert count(own, function) > 0
    rows = {row["pid"]: row for row in rows_of(recording.profile, "processes")}
    assert rows[program.pid]["exit_boottime_ns"] <= rows[later.pid]["exit_boottime_ns"]


def test_programs_that_lived_for_100_ms_have_95_percent_of_their_frames_named() -> None:
    with recorder(frequency_hz=1999) as recording:
        pids = set()
        for _ in range(5):
            programs = [Program(build("busy.c"), "100"), Program(build("shares.c"), "100")]
            for program in programs:
                program.go()
            for program in programs:
                program.truth()
                program.close()
                pids.add(program.pid)
    samples = where(samples_of(recording.profile), lambda sample: sample.pid in pids)
    assert {sample.pid for sample in samples} == pids
    assert named_share(samples) >= 0.95, misses(samples)
    assert_every_miss_has_one_reason(recording.profile)


def recorded_busy_loop(program: Program) -> list[Sample]:
    return samples_of(record_some(100, program, frequency_hz=999))


def assert_named(samples: list[Sample]) -> None:
    own = where(samples, lambda sample: "churn" in sample.names)
    assert count(own) >= 0.9 * count(samples), misses(samples)
    assert named_share(own) >= 0.95, misses(own)


def test_a_program_whose_file_is_deleted_is_named(tmp_path: Path) -> None:
    copy = Path(shutil.copy(build("busy.c"), tmp_path))
    with Program(copy, FOR_EVER) as program:
        copy.unlink()
        assert_named(recorded_busy_loop(program))


def test_a_program_whose_file_is_replaced_keeps_its_own_names(tmp_path: Path) -> None:
    copy = Path(shutil.copy(build("busy.c"), tmp_path))
    other = Path(shutil.copy(build("shares.c"), tmp_path / "other"))
    with Program(copy, FOR_EVER) as program:
        other.rename(copy)
        samples = recorded_busy_loop(program)
    assert_named(samples)
    assert {Path(frame.path) for sample in samples for frame in sample.frames if frame.name == "churn"} == {copy}


def test_a_program_whose_file_is_replaced_while_it_is_recorded_keeps_its_own_names(tmp_path: Path) -> None:
    copy = Path(shutil.copy(build("busy.c"), tmp_path))
    other = Path(shutil.copy(build("shares.c"), tmp_path / "other"))
    with Program(copy, FOR_EVER) as program, recorder(pids=(program.pid,), frequency_hz=999) as recording:
        program.go()
        wait_for_samples(recording, 50)
        other.rename(copy)
        with Program(copy, "100") as replaced:
            recording._session.add_pid(replaced.pid)
            replaced.go()
            replaced.truth()
        wait_for_samples(recording, 50)
    samples = samples_of(recording.profile)
    assert_named([sample for sample in samples if sample.pid == program.pid])
    assert count(where(samples, lambda sample: sample.pid == replaced.pid), "takes_half") > 0


def test_a_program_that_only_exists_in_memory_is_named() -> None:
    memory = os.memfd_create("busy-in-memory", 0)
    os.write(memory, build("busy.c").read_bytes())
    with Program(f"/proc/self/fd/{memory}", FOR_EVER, pass_fds=(memory,)) as program:
        os.close(memory)
        assert_named(recorded_busy_loop(program))


def test_a_program_on_a_file_system_that_only_it_has_is_named(tmp_path: Path) -> None:
    script = f"mount -t tmpfs none {tmp_path} && cp {build('busy.c')} {tmp_path} && exec {tmp_path}/busy {FOR_EVER}"
    with Program("unshare", "--mount", "sh", "-c", script) as program:
        assert not (tmp_path / "busy").exists()
        assert_named(recorded_busy_loop(program))


def test_a_program_in_another_root_directory_is_named(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(build("busy.c", "-static"), root)
    with Program("chroot", root, "/busy", FOR_EVER) as program:
        samples = recorded_busy_loop(program)
    assert_named(samples)
    assert "/busy" in {frame.path.removeprefix(str(root)) for sample in samples for frame in sample.frames}


def test_the_same_process_id_again_is_another_process() -> None:
    programs = [build("generation.c", *FREESTANDING, f"-DWORK={name}_work") for name in ("even", "odd")]
    assert len({program.read_bytes() for program in programs}) == 2
    with Program(build("recycle.c"), "500", *programs) as program:
        profile = record_whole(program, frequency_hz=1999)
        recycled = program.truth()["recycled"]
    assert recycled > 400, "other processes took the id"
    # In the kernel it may still be on its way from the program before.
    own = [one for one in samples_of(profile) if one.comm == "generation" and not one.flags & SampleFlag.IN_KERNEL]
    assert count(own, "even_work") + count(own, "odd_work") > 0.9 * count(own) > 0, misses(own)
    for executable, sample in zip(executables_of(profile), samples_of(profile), strict=True):
        for work in {"even_work", "odd_work"} & set(sample.names):
            expected = str(programs[work == "odd_work"])
            assert {frame.path for frame in sample.frames if frame.kind == "user"} == {expected}
            assert executable in ("", expected), "unknown is better than wrong"


def executables_of(profile: stackhound.Profile) -> list[str]:
    """The program of each sample's process."""
    process = profile.numbers("threads", "process")[profile.numbers("samples", "thread")]
    names = profile.texts("processes", "executable")
    return [names[row] for row in process.tolist()]


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("kind", ["fork", "exec"])
def test_a_storm_of_500_new_processes_a_second_is_recorded_in_bounded_memory(kind: str) -> None:
    children = 1000
    brief = build("generation.c", *FREESTANDING, "-DWORK=brief_work")
    with Program(build("storm.c"), kind, str(children), "500", brief) as program:
        with recorder(pids=(program.pid,), frequency_hz=999) as recording:
            before = resident_bytes()
            program.go()
            wait_for(lambda: ended(recording), "the end of the storm")
            grown = resident_bytes() - before
        assert program.truth()["children"] == children
    profile = recording.profile
    assert_accounted_for(profile)
    assert_every_miss_has_one_reason(profile)
    samples = samples_of(profile)
    assert len({sample.pid for sample in samples}) > children / 20
    assert grown <= 32 * MIB + children * 16 * 1024
    assert count(samples, "brief_work") > 0
