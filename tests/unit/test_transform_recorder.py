"""A process that records itself: what is its own work, and what the recording's."""

from __future__ import annotations

import os

import pytest

from fixtures.profiles import Frame, build_profile
from stackhound import _native
from stackhound.transform.recorder import RECORDER

WORK = Frame("app.work", kind="python", path="/srv/app.py", file="/srv/app.py", line=3)
START = Frame("recorder.Recorder.start", kind="python", path=RECORDER, file=RECORDER, line=90)
DRAIN = Frame("drain", path=os.path.realpath(_native.__file__))


def left(*rows):
    """The tids of the samples that stay when process 7 recorded; thread 9 of it is the recording's."""
    samples = [("app", pid, tid, 0, at, frames, 10, 1) for at, (pid, tid, frames) in enumerate(rows)]
    profile = build_profile(samples).without_recorder(7, [9])
    return profile.numbers("threads", "tid")[profile.numbers("samples", "thread")].tolist()


@pytest.mark.parametrize(
    "frames", [["main", START], [START, "PyImport"], [START, DRAIN], [DRAIN], ["clone3", DRAIN, "k:read"]]
)
def test_the_recordings_own_work_is_dropped(frames):
    assert left((7, 7, frames), (7, 8, ["main", WORK])) == [8]


@pytest.mark.parametrize("frames", [["main", WORK], [WORK, DRAIN], ["main"], []])
def test_the_programs_work_stays_also_when_it_uses_stackhound(frames):
    assert left((7, 7, frames)) == [7]


def test_threads_that_are_named_are_dropped_whatever_they_run():
    assert left((7, 9, ["main", WORK]), (7, 7, ["main"])) == [7]


def test_other_processes_stay_as_they_are_also_other_recorders():
    assert left((12, 12, [DRAIN]), (13, 9, ["main"]), (7, 7, [DRAIN])) == [12, 9]
