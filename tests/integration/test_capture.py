"""A recording shows what ran, where, when, and for how long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stackhound.profile.schema import SampleFlag
from support_profiles import (
    assert_accounted_for,
    assert_share,
    count,
    count_margin,
    margin,
    samples_of,
    where,
)
from support_recordings import (
    record_running,
    record_some,
    record_system,
    record_whole,
    recorder,
    wait_for,
    wait_for_samples,
)
from support_workloads import FOR_EVER, Program, build, line_of

pytestmark = pytest.mark.ebpf


def test_a_busy_loop_is_found_with_its_function_file_line_and_inlined_functions() -> None:
    with Program(build("busy.c"), "300") as program:
        samples = samples_of(record_whole(program, frequency_hz=999))
    inside = where(samples, lambda sample: "stir" in sample.names)
    assert count(inside) > 0.9 * count(samples)
    for sample in inside:
        main, churn, mix, stir = sample.frames[sample.names.index("main") :][:4]
        assert [main.name, churn.name, mix.name, stir.name] == ["main", "churn", "mix", "stir"]
        assert [main.inlined, churn.inlined, mix.inlined, stir.inlined] == [False, False, True, True]
        assert {Path(frame.file).name for frame in (main, churn, mix, stir)} == {"busy.c"}
        assert main.line == line_of("busy.c", "main")
    assert {frame.line for sample in inside for frame in sample.frames if frame.name == "mix"} == {
        line_of("busy.c", "mix")
    }
    assert line_of("busy.c", "stir") in {sample.frames[-1].line for sample in inside}


def test_without_lines_there_are_names_only() -> None:
    with Program(build("busy.c"), "100") as program:
        samples = samples_of(record_whole(program, frequency_hz=999, lines=False))
    for sample in where(samples, lambda sample: "churn" in sample.names):
        assert all(frame.line == 0 and not frame.inlined for frame in sample.frames)


def test_functions_have_the_share_of_the_time_that_they_truly_had() -> None:
    with Program(build("shares.c"), "2000") as program:
        profile = record_whole(program, frequency_hz=4999)
        truth = program.truth()
    samples = where(samples_of(profile), lambda sample: "work" in sample.names)
    for function in ("takes_half", "takes_a_quarter", "takes_an_eighth", "lets_the_kernel_work"):
        assert_share(samples, function, truth[function] / truth["work"])
    assert_accounted_for(profile)


def test_the_samples_of_a_program_add_up_to_its_cpu_time() -> None:
    with Program(build("shares.c"), "1000") as program:
        profile = record_whole(program, frequency_hz=999)
        truth_ns = program.truth()["work"]
    samples = where(samples_of(profile), lambda sample: "work" in sample.names)
    expected = truth_ns / 1e9 * 999
    assert abs(count(samples) - expected) <= count_margin(expected)
    assert sum(sample.value for sample in samples) == count(samples) * (1_000_000_000 // 999)


@pytest.mark.kernel_guest
def test_time_in_the_kernel_stands_below_the_function_that_asked_for_it() -> None:
    with Program(build("shares.c"), "500") as program:
        samples = samples_of(record_whole(program, frequency_hz=1999))
    asked = where(samples, lambda sample: "lets_the_kernel_work" in sample.names)
    in_kernel = where(asked, lambda sample: bool(sample.flags & SampleFlag.IN_KERNEL))
    assert count(in_kernel) > 0.5 * count(asked)
    for sample in in_kernel:
        kinds = [frame.kind for frame in sample.frames]
        assert kinds == sorted(kinds, key=["user", "kernel"].index)
        assert all(frame.reason is None for frame in sample.frames if frame.kind == "kernel")
    assert any("vfs_read" in sample.names for sample in in_kernel)


def test_threads_appear_with_their_names_and_ids_and_their_own_work() -> None:
    with Program(build("threads.c", "-lpthread"), "300") as program:
        profile = record_whole(program, frequency_hz=1999)
        truth = program.truth()
    samples = samples_of(profile)
    assert {sample.pid for sample in samples} == {program.pid}
    work = {"baker": "bake", "brewer": "brew", "cleaner": "clean"}
    for comm, function in work.items():
        own = where(samples, lambda sample, comm=comm: sample.comm == comm)
        assert len({sample.tid for sample in own}) == 1
        assert program.pid not in {sample.tid for sample in own}
        assert not any(other in sample.names for sample in own for other in work.values() if other != function)
        expected = truth[comm] / 1e9 * 1999
        assert abs(count(samples, function) - expected) <= count_margin(expected)
    assert len({sample.tid for sample in samples if sample.comm in work}) == 3


def test_a_process_goes_on_when_its_first_thread_has_ended() -> None:
    with (
        Program(build("orphans.c", "-lpthread")) as program,
        recorder(pids=(program.pid,), frequency_hz=999) as recording,
    ):
        program.go()
        wait_for(lambda: b"State:\tZ" in Path(f"/proc/{program.pid}/status").read_bytes(), "the first thread to end")
        wait_for_samples(recording, 300)
    samples = samples_of(recording.profile)
    assert count(samples, "work_on") > 0.9 * count(samples)
    assert {sample.pid for sample in samples} == {program.pid}


def test_a_process_whose_first_thread_has_ended_can_be_recorded() -> None:
    with Program(build("orphans.c", "-lpthread")) as program:
        program.go()
        wait_for(lambda: b"State:\tZ" in Path(f"/proc/{program.pid}/status").read_bytes(), "the first thread to end")
        samples = samples_of(record_running(program.pid, 0.1, pids=(program.pid,), frequency_hz=999))
    assert count(samples, "work_on") > 0.9 * count(samples)


def test_without_frame_pointers_there_is_still_the_function_that_ran() -> None:
    with Program(build("busy.c", "-fomit-frame-pointer"), "300") as program:
        profile = record_whole(program, frequency_hz=999)
    samples = samples_of(profile)
    working = [sample for sample in samples if sample.leaf in ("stir", "mix", "churn")]
    assert count(working) > 0.9 * count(samples)
    assert all(frame.reason is None for sample in working for frame in sample.frames)


def test_a_stack_deeper_than_127_frames_is_marked_as_truncated() -> None:
    with Program(build("deep.c"), "200") as program:
        profile = record_some(100, program, frequency_hz=999, lines=False)
    deep = where(samples_of(profile), lambda sample: sample.leaf == "dig")
    for sample in deep:
        assert sample.flags & SampleFlag.USER_TRUNCATED
        assert len(sample.frames) == 127
    assert profile.metadata["counters"]["user_truncated"] >= len(deep)


def test_a_stack_of_a_hundred_frames_is_whole() -> None:
    with Program(build("deep.c"), "100") as program:
        profile = record_some(100, program, frequency_hz=999, lines=False)
    for sample in where(samples_of(profile), lambda sample: sample.leaf == "dig"):
        assert not sample.flags & SampleFlag.USER_TRUNCATED
        assert sample.names[sample.names.index("main") :].count("dig") == 101


def test_an_idle_cpu_is_never_sampled() -> None:
    profile = record_system(0.3, frequency_hz=999)
    samples = samples_of(profile)
    assert count(samples, "churn") > 0
    assert all(sample.pid > 0 and sample.tid > 0 for sample in samples)
    assert not any(sample.comm.startswith("swapper") for sample in samples)
    assert_accounted_for(profile)


def test_the_whole_system_shows_programs_that_ran_before_the_recording() -> None:
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        samples = samples_of(record_running(program.pid, 0.1, frequency_hz=999))
    own = where(samples, lambda sample: sample.pid == program.pid)
    assert count(own, "churn") == count(own)


def test_two_recordings_at_once_do_not_disturb_each_other() -> None:
    with Program(build("shares.c"), "1500") as program, recorder(pids=(program.pid,), frequency_hz=1999) as first:
        second = record_whole(program, frequency_hz=999)
        truth = program.truth()
    for profile, hertz in ((first.profile, 1999), (second, 999)):
        assert_accounted_for(profile)
        samples = where(samples_of(profile), lambda sample: "work" in sample.names)
        expected = truth["work"] / 1e9 * hertz
        assert abs(count(samples) - expected) <= count_margin(expected)
        assert_share(samples, "takes_half", truth["takes_half"] / truth["work"])


def test_samples_are_ordered_and_lie_within_the_recording() -> None:
    before_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    profile = record_system(0.3, frequency_hz=1999)
    after_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    clock = profile.metadata["clock"]
    times = profile.numbers("samples", "boottime_ns").tolist()
    assert times == sorted(times)
    assert before_ns <= clock["start_boottime_ns"] <= times[0]
    assert times[-1] <= clock["end_boottime_ns"] <= after_ns


def test_boot_time_is_related_to_the_clock_on_the_wall() -> None:
    clock = record_system(0.05, frequency_hz=499).metadata["clock"]
    tries = [_offset_bounds_ns() for _ in range(100)]
    low, high = max(low for low, _ in tries), min(high for _, high in tries)
    slewed_ns = 10_000_000  # the clock on the wall may be adjusted meanwhile, by 500 ppm of a minute at most
    assert low - slewed_ns <= clock["boot_to_unix_ns_start"] <= high + slewed_ns
    assert low - slewed_ns <= clock["boot_to_unix_ns_end"] <= high + slewed_ns


def _offset_bounds_ns() -> tuple[int, int]:
    """Unix time − boot time lies between these, however long the readings took."""
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    unix = time.time_ns()
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return unix - after, unix - before


def test_a_recording_goes_on_until_all_its_processes_have_ended() -> None:
    with Program(build("busy.c"), "50") as short, Program(build("busy.c"), FOR_EVER) as long:
        with recorder(pids=(short.pid, long.pid), frequency_hz=999) as recording:
            short.go()
            short.truth()
            long.go()
            wait_for_samples(recording, 50)
            assert recording.wait(0) == "timeout"
            long.end()
            assert recording.wait(60) == "targets-exited"
        samples = samples_of(recording.profile)
    assert {sample.pid for sample in samples} == {short.pid, long.pid}


def test_the_share_of_a_function_is_the_same_on_every_cpu_that_it_ran_on() -> None:
    with Program(build("threads.c", "-lpthread"), "400") as program:
        samples = samples_of(record_whole(program, frequency_hz=1999))
    for cpu in {sample.cpu for sample in samples}:
        assert 0 <= cpu < (os.cpu_count() or 1)
    total = count(samples, "bake") + count(samples, "brew") + count(samples, "clean")
    assert abs(count(samples, "bake") / total - 1 / 3) <= margin(1 / 3, total)
