"""Recording from Python: `stackhound.record`."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

import stackhound
from stackhound.errors import NoSuchProcess, RecordingError

pytestmark = pytest.mark.ebpf


def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        sum(range(1000))


def pids_of(profile):
    threads = profile.numbers("samples", "thread")
    return set(profile.numbers("processes", "pid")[profile.numbers("threads", "process")[threads]].tolist())


def test_a_program_records_itself():
    with stackhound.record(pids=[os.getpid()], frequency_hz=499) as recording:
        work(0.2)
    assert pids_of(recording.profile) == {os.getpid()}
    assert len(recording.profile.top(5)) > 0


def test_the_whole_machine_has_the_block_in_it():
    with stackhound.record(frequency_hz=499) as recording:
        work(0.2)
    assert os.getpid() in pids_of(recording.profile)


def test_another_process_is_recorded_with_several_events():
    with subprocess.Popen([sys.executable, "-c", "while True: bytearray(1 << 20)"]) as other:
        with stackhound.record(pids=[other.pid], events=["cpu", "page-faults"], frequency_hz=199) as recording:
            time.sleep(0.5)
        other.kill()
    profile = recording.profile
    assert [event.name for event in profile.events] == ["cpu", "page-faults"]
    assert pids_of(profile) == {other.pid}


def test_an_error_in_the_block_is_the_callers_and_the_profile_is_there():
    recording = stackhound.record(pids=[os.getpid()])
    with pytest.raises(ZeroDivisionError), recording:
        work(1 / 0)
    assert recording.profile.events[0].name == "cpu"


def test_before_its_end_a_recording_has_no_profile():
    with stackhound.record(pids=[os.getpid()]) as recording:
        with pytest.raises(RecordingError, match="no profile"):
            _ = recording.profile
        work(0.3)
        assert recording.status().elapsed_ns > 0
    assert recording.stop() is recording.profile


def test_a_process_that_is_not_there_is_refused_before_anything_is_loaded():
    with pytest.raises(NoSuchProcess, match="no process 4194303"):
        stackhound.record(pids=[4194303])


def test_a_recording_that_is_closed_is_thrown_away():
    from stackhound import Recorder
    from stackhound.recording import RecordOptions

    recorder = Recorder(RecordOptions(pids=(os.getpid(),)))
    recorder.start()
    recorder.close()
    with pytest.raises(RecordingError):
        recorder.stop()
