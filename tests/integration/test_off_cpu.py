"""Time off the CPU: how long threads were away, where, for what, and what of it is left out when asked."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from stackhound.errors import UsageError
from stackhound.recording import RecordOptions
from support_devices import needs_site
from support_kernels import needs
from support_profiles import assert_accounted_for, samples_of
from support_recordings import record_whole, recorder, run_stackhound
from support_workloads import ChildOfShell, Program, build

if TYPE_CHECKING:
    from stackhound import Profile

pytestmark = pytest.mark.ebpf

ROUNDS: Final = 10
#: By thread, which is named like the function that it waits in: what it waits for.
REASONS: Final = {
    "nap_often": "sleep",
    "nap_once": "sleep",
    "wait_for_poll": "poll",
    "wait_for_futex": "futex",
    "wait_for_pipe": "pipe",
}
#: The same of places that not every machine has, and the state that the thread is in there.
RARER_REASONS: Final = {
    "wait_for_socket": ("socket", "waiting"),
    "wait_for_page": ("page fault", "waiting"),
    "read_disk": ("disk", "disk"),
    "touch_file": ("disk", "disk"),
}
#: Of a thread's time: the marks between which it may end, and what it says before and after its own clocks.
UNSURE_NS: Final = 5_000_000
#: Of the time of each thread, in a recording that is long enough to tell.
EXACT: Final = 0.01
LASTS_S: Final = 2.0


#: How threads are seen: the second is that of kernels before 6.15, and theirs alone.
WAYS: Final = pytest.mark.parametrize("at_departure", [False, True], ids=["when they come back", "when they leave"])


class Absence(NamedTuple):
    comm: str
    tid: int
    end_ns: int
    names: tuple[str, ...]
    value: int
    duration_ns: int
    count: int
    state: str
    reason: str
    queued_ns: int


@pytest.fixture(autouse=True)
def event() -> None:
    needs("task storage")


def record_absences(*sites: str, **options: Any) -> tuple[Profile, dict[str, int]]:
    """The workload, and the nanoseconds that each of its threads was away."""
    options.setdefault("events", ("off-cpu",))
    with Program(build("absences.c", "-pthread"), str(ROUNDS), *sites) as program:
        profile = record_whole(program, **options)
        truth = program.truth()
    assert_accounted_for(profile)
    return profile, truth


def absences_of(profile: Profile) -> list[Absence]:
    samples = dict(zip(profile.numbers("samples", "id").tolist(), samples_of(profile), strict=True))
    duration_ns = dict(zip(samples, profile.numbers("samples", "duration_ns").tolist(), strict=True))
    rows = zip(
        profile.numbers("off_cpu", "sample").tolist(),
        profile.texts("off_cpu", "state"),
        profile.texts("off_cpu", "reason"),
        profile.numbers("off_cpu", "queued_ns").tolist(),
        strict=True,
    )
    return [
        Absence(
            one.comm,
            one.tid,
            one.boottime_ns,
            one.names,
            one.value,
            duration_ns[sample],
            one.count,
            state,
            reason,
            queued_ns,
        )
        for sample, state, reason, queued_ns in rows
        for one in (samples[sample],)
    ]


def by_thread(absences: list[Absence]) -> Counter[str]:
    """Since a thread's first turn: until then it has the name of the one that made it."""
    time_ns: Counter[str] = Counter()
    for one in absences:
        time_ns[one.comm] += 0 if one.reason == "start" else one.value
    return time_ns


@WAYS
def test_the_time_that_threads_were_away_is_found_where_they_were(at_departure: bool) -> None:
    profile, truth = record_absences(*REASONS, off_cpu_at_departure=at_departure)
    absences = absences_of(profile)
    found = by_thread(absences)
    for name in REASONS:
        assert found[name] == pytest.approx(truth[name], rel=0.02, abs=UNSURE_NS)
        there = sum(one.value for one in absences if one.comm == name and name in one.names)
        assert there > 0.8 * found[name]  # the rest: preempted elsewhere, or on the way


@pytest.mark.parametrize("whose", ["the whole system's", "children's"])
@WAYS
def test_the_same_times_are_found_among_others(at_departure: bool, whose: str) -> None:
    options: dict[str, Any] = {"events": ("off-cpu",), "off_cpu_at_departure": at_departure}
    with ChildOfShell(build("absences.c", "-pthread"), str(ROUNDS), *REASONS) as program:
        options |= {"pids": (program.pid,)} if whose == "children's" else {}
        with recorder(**options) as recording:
            program.go()
            program.wait_until_ready()
            program.go()
            truth = program.truth()
    assert_accounted_for(recording.profile)
    found = by_thread(absences_of(recording.profile))
    for name in REASONS:
        assert found[name] == pytest.approx(truth[name], rel=0.02, abs=UNSURE_NS)


