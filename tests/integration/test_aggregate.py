"""Counted in the kernel, a recording says the same, in less room."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from support_profiles import assert_accounted_for, assert_share, count, count_margin, samples_of, where
from support_recordings import record_running, record_whole, recorder
from support_workloads import FOR_EVER, Program, build

if TYPE_CHECKING:
    from stackhound import Profile

pytestmark = pytest.mark.ebpf

HERTZ = 4999


class SameRun(NamedTuple):
    """Two recordings of one run, and what it says of itself."""

    plain: Profile
    combined: Profile
    truth: dict[str, int]


@pytest.fixture(scope="module")
def same_run() -> SameRun:
    with Program(build("shares.c"), "1500") as program:
        with recorder(pids=(program.pid,), frequency_hz=HERTZ) as plain:
            combined = record_whole(program, frequency_hz=HERTZ, aggregate=True)
        return SameRun(plain.profile, combined, program.truth())


def test_counts_are_those_of_a_plain_recording_of_the_same_run(same_run: SameRun) -> None:
    truth = same_run.truth
    expected = truth["work"] / 1e9 * HERTZ
    for profile in (same_run.plain, same_run.combined):
        assert_accounted_for(profile)
        samples = where(samples_of(profile), lambda sample: "work" in sample.names)
        assert abs(count(samples) - expected) <= count_margin(expected)
        for function in ("takes_half", "takes_a_quarter", "takes_an_eighth", "lets_the_kernel_work"):
            assert_share(samples, function, truth[function] / truth["work"])
        assert sum(sample.value for sample in samples) == count(samples) * (1_000_000_000 // HERTZ)


def test_the_same_stack_of_the_same_thread_takes_one_row(same_run: SameRun) -> None:
    profile = same_run.combined
    columns = [profile.numbers("samples", name).tolist() for name in ("event", "cpu", "thread", "stack")]
    rows = list(zip(*columns, strict=True))
    assert len(rows) == len(set(rows))
    observations = int(profile.numbers("samples", "count").sum())
    assert len(rows) < observations / 5


def test_first_and_last_observation_lie_within_the_recording(same_run: SameRun) -> None:
    profile = same_run.combined
    first, last = profile.numbers("samples", "boottime_ns"), profile.numbers("samples", "last_ns")
    clock = profile.metadata["clock"]
    assert clock["start_boottime_ns"] <= first.min()
    assert (first <= last).all()
    assert last.max() <= clock["end_boottime_ns"]
    many = profile.numbers("samples", "count") > 1
    assert (first[many] < last[many]).all()


def test_the_stacks_do_not_become_more_the_longer_it_takes() -> None:
    """Which bounds the memory of a recording of hours."""
    with Program(build("busy.c"), FOR_EVER) as program:
        program.go()
        short, long = (
            record_running(program.pid, work_s, pids=(program.pid,), frequency_hz=9999, aggregate=True, user_only=True)
            for work_s in (0.1, 0.4)
        )
    assert len(stacks_of(long)) <= 2 * len(stacks_of(short))
    assert long.table("samples").num_rows < int(long.numbers("samples", "count").sum()) / 4


def stacks_of(profile: Profile) -> set[int]:
    return set(profile.numbers("samples", "stack").tolist())
