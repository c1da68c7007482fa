"""Clocks that go backwards, as across a suspend or between CPUs: nothing lasts less than no time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fixtures.everything import EVENTS, every_event
from fixtures.firefox import Document
from fixtures.perfetto import Trace
from fixtures.strategies import repeatable
from fixtures.times import MS, START_NS
from stackhound.profile.columns import with_columns
from stackhound.profile.timeline import draw_timelines
from stackhound.profile.wall_time import account_for

PID = 7
#: Also before the recording began, and after it ended.
TIMES = st.lists(st.integers(0, 3 * START_NS), min_size=len(EVENTS), max_size=len(EVENTS))
#: Also longer than there was time, and what is left of a negative one in an unsigned number.
DURATIONS = st.lists(st.integers(0, 2**64 - 1), min_size=len(EVENTS), max_size=len(EVENTS))
#: Also before the beginning.
ENDS = st.integers(-1_000, 1_000)


def build(times_ns, durations_ns, until_ms):
    """The samples of every event, each row's time as given: later rows may be of earlier times."""
    profile = every_event(until_ms)
    samples = with_columns(profile.table("samples"), boottime_ns=times_ns, duration_ns=durations_ns)
    absences = with_columns(profile.table("off_cpu"), queued_ns=durations_ns[:1])
    faults = with_columns(profile.table("faults"), ns=durations_ns[-2:])
    return profile.derive({"samples": samples, "off_cpu": absences, "faults": faults})


def timelines(profile):
    return draw_timelines(profile, np.ones(profile.table("threads").num_rows, bool))


@repeatable
@given(TIMES, DURATIONS, ENDS)
def test_no_spell_of_a_thread_ends_before_it_begins(times_ns, durations_ns, until_ms):
    for timeline in timelines(build(times_ns, durations_ns, until_ms)):
        assert all(spell.start_ns <= spell.end_ns for spell in timeline.spells)
        assert all(before.end_ns == after.start_ns for before, after in pairwise(timeline.spells))
        assert all(value >= 0 for value in timeline.totals.values())


@repeatable
@given(TIMES, DURATIONS, ENDS)
def test_no_place_has_less_than_no_time(times_ns, durations_ns, until_ms):
    found = account_for(build(times_ns, durations_ns, until_ms), PID, 3)
    assert found.wall_ns >= 0
    assert found.unknown_ns >= 0
    assert all(one.value_ns >= 0 for one in found.places)
    assert all(value_ns >= 0 for one in found.places for _, value_ns in (*one.reasons, *one.stacks))


@repeatable
@given(TIMES, DURATIONS, ENDS)
def test_in_the_firefox_profiler_time_goes_on(times_ns, durations_ns, until_ms):
    document = Document(build(times_ns, durations_ns, until_ms))
    for thread in document.json["threads"]:
        markers, samples = thread["markers"], thread["samples"]
        spans = zip(markers["startTime"], markers["endTime"], strict=True)
        assert all(0 <= start <= end for start, end in spans)
        assert all(before <= after for before, after in pairwise(samples["time"]))
        assert min(samples["threadCPUDelta"], default=0) >= 0


@repeatable
@given(TIMES, DURATIONS, ENDS)
def test_in_perfetto_nothing_ends_before_it_begins(times_ns, durations_ns, until_ms):
    for _, _, start_ns, end_ns, _, _ in Trace(build(times_ns, durations_ns, until_ms)).slices():
        assert 0 <= start_ns <= end_ns


def test_a_sleep_from_before_the_recording_is_cut_off_at_its_beginning():
    profile = build([START_NS + at * MS for at in (10, 40, 60, 70, 80)], [0, 5_000 * MS, 0, 0, 0], 100)
    ((name, start, end, *_), *_) = Document(profile).markers("app")
    assert (name, start, end) == ("off-cpu", 0, 40)