@pytest.mark.kernel_guest
@WAYS
def test_each_absence_says_what_the_thread_waited_for(at_departure: bool) -> None:
    absences = absences_of(record_absences(*REASONS, off_cpu_at_departure=at_departure)[0])
    for name, reason in REASONS.items():
        waiting = [one for one in absences if one.names[-1:] and name in one.names and one.state == "waiting"]
        assert waiting
        assert {one.reason for one in waiting} == {reason}


@WAYS
@pytest.mark.parametrize("name", RARER_REASONS)
def test_waits_for_disks_sockets_and_pages_are_told_from_each_other(name: str, at_departure: bool) -> None:
    needs_site(name)
    profile, truth = record_absences(name, off_cpu_at_departure=at_departure)
    absences = absences_of(profile)
    assert by_thread(absences)[name] == pytest.approx(truth[name], rel=0.02, abs=UNSURE_NS)
    inside = [one for one in absences if name in one.names and one.state != "preempted"]
    assert sum(one.value for one in inside) > 0.8 * truth[name]
    assert {(one.reason, one.state) for one in inside} == {RARER_REASONS[name]}


def test_the_report_sums_time_by_what_was_waited_for(tmp_path: Path) -> None:
    profile, truth = record_absences("wait_for_poll", "wait_for_futex")
    profile.save(tmp_path / "a.hound")
    done = run_stackhound("report", tmp_path / "a.hound", "--sort", "thread,reason", "--json")
    assert done.returncode == 0, done.stderr
    rows = {(row["thread"].partition(" ")[0], row["reason"]): row["self"] for row in json.loads(done.stdout)["rows"]}
    assert rows["wait_for_poll", "poll"] == pytest.approx(truth["wait_for_poll"], rel=0.2)
    assert rows["wait_for_futex", "futex"] == pytest.approx(truth["wait_for_futex"], rel=0.2)


@pytest.mark.kernel_guest
@WAYS
def test_a_stack_ends_in_the_scheduler_and_not_in_what_looked_at_it(at_departure: bool) -> None:
    profile, _ = record_absences("nap_once", off_cpu_at_departure=at_departure)
    # A new thread comes from elsewhere to its first CPU.
    assert {one.names[-1] for one in absences_of(profile) if one.reason != "start"} == {"__schedule"}


@pytest.mark.kernel_guest
@WAYS
def test_threads_that_take_turns_are_preempted_and_ready_all_the_time(at_departure: bool) -> None:
    profile, _ = record_absences("take_turns", off_cpu_at_departure=at_departure)
    turns = [one for one in absences_of(profile) if "take_turns" in one.names]
    assert turns
    assert {one.state for one in turns} == {"preempted"}
    ready_ns = sum(one.queued_ns for one in turns)
    # The rest: interrupts, and what the host took; the scheduler counts neither as running.
    assert ready_ns > 0.85 * sum(one.duration_ns for one in turns)


@pytest.mark.kernel_guest
@WAYS
def test_each_short_absence_is_a_sample_when_all_are_asked_for(at_departure: bool) -> None:
    profile, truth = record_absences("nap_often", off_cpu_exact=True, off_cpu_at_departure=at_departure)
    absences = [one for one in absences_of(profile) if one.comm == "nap_often"]
    assert truth["absences"] - 2 <= len(absences) <= truth["absences"]  # the last ones are after its look
    assert all(one.value == one.duration_ns and one.count == 1 for one in absences)
    assert sum(one.value for one in absences) == pytest.approx(truth["nap_often"], rel=0.001, abs=UNSURE_NS / 10)


@pytest.mark.kernel_guest
@WAYS
def test_short_absences_share_samples_that_stand_for_all_of_them(at_departure: bool) -> None:
    profile, truth = record_absences("nap_often", off_cpu_at_departure=at_departure)
    absences = [one for one in absences_of(profile) if one.comm == "nap_often"]
    assert len(absences) < truth["absences"] / 2
    assert sum(one.count for one in absences) == pytest.approx(truth["absences"], rel=0.25)
    assert sum(one.value for one in absences) == pytest.approx(truth["nap_often"], rel=0.01, abs=UNSURE_NS)


@WAYS
def test_shorter_and_longer_absences_are_left_out_when_asked(at_departure: bool) -> None:
    profile, _ = record_absences("nap_often", "nap_once", off_cpu_min_us=10_000, off_cpu_at_departure=at_departure)
    assert not [one for one in absences_of(profile) if "nap_often" in one.names and one.duration_ns < 10_000_000]
    assert [one for one in absences_of(profile) if "nap_once" in one.names]
    profile, _ = record_absences("nap_often", "nap_once", off_cpu_max_us=10_000, off_cpu_at_departure=at_departure)
    assert all(one.duration_ns <= 10_000_000 for one in absences_of(profile))


