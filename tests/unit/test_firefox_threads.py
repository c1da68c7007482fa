"""Threads over time, as the Firefox Profiler draws them: samples, CPU use, sleeps, markers, counters."""

from __future__ import annotations

import pytest
from arro3.core import Array, DataType, Table

from fixtures.examples import METADATA, two_events, web_server
from fixtures.firefox import Document
from fixtures.profiles import CPU, FAULTS, build_profile, make_table
from stackhound.profile import Event
from stackhound.profile.columns import with_columns
from stackhound.profile.schema import OPTIONAL_TABLES

MS = 1_000_000
TYPES = {"utf8": DataType.utf8(), "uint32": DataType.uint32(), "uint64": DataType.uint64()}
HZ = 100
CPU_100 = Event(0, "cpu", "nanoseconds", "cpu-clock", "frequency", HZ)
OFF_CPU = Event(1, "off-cpu", "nanoseconds", "sched_exit_tp", "period", 1 * MS)
BLOCK = Event(1, "block-io", "nanoseconds", "block_rq_complete", "period", 1)
MAJOR = Event(1, "major-faults", "count", "major-faults", "period", 1)
START = {"clock": {"start_boottime_ns": 0, "end_boottime_ns": 1_000 * MS, "boot_to_unix_ns_start": 5_000 * MS}}


def build(rows, events=(CPU_100,), durations_ms=None):
    """A profile of (comm, tid, time in ms, stack, value in ms, event), of process 7; times are when it was over."""
    samples = [
        (comm, 7, tid, 0, time_ms * MS, stack, value_ms * MS, 1, *event)
        for comm, tid, time_ms, stack, value_ms, *event in rows
    ]
    profile = build_profile(samples, events, metadata=START)
    if durations_ms is None:
        return profile
    durations_ns = [one * MS for one in durations_ms]
    return profile.derive({"samples": with_columns(profile.table("samples"), duration_ns=durations_ns)})


def side(profile, name, **columns):
    """The profile with a side table; a column is a list of numbers or of texts."""
    known = OPTIONAL_TABLES.get(name, {})
    arrays = {
        key: Array(values, TYPES[known.get(key, "utf8" if isinstance(values[0], str) else "uint64")])
        for key, values in columns.items()
    }
    return profile.derive({name: Table.from_pydict(arrays)})


def test_each_thread_has_its_samples_with_what_they_used_of_the_cpu():
    rows = [("app", 7, 20, ["a"], 10), ("app", 7, 30, ["b"], 10), ("app", 8, 25, ["c"], 10)]
    document = Document(build([("main", *rows[0][1:]), ("main", *rows[1][1:]), ("worker", *rows[2][1:])]))
    assert document.rows("main") == [(10, None, 0, 0), (20, ["a"], 1, 10), (30, ["b"], 1, 10)]
    assert document.rows("worker") == [(15, None, 0, 0), (25, ["c"], 1, 10)]


def test_time_that_a_thread_was_not_seen_is_not_taken_for_use():
    document = Document(build([("app", 7, 20, ["a"], 10), ("app", 7, 500, ["a"], 10)]))
    assert document.rows("app") == [(10, None, 0, 0), (20, ["a"], 1, 10), (490, None, 0, 0), (500, ["a"], 1, 10)]


