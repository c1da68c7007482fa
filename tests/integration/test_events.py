"""Other events than time: each is counted as often as it truly happened, and what is missing is said in one line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from stackhound import _native
from stackhound.errors import EventUnavailable, UsageError
from stackhound.profile.schema import SampleFlag
from stackhound.recording.events import NAMED
from support_profiles import assert_accounted_for, count, count_margin, samples_of, where
from support_recordings import record_system, record_whole, recorder
from support_workloads import Program, build, cpu_count

if TYPE_CHECKING:
    from stackhound import Profile

pytestmark = pytest.mark.ebpf

MANY = 10_000


def record_events(what: str, times: int, *events: str, **options: object) -> tuple[Profile, dict[str, int]]:
    """A workload that causes so many of something, and what it says of itself."""
    with Program(build("events.c"), what, str(times)) as program:
        profile = record_whole(program, events=events, **options)
        truth = program.truth()
    assert_accounted_for(profile)
    return profile, truth


def test_each_system_call_is_a_sample() -> None:
    profile, _ = record_events("writes", MANY, "syscalls:sys_enter_write", period=1)
    samples = samples_of(profile)
    assert count(samples, "write_often") == MANY
    assert sum(sample.value for sample in samples if "write_often" in sample.names) == MANY
    assert profile.event().unit == "count"
    assert (profile.event().mode, profile.event().rate) == ("period", 1)


def test_each_tenth_system_call_is_a_sample_that_stands_for_ten() -> None:
    profile, _ = record_events("writes", MANY, "syscalls:sys_enter_write", period=10)
    samples = where(samples_of(profile), lambda sample: "write_often" in sample.names)
    assert {sample.value for sample in samples} == {10}
    # A CPU counts what all processes do, so that chance decides whose call is the tenth.
    assert abs(count(samples) - MANY / 10) <= count_margin(MANY / 10)


def test_a_tracepoint_is_counted_each_time_unless_told_otherwise() -> None:
    profile, _ = record_events("writes", 1000, "syscalls:sys_enter_write")
    assert count(samples_of(profile), "write_often") == 1000


def test_each_page_fault_is_a_sample() -> None:
    for name in ("page-faults", "minor-faults"):
        profile, _ = record_events("faults", MANY, name, period=1)
        samples = samples_of(profile)
        assert count(samples, "touch_pages") == MANY, name
        assert sum(sample.value for sample in samples if "touch_pages" in sample.names) == MANY


def test_page_faults_by_frequency_add_up_to_their_number() -> None:
    profile, _ = record_events("faults", 10 * MANY, "page-faults", frequency_hz=999)
    samples = where(samples_of(profile), lambda sample: "touch_pages" in sample.names)
    assert count(samples) < 10 * MANY
    by_chance = count_margin(count(samples)) / count(samples)
    assert sum(sample.value for sample in samples) == pytest.approx(10 * MANY, rel=by_chance)


def test_each_context_switch_is_a_sample() -> None:
    profile, truth = record_events("naps", 2000, "context-switches", period=1)
    samples = samples_of(profile)
    assert count(samples, "take_naps") > 1900  # some naps are over before they begin
    # The last switch is the one of the exit, which rusage does not see.
    assert truth["switches"] <= count(samples) <= truth["switches"] + 3


def test_each_migration_is_a_sample() -> None:
    if cpu_count() < 2 or not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs the first two CPUs")
    profile, _ = record_events("hops", 1000, "cpu-migrations", period=1)
    assert count(samples_of(profile), "hop_between_cpus") == 1000


def test_a_scheduler_tracepoint_shows_who_went_to_sleep() -> None:
    profile, truth = record_events("naps", 1000, "sched:sched_switch", period=1)
    samples = samples_of(profile)
    assert count(samples, "take_naps") > 900
    assert truth["switches"] <= count(samples) <= truth["switches"] + 3
    assert all("schedule" in " ".join(sample.names) for sample in samples if "take_naps" in sample.names)


def test_several_events_at_once_keep_their_samples_apart() -> None:
    names = ("syscalls:sys_enter_write", "page-faults", "context-switches")
    profile, truth = record_events("writes", MANY, *names, period=1)
    assert [event.name for event in profile.events] == list(names)
    writes, faults, switches = ([one for one in samples_of(profile) if one.event == name] for name in names)
    assert count(writes, "write_often") == MANY
    assert count(faults, "write_often") == 0
    assert truth["switches"] <= count(switches) <= truth["switches"] + 3
    with pytest.raises(UsageError, match="page-faults"):
        profile.event()
    assert int(profile.tree("syscalls:sys_enter_write").total_value[0]) == count(writes)


def test_a_period_of_time_makes_a_sample_each_so_many_nanoseconds() -> None:
    with Program(build("shares.c"), "500") as program:
        profile = record_whole(program, period=1_000_000)
        truth_ns = program.truth()["work"]
    samples = where(samples_of(profile), lambda sample: "work" in sample.names)
    assert {sample.value for sample in samples} == {1_000_000}
    assert abs(count(samples) - truth_ns / 1e6) <= count_margin(truth_ns / 1e6)
    assert profile.event().unit == "nanoseconds"


@pytest.mark.parametrize(("modifier", "in_kernel"), [("u", False), ("k", True)])
def test_an_event_may_be_limited_to_user_space_or_to_the_kernel(modifier: str, in_kernel: bool) -> None:
    with Program(build("shares.c"), "500") as program:
        profile = record_whole(program, events=(f"cpu-clock:{modifier}",), frequency_hz=1999)
    assert_accounted_for(profile)
    samples = where(samples_of(profile), lambda sample: "work" in sample.names)
    assert {bool(sample.flags & SampleFlag.IN_KERNEL) for sample in samples} == {in_kernel}


def test_the_trigger_of_time_is_said() -> None:
    event = record_system(0.01, frequency_hz=999).event("cpu")
    assert event.trigger == ("cpu-clock" if _native.probe_event(0, 0) else "cycles")
    assert record_system(0.01, frequency_hz=999, software_only=True).event("cpu").trigger == "cpu-clock"


def test_an_event_that_this_machine_lacks_is_refused_in_one_line() -> None:
    missing = [source.name for source in NAMED.values() if source.type == 0 and _native.probe_event(0, source.config)]
    if not missing:
        pytest.skip("this machine has every hardware event")
    with pytest.raises(EventUnavailable) as caught:
        recorder(events=(missing[0],)).start()
    assert missing[0] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_tracepoint_that_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises((EventUnavailable, UsageError)) as caught:
        recorder(events=("sched:sched_nonsense",)).start()
    assert "sched:sched_nonsense" in str(caught.value)
    assert "\n" not in str(caught.value)