def test_time_on_and_off_the_cpu_add_up() -> None:
    profile, truth = record_absences("nap_often", events=("cpu", "off-cpu"), frequency_hz=999)
    events = profile.column("events", "name")
    assert events == ["cpu", "off-cpu"]
    away_ns = sum(one.value for one in samples_of(profile) if one.event == "off-cpu" and one.comm == "nap_often")
    assert away_ns == pytest.approx(truth["nap_often"], rel=0.02, abs=UNSURE_NS)
    assert any(one.event == "cpu" for one in samples_of(profile))


@WAYS
def test_threads_that_sleep_all_along_are_there_with_the_whole_time(at_departure: bool) -> None:
    with Program(build("waits.c", "-pthread"), "0") as program:
        program.go()
        tids = {name: int(tid) for name, tid in map(str.split, program.preface)}
        with recorder(pids=(program.pid,), events=("off-cpu",), off_cpu_at_departure=at_departure) as recording:
            begun_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            time.sleep(LASTS_S)
    profile = recording.profile
    sleepers = {one.tid: one for one in absences_of(profile)}
    for name, reason in {"lock_up": "futex", "read_pipe": "pipe", "nap": "sleep", "poll_pipe": "poll"}.items():
        one = sleepers[tids[name]]
        assert (one.state, one.reason) == ("waiting", reason)
        assert name in one.names
        # until it was looked at, which may take a moment when the recording has ended
        at_least_ns, at_most_ns = one.end_ns - begun_ns, one.end_ns - profile.start_boottime_ns
        assert at_least_ns * (1 - EXACT) <= one.duration_ns == one.value <= at_most_ns * (1 + EXACT)
    assert_accounted_for(profile)


def schedules(pid: int, tids: list[int]) -> dict[int, int]:
    """How long each thread has been on a CPU, in nanoseconds (Documentation/scheduler/sched-stats.rst)."""
    return {tid: int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0]) for tid in tids}


@WAYS
def test_time_off_the_cpu_is_what_the_schedulers_own_time_on_it_leaves(at_departure: bool) -> None:
    with Program(build("waits.c", "-pthread"), "0") as program:
        program.go()
        tids = [int(line.split()[1]) for line in program.preface]
        looks = [schedules(program.pid, tids)]
        with recorder(pids=(program.pid,), events=("off-cpu",), off_cpu_at_departure=at_departure) as recording:
            begun_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            looks.append(schedules(program.pid, tids))
            time.sleep(LASTS_S)
            looks.append(schedules(program.pid, tids))
        looks.append(schedules(program.pid, tids))
    profile = recording.profile
    ended_ns = profile.start_boottime_ns + profile.duration_ns
    until_ns = dict.fromkeys(tids, ended_ns)
    away_ns: Counter[int] = Counter()
    for one in absences_of(profile):
        away_ns[one.tid] += one.value
        until_ns[one.tid] = max(one.end_ns, until_ns.get(one.tid, 0))
    before, begun, ended, after = looks
    for tid in tids:  # it may have run until just before a look, or just after it
        assert away_ns[tid] + ended[tid] - begun[tid] <= (until_ns[tid] - profile.start_boottime_ns) * (1 + EXACT)
        assert away_ns[tid] + after[tid] - before[tid] >= (ended_ns - begun_ns) * (1 - EXACT)


@pytest.mark.kernel_guest
@WAYS
def test_a_command_that_sleeps_is_recorded_from_its_first_instruction(at_departure: bool, tmp_path: Path) -> None:
    out = tmp_path / "sleep.folded"
    how = ("--off-cpu-at-departure",) if at_departure else ()
    done = run_stackhound("record", "-e", "off-cpu", *how, "-o", out, "--", "sleep", "0.3")
    assert done.returncode == 0, done.stderr
    slept = [line for line in out.read_text().splitlines() if "nanosleep" in line]
    assert sum(int(line.rpartition(" ")[2]) for line in slept) == pytest.approx(300_000_000, rel=0.3)
    assert re.search(rb"\d+ samples?", done.stderr)


def test_absences_that_cannot_be_are_refused() -> None:
    for options in ({"off_cpu_min_us": 20, "off_cpu_max_us": 10}, {"off_cpu_min_us": -1}, {"off_cpu_period_ns": 0}):
        with pytest.raises(UsageError):
            RecordOptions(**options)