def test_the_units_are_said():
    meta = Document(build([("app", 7, 20, ["a"], 10)])).json["meta"]
    assert meta["sampleUnits"] == {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"}
    assert (meta["interval"], meta["preprocessedProfileVersion"], meta["startTime"]) == (10, 70, 5_000)
    assert meta["profilingEndTime"] == 1_000


def test_threads_are_under_their_processes_names():
    document = Document(web_server())
    assert {(one["processName"], one["name"], one["pid"], one["tid"]) for one in document.json["threads"]} == {
        ("nginx", "nginx", "7", 7),
        ("nginx", "nginx: worker", "7", 8),
        ("java", "java", "9", 9),
    }
    assert [one["isMainThread"] for one in document.json["threads"]] == [True, False, True]


def test_a_thread_that_renames_itself_is_one_under_its_last_name():
    document = Document(build([("before", 7, 20, ["a"], 10), ("after", 7, 30, ["b"], 10)]))
    (thread,) = document.json["threads"]
    assert thread["name"] == "after"
    assert [stack for _, stack, _, _ in document.rows("after")] == [None, ["a"], ["b"]]


def test_another_program_of_the_same_pid_is_another_process():
    profile = build([("app", 7, 20, ["a"], 10), ("new", 8, 30, ["b"], 10)])
    processes = profile.table("processes")
    twice = Table.from_pydict({
        name: Array([*processes[name].to_pylist(), *processes[name].to_pylist()], processes.schema.field(name).type)
        for name in processes.column_names
    })  # fmt: skip
    twice = with_columns(twice, id=[0, 1])
    threads = with_columns(profile.table("threads"), process=[0, 1], tid=[7, 7])
    document = Document(profile.derive({"processes": twice, "threads": threads}))
    assert [(one["pid"], one["name"]) for one in document.json["threads"]] == [("7", "app"), ("7.1", "new")]


def test_a_sleep_is_a_row_where_it_begins_and_one_with_the_rest_of_its_weight_where_it_ends():
    rows = [
        ("app", 7, 20, ["work"], 10),
        ("app", 7, 75, ["work", "k:do_nanosleep"], 50, "off-cpu"),
        ("app", 7, 85, ["work"], 10),
    ]
    document = Document(build(rows, (CPU_100, OFF_CPU), durations_ms=(0, 50, 0)))
    assert document.rows("app") == [
        (10, None, 0, 0),
        (20, ["work"], 1, 10),
        (25, ["work", "do_nanosleep"], 1, 5),  # 5 ms of work were left over
        (75, ["work", "do_nanosleep"], 4, 0),
        (85, ["work"], 1, 10),
    ]


def test_short_sleeps_count_for_as_many_intervals_as_they_are_together():
    rows = [("app", 7, 10 + 5 * one, ["k:schedule"], 4, "off-cpu") for one in range(100)]
    document = Document(build(rows, (CPU_100, OFF_CPU), durations_ms=[4] * 100))
    assert sum(weight for _, _, weight, _ in document.rows("app")) == 40  # 400 ms
    assert len(document.markers("app")) == 100


def test_no_thread_uses_more_of_a_cpu_than_time_passes():
    rows = [("app", 7, 20, ["a"], 10), ("app", 7, 23, ["a"], 10)]
    assert [cpu for _, _, _, cpu in Document(build(rows)).rows("app")] == [0, 10, 3]


def test_sleeps_say_why_and_who_ended_them():
    rows = [
        ("app", 7, 20, ["work"], 10),
        ("app", 7, 75, ["work", "k:futex_wait"], 50, "off-cpu"),
        ("waker", 8, 75, ["main", "notify"], 10),
    ]
    profile = build(rows, (CPU_100, OFF_CPU), durations_ms=(0, 50, 0))
    waker_stack = profile.numbers("samples", "stack").tolist()[2]
    waker = profile.texts("threads", "comm").index("waker")
    profile = side(profile, "off_cpu", sample=[1], state=["waiting"], reason=["futex"], queued_ns=[5 * MS])
    profile = side(profile, "wakers", sample=[1], thread=[waker], stack=[waker_stack])
    assert Document(profile).markers("app") == [
        (
            "off-cpu",
            25,
            75,
            1,
            {
                "type": "off-cpu",
                "cause": ["work", "futex_wait"],
                "value": 50 * MS,
                "state": "waiting",
                "reason": "futex",
                "queued_ns": 5,
                "waker_thread": "waker (8)",
                "waker_stack": "notify ← main",
            },
        )
    ]


def with_request(profile, **said):
    """The profile, whose second sample is a request; what is not said of it is nothing."""
    row = {name: "" if kind == "utf8" else 0 for name, kind in OPTIONAL_TABLES["block_io"].items()}
    rows = [row | dict.fromkeys(("sync", "meta", "failed"), False) | {"sample": 1} | said]
    return profile.derive({"block_io": make_table("block_io", rows)})


def test_requests_to_the_disk_are_markers_with_their_latency_and_size():
    rows = [("app", 7, 20, ["work"], 10), ("app", 7, 90, ["work", "k:submit_bio"], 30, "block-io")]
    profile = build(rows, (CPU_100, BLOCK), durations_ms=(0, 30))
    said = {"device": "vda", "operation": "read", "bytes": 4096, "queue_ns": 10 * MS, "device_ns": 20 * MS}
    document = Document(with_request(profile, **said))
    ((name, start, end, phase, data),) = document.markers("app")
    assert (name, start, end, phase, data["cause"]) == ("block-io", 60, 90, 1, ["work", "submit_bio"])
    assert [data[name] for name in said] == ["vda", "read", 4096, 10, 20]
    assert counters(document)["Disk"] == [(0, 0), (100, 4096), (200, 0)]


def test_faults_are_markers_with_the_file_and_a_curve():
    rows = [("app", 7, 20, ["work"], 10), ("app", 7, 150, ["work", "k:filemap_fault"], 1, "major-faults")]
    profile = build(rows, (CPU_100, MAJOR))
    profile = profile.derive({"samples": with_columns(profile.table("samples"), value=[10 * MS, 3])})
    profile = side(profile, "faults", sample=[1], object=[0], offset=[0x2000], ns=[5 * MS])
    document = Document(profile)
    ((_, start, end, phase, data),) = document.markers("app")
    assert (start, end, phase, data["cause"]) == (145, 150, 1, ["work", "filemap_fault"])
    assert (data["object"], data["offset"], data["ns"], data["value"]) == ("/usr/bin/app", 0x2000, 5, 3)
    assert counters(document)["major-faults"] == [(100, 0), (200, 3), (300, 0)]


def test_a_fault_that_was_not_timed_is_at_one_time():
    rows = [("app", 7, 20, ["work"], 10), *[("app", 7, at, ["work"], 1, "major-faults") for at in (150, 160, 170)]]
    profile = side(build(rows, (CPU_100, MAJOR)), "faults", sample=[3, 1], object=[0, 0], offset=[0, 0], ns=[2 * MS, 0])
    markers = Document(profile).markers("app")
    assert [(start, end, phase, data.get("ns")) for _, start, end, phase, data in markers] == [
        (150, 150, 0, None), (160, 160, 0, None), (168, 170, 1, 2),
    ]  # fmt: skip


@pytest.mark.parametrize("ns", [2**63, 2**64 - 1])
def test_a_fault_never_ends_before_it_begins(ns):
    rows = [("app", 7, 20, ["work"], 10), ("app", 7, 150, ["work"], 1, "major-faults")]
    profile = side(build(rows, (CPU_100, MAJOR)), "faults", sample=[1], object=[0], offset=[0], ns=[ns])
    ((_, start, end, *_),) = Document(profile).markers("app")
    assert (start, end) == (0, 150)


def test_a_request_counts_for_those_that_it_stands_for():
    rows = [("app", 7, 20, ["work"], 10), ("app", 7, 90, ["work"], 90, "block-io")]
    profile = build(rows, (CPU_100, BLOCK), durations_ms=(0, 30))
    document = Document(with_request(profile, device="vda", operation="read", bytes=4096))
    assert counters(document)["Disk"] == [(0, 0), (100, 3 * 4096), (200, 0)]


def test_a_request_whose_time_in_the_queue_is_not_known_has_none():
    rows = [("app", 7, 20, ["work"], 10), ("app", 7, 90, ["work"], 30, "block-io")]
    document = Document(with_request(build(rows, (CPU_100, BLOCK)), operation="flush", queue_ns=None))
    ((*_, data),) = document.markers("app")
    assert (data["operation"], "queue_ns" in data) == ("flush", False)


@pytest.mark.parametrize("said", [{"device": '1}],"threads":['}, {"bytes": 2**64 - 1}, {"queue_ns": 2**64 - 1}])
def test_requests_that_cannot_be_do_no_harm(said):
    rows = [("app", 7, 20, ["work"], 10), ("app", 7, 90, ["work"], 30, "block-io")]
    ((name, *_),) = Document(with_request(build(rows, (CPU_100, BLOCK)), **said)).markers("app")
    assert name == "block-io"


def test_row_numbers_of_nothing_are_left_out():
    rows = [("app", 7, 20, ["work"], 10), ("app", 7, 75, ["work"], 50, "off-cpu")]
    profile = build(rows, (CPU_100, OFF_CPU), durations_ms=(0, 50))
    profile = side(profile, "off_cpu", sample=[1], state=["waiting"], reason=["futex"], queued_ns=[5 * MS])
    profile = side(profile, "wakers", sample=[1], thread=[2**31], stack=[2**31])
    ((*_, data),) = Document(profile).markers("app")
    assert (data["reason"], "waker_thread" in data, "waker_stack" in data) == ("futex", False, False)


def counters(document):
    """(time, count) of each counter by its name."""
    return {
        one["name"]: list(zip(one["samples"]["time"], one["samples"]["count"], strict=True))
        for one in document.json["counters"]
    }


def test_other_events_are_markers_with_their_stacks():
    document = Document(two_events())
    assert [(name, data) for name, _, _, _, data in document.markers("app")] == [
        ("page-faults", {"type": "page-faults", "cause": ["main", "load"], "value": 3})
    ]
    assert document.thread("app")["showMarkersInTimeline"]


def test_a_sample_without_a_stack_is_a_marker_without_one():
    rows = [("app", 7, 7, 0, 1, ["a"], 1, 1), ("app", 7, 7, 0, 2, [], 1, 1, "page-faults")]
    document = Document(build_profile(rows, (CPU, FAULTS)))
    assert [data for *_, data in document.markers("app")] == [{"type": "page-faults", "value": 1}]


def test_one_event_alone_is_the_samples():
    document = Document(two_events(), "page-faults")
    assert document.rows("app") == [(0, ["main", "load"], 3, 0)]
    assert document.markers("app") == []
    assert document.thread("app")["samples"]["weightType"] == "samples"


def test_the_curve_of_the_cpu_tells_how_many_a_process_used():
    rows = [("a", 7, 110 + 10 * one, ["work"], 10) for one in range(9)] + [("b", 8, 150, ["work"], 10)]
    document = Document(build(rows))
    assert counters(document)["CPU"] == [(100, 0), (200, 100), (300, 0)]
    (counter,) = document.json["counters"]
    assert counter["pid"] == "7"
    assert document.json["threads"][counter["mainThreadIndex"]]["name"] == "a"


def test_a_curve_is_zero_where_nothing_was_seen():
    document = Document(build([("a", 7, 50, ["work"], 10), ("a", 7, 950, ["work"], 10)]))
    assert counters(document)["CPU"] == [(0, 0), (100, 10), (200, 0), (900, 0), (1000, 10), (1100, 0)]


def test_what_is_known_of_the_recording_is_shown():
    document = Document(build_profile([("app", 7, 7, 0, 2_000 * MS, ["a"], 10, 1)], metadata=METADATA))
    meta = document.json["meta"]
    shown = (meta["product"], meta["importedFrom"], meta["oscpu"])
    assert shown == ("cpu on web-1", "stackhound 0.1.0", "Linux 6.18.5")
    assert {"label": "Samples", "format": "string", "value": "1"} in meta["extra"][0]["entries"]
