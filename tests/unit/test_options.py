"""What a recording may be asked, and what is refused before anything is touched."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from stackhound import _native
from stackhound.errors import EventUnavailable, NoSuchProcess, PermissionMissing, UsageError
from stackhound.recording import options as options_file
from stackhound.recording.options import RecordOptions, check_process


def event_of(**options):
    (event,) = RecordOptions(**options).native()["events"]
    return event


def test_without_options_it_is_cpu_time_of_the_whole_machine_at_99_hz():
    native = RecordOptions().native()
    assert native["pids"] == []
    assert native["inherit"]
    assert not native["include_self"]
    assert native["events"] == [
        {
            "name": "cpu", "unit": "nanoseconds", "type": -1, "config": 0, "config1": 0, "config2": 0,
            "exclude_kernel": False, "exclude_user": False, "mode": "frequency", "rate": 99, "tracepoint": "",
        }
    ]  # fmt: skip


def test_a_period_of_cpu_is_nanoseconds_of_cpu_clock():
    event = event_of(period=1_000_000)
    assert (event["name"], event["unit"]) == ("cpu", "nanoseconds")
    assert (event["type"], event["config"]) == (1, 0)
    assert (event["mode"], event["rate"]) == ("period", 1_000_000)


def test_a_period_of_cycles_is_cycles():
    event = event_of(events=("cycles",), period=1_000_003)
    assert (event["type"], event["config"], event["unit"]) == (0, 0, "count")
    assert (event["mode"], event["rate"]) == ("period", 1_000_003)


@pytest.fixture
def scheduler_tracepoints(monkeypatch):
    names = [("sched:sched_switch", "tracepoint", ""), ("sched:sched_waking", "tracepoint", "")]
    monkeypatch.setattr("stackhound._native.list_events", lambda: names)


@pytest.mark.usefixtures("scheduler_tracepoints")
def test_a_tracepoint_is_sampled_each_time_unless_a_frequency_is_given():
    each = event_of(events=("sched:sched_switch",))
    assert (each["mode"], each["rate"], each["tracepoint"]) == ("period", 1, "sched:sched_switch")
    often = event_of(events=("sched:sched_switch",), frequency_hz=10)
    assert (often["mode"], often["rate"]) == ("frequency", 10)


def test_an_event_named_twice_also_by_an_alias_is_one_event():
    native = RecordOptions(events=("page-faults", "faults", "cs")).native()
    assert [event["name"] for event in native["events"]] == ["page-faults", "context-switches"]


def test_a_process_named_twice_is_one_process():
    assert RecordOptions(pids=(7, 8, 7)).native()["pids"] == [7, 8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frequency_hz": 0}, "0 Hz"),
        ({"frequency_hz": -5}, "-5 Hz"),
        ({"frequency_hz": 99, "period": 99}, "exclude each other"),
        ({"period": 0}, "out of range"),
        ({"period": 2**63}, "out of range"),
        ({"pids": (0,)}, "not a process id"),
        ({"pids": (-1,)}, "not a process id"),
        ({"events": ()}, "no event"),
        ({"user_only": True, "kernel_only": True}, "exclude each other"),
        ({"ring_bytes": 5000}, "ring of 5000 bytes"),
        ({"ring_bytes": 2048}, "ring of 2048 bytes"),
        ({"ring_bytes": 2**31}, "ring of"),
        ({"wakers": True}, "time off the CPU"),
        ({"wakers": True, "aggregate": True, "events": ("off-cpu",)}, "combined"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_remedy(options, message):
    with pytest.raises(UsageError, match=message) as refused:
        RecordOptions(**options)
    assert refused.value.remedy


@pytest.mark.parametrize("size", [8192, 4 << 20, 2**30])
def test_a_ring_may_be_any_power_of_two_from_a_page_to_a_gibibyte(size):
    assert RecordOptions(ring_bytes=size).native()["ring_bytes"] == size


def test_a_frequency_above_the_kernels_limit_names_the_limit_and_the_sysctl(tmp_path, monkeypatch):
    limit = tmp_path / "perf_event_max_sample_rate"
    limit.write_text("5000\n")
    monkeypatch.setattr(options_file, "MAX_SAMPLE_RATE", limit)
    with pytest.raises(UsageError) as refused:
        RecordOptions(frequency_hz=9999).check_machine()
    assert "5000" in refused.value.message
    assert "kernel.perf_event_max_sample_rate=9999" in refused.value.remedy
    RecordOptions(frequency_hz=5000).check_machine()
    RecordOptions(period=9999).check_machine()


def test_a_process_that_has_ended_is_named():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(NoSuchProcess, match=str(child.pid)):
        check_process(child.pid)


def test_a_thread_is_refused_with_its_process():
    started, done = threading.Event(), threading.Event()

    def wait():
        started.set()
        done.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    try:
        with pytest.raises(UsageError, match=f"thread of process {os.getpid()}") as refused:
            check_process(thread.native_id)
        assert f"-p {os.getpid()}" in refused.value.remedy
    finally:
        done.set()
        thread.join()


def test_this_process_and_kernel_threads_may_be_recorded():
    check_process(os.getpid())
    if os.geteuid() == 0:
        check_process(2)  # kthreadd


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_process_of_another_user_is_refused_with_the_capability():
    script = """
import os
from stackhound.errors import PermissionMissing
from stackhound.recording.options import check_process
os.setresuid(65534, 65534, 65534)
try:
    check_process(1)
except PermissionMissing as error:
    print(error)
"""
    # The environment may lie where only root can read it: everything is imported before the change.
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "no permission to look into process 1" in shown.stdout
    assert "CAP_SYS_PTRACE" in shown.stdout
    assert issubclass(PermissionMissing, Exception)


def test_a_cgroup_that_is_not_there_is_named():
    with pytest.raises(UsageError, match=r"no-such-cgroup|no cgroup v2"):
        RecordOptions(cgroup="no-such-cgroup").native()


def test_a_directory_that_is_no_cgroup_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cgroup"):
        RecordOptions(cgroup=str(tmp_path)).native()


def test_a_debug_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match="debug directory"):
        RecordOptions(debug_dirs=(tmp_path / "none",)).check_machine()


def test_all_is_what_tells_where_time_goes_as_far_as_it_is_there(monkeypatch):
    monkeypatch.setattr(_native, "probe_off_cpu", lambda: "no sched_exit_tp")
    options = RecordOptions(events=("all", "cpu"))
    names = [event["name"] for event in options.native()["events"]]
    assert names[0] == "cpu"
    assert names.count("cpu") == 1
    assert "off-cpu" not in names
    assert "off-cpu is not recorded: no sched_exit_tp" in options.notes()
    assert not RecordOptions(events=("cpu",)).notes()


def test_a_tracepoint_that_cannot_be_looked_up_is_told_and_the_others_go_on(monkeypatch):
    def refuse(_name):
        raise EventUnavailable("tracefs cannot be read", "mount it")

    monkeypatch.setattr("stackhound.recording.tracepoints.check_tracepoint", refuse)
    options = RecordOptions(events=("sched:sched_switch", "cpu"))
    assert [event["name"] for event in options.native()["events"]] == ["cpu"]
    assert options.notes() == ["sched:sched_switch is not recorded: tracefs cannot be read: mount it"]
    with pytest.raises(EventUnavailable):
        RecordOptions(events=("sched:sched_switch",)).native()
    with pytest.raises(EventUnavailable):
        RecordOptions(events=("sched:sched_switch", "sched:sched_waking")).native()
