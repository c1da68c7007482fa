"""Recording from Python: `stackhound.record`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

import stackhound
from stackhound.errors import NoSuchProcess, RecordingError, UsageError
from support_profiles import samples_of

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


def test_a_recording_without_arguments_is_of_the_program_itself():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        with stackhound.record(frequency_hz=499) as recording:
            work(0.2)
        other.kill()
    assert pids_of(recording.profile) == {os.getpid()}
    functions = recording.profile.top(10_000).table["function"].to_pylist()
    assert "work" in {name.rpartition(".")[2] for name in functions}


def test_children_that_the_block_starts_are_in_its_recording():
    with stackhound.record(frequency_hz=499) as recording:
        child = subprocess.Popen([sys.executable, "-c", "sum(range(10_000_000))"])
        child.wait()
    assert child.pid in pids_of(recording.profile)


def test_what_stackhound_does_meanwhile_is_shown_only_when_asked_for():
    with stackhound.record(frequency_hz=4999) as recording:
        work(0.3)
    comms = [sample.comm for sample in samples_of(recording.profile)]
    frames = {frame for sample in samples_of(recording.profile) for frame in sample.frames}
    assert not [comm for comm in comms if comm.startswith("stackhound")]
    assert not {frame for frame in frames if frame.file.endswith("recording/recorder.py")}
    with stackhound.record(frequency_hz=4999, include_self=True) as recording:
        work(0.3)
    assert "stackhound" in {sample.comm for sample in samples_of(recording.profile)}


def test_a_program_may_profile_its_own_use_of_stackhound():
    with stackhound.record(frequency_hz=999) as recording:
        work(0.1)
    with stackhound.record(frequency_hz=4999) as again:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            recording.profile.merge_threads().tree()
    assert "tree.build_tree" in {
        ".".join(frame.name.split(".")[-2:]) for sample in samples_of(again.profile) for frame in sample.frames
    }


def test_threads_of_the_program_are_recorded():
    thread = threading.Thread(target=work, args=(0.3,), name="worker")
    with stackhound.record(frequency_hz=499) as recording:
        thread.start()
        thread.join()
    assert thread.native_id in {sample.tid for sample in samples_of(recording.profile)}


def test_the_whole_machine_has_the_block_in_it():
    with stackhound.record(whole_system=True, frequency_hz=499) as recording:
        work(0.2)
    assert os.getpid() in pids_of(recording.profile)


def test_the_whole_machine_and_some_processes_exclude_each_other():
    with pytest.raises(UsageError, match="exclude each other"):
        stackhound.record(whole_system=True, pids=[os.getpid()])


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
