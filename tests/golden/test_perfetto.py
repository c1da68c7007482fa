"""Perfetto traces, decoded with the message types of Perfetto's own Python package."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from fixtures.examples import METADATA, PERIOD_NS, two_events, web_server
from fixtures.perfetto import Trace, decode, messages, unknown_fields, write
from fixtures.profiles import CPU, FAULTS, build_profile, make_table
from fixtures.times import APP, MS, OFF_CPU, START_NS, WORKER, away, build_times, ran
from stackhound.errors import EmptyProfile, UsageError
from stackhound.profile import Event
from stackhound.profile.columns import with_columns

READ = ["_start", "main", "parse", "vfs_read"]
LOCK = ["main", "k:futex_wait"]
NAP = ["main", "k:do_nanosleep"]


def test_a_small_trace_is_this_one():
    profile = build_profile([("app", 7, 7, 3, 1_000_000_000, ["main at a.c:3"], PERIOD_NS, 1)], metadata=METADATA)
    expected = """
        packet { timestamp: 1000000000 trusted_packet_sequence_id: 1 sequence_flags: 1 clock_snapshot {
            clocks { clock_id: 6 timestamp: 1000000000 }
            clocks { clock_id: 1 timestamp: 1763718192000000000 }
            primary_trace_clock: BUILTIN_CLOCK_BOOTTIME } }
        packet { trusted_packet_sequence_id: 1 sequence_flags: 2 interned_data {
            function_names { iid: 1 str: "main" }
            mapping_paths { iid: 1 str: "/usr/bin/app" }
            build_ids { iid: 1 str: "BUILD_ID" }
            mappings { iid: 1 build_id: 1 path_string_ids: 1 }
            source_paths { iid: 1 str: "a.c" }
            frames { iid: 1 function_name_id: 1 mapping_id: 1 rel_pc: 4097 source_path_iid: 1 line_number: 3
                     kind: KIND_NATIVE }
            callstacks { iid: 1 frame_ids: 1 } } }
        packet { trusted_packet_sequence_id: 1 sequence_flags: 2 track_descriptor { uuid: 1
            process { pid: 7 cmdline: "app --run" process_name: "app" start_timestamp_ns: 7 } } }
        packet { trusted_packet_sequence_id: 1 sequence_flags: 2 track_descriptor { uuid: 2 parent_uuid: 1
            thread { pid: 7 tid: 7 thread_name: "app" } } }
        packet { trusted_packet_sequence_id: 1 sequence_flags: 2 track_descriptor { uuid: 3 parent_uuid: 1
            name: "CPUs in use" counter { unit_name: "" } } }
        packet { timestamp: 1000000000 trusted_packet_sequence_id: 1 sequence_flags: 2 perf_sample {
            cpu: 3 pid: 7 tid: 7 cpu_mode: MODE_USER callstack_iid: 1 } }
        packet { timestamp: 1000000000 trusted_packet_sequence_id: 1 sequence_flags: 2 track_event {
            type: TYPE_COUNTER track_uuid: 3 double_counter_value: 0.1010101 } }
        packet { timestamp: 1100000000 trusted_packet_sequence_id: 1 sequence_flags: 2 track_event {
            type: TYPE_COUNTER track_uuid: 3 double_counter_value: 0 } }
    """
    build_id = "".join(f"\\x{one:02x}" for one in bytes.fromhex(profile.texts("objects", "build_id")[0]))
    assert decode(write(profile)) == text_format.Parse(expected.replace("BUILD_ID", build_id), messages.Trace())


@pytest.fixture(params=["web", "events", "times"])
def profile(request):
    return {"web": web_server, "events": two_events, "times": times}[request.param]()


def times():
    return build_times(
        [
            ran(APP, 5, ["main", "k:read"], 10, in_kernel=True),
            away(APP, 40, LOCK, 30, "futex", queued=5),
            away(APP, 60, NAP, 4, "sleep", value=25, count=5),
            away(WORKER, 90, NAP, 80, "disk", state="disk"),
        ],
        until=100,
    )


def test_everything_in_a_trace_is_known_to_perfetto(profile):
    assert list(unknown_fields(decode(write(profile)))) == []


def test_all_packets_are_of_one_sequence_that_begins_with_the_clocks(profile):
    first, *others = decode(write(profile)).packet
    assert first.HasField("clock_snapshot")
    assert first.sequence_flags == messages.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
    assert {packet.sequence_flags for packet in others} == {messages.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE}
    assert {packet.trusted_packet_sequence_id for packet in (first, *others)} == {1}


def test_samples_on_the_cpu_have_their_stacks_with_inlined_functions_and_lines():
    trace = Trace(web_server())
    assert [(time, cpu, pid, tid, stack) for time, cpu, pid, tid, _, stack in trace.samples()] == [
        (2_000_000_042, 0, 7, 7, READ),
        (2_010_000_000, 0, 7, 7, READ),
        (2_010_000_000, 1, 7, 8, ["_start", "main", "[libz.so.1]"]),
        (2_020_000_000, 1, 9, 9, ["_start", "Foo.bar"]),
    ]
    callstack = trace.of_kind("perf_sample")[0].perf_sample.callstack_iid
    start, outer, inlined, kernel = trace.frames(callstack)
    assert trace.place(outer)[:3] == ("/src/main.c", 12, "/usr/bin/app")
    assert trace.place(inlined)[:3] == ("/src/parse.h", 40, "/usr/bin/app")
    assert len(trace.place(start)[3]) == 40  # its build-id
    assert (outer.rel_pc, outer.mapping_id) == (inlined.rel_pc, inlined.mapping_id)
    assert kernel.kind == messages.Frame.KIND_KERNEL
    assert trace.place(kernel) == ("", 0, "[kernel]", "")


def test_threads_are_grouped_by_their_process():
    trace = Trace(web_server())
    named = {tuple(trace.track(uuid)) for uuid, track in trace.tracks.items() if track.HasField("thread")}
    assert named == {("nginx", "nginx"), ("nginx", "nginx: worker"), ("java", "java")}


def test_time_off_the_cpu_is_a_slice_with_its_reason_and_what_is_known_of_it():
    slices = Trace(times(), start_ns=START_NS).slices()
    assert slices == [
        (["app", "app"], "futex", 10 * MS, 40 * MS,
         {"value_ns": 30 * MS, "count": 1, "state": "waiting", "reason": "futex", "queued_ns": 5 * MS},
         ["main", "futex_wait"]),
        (["app", "worker"], "disk", 10 * MS, 90 * MS,
         {"value_ns": 80 * MS, "count": 1, "state": "disk", "reason": "disk", "queued_ns": 0},
         ["main", "do_nanosleep"]),
        (["app", "app"], "sleep", 56 * MS, 60 * MS,
         {"value_ns": 25 * MS, "count": 5, "state": "waiting", "reason": "sleep", "queued_ns": 0},
         ["main", "do_nanosleep"]),
    ]  # fmt: skip


def test_a_thread_that_was_preempted_waited_for_nothing():
    ((_, name, *_, arguments, _),) = Trace(build_times([away(APP, 40, NAP, 30, "cpu")], until=100)).slices()
    assert (name, arguments["state"], arguments["reason"]) == ("preempted", "preempted", "cpu")


def test_a_sample_in_the_kernel_says_so():
    (sample,) = Trace(times(), start_ns=START_NS).samples()
    assert sample == (5 * MS, 0, 7, 7, True, ["main", "read"])


def test_absences_of_a_thread_never_overlap():
    spells = [away(APP, 50, NAP, 30, "sleep"), away(APP, 51, NAP, 20, "sleep"), away(APP, 51, NAP, 1, "sleep")]
    slices = Trace(build_times(spells, until=100), start_ns=START_NS).slices()
    assert [row[2:4] for row in slices] == [(20 * MS, 50 * MS), (50 * MS, 51 * MS), (51 * MS, 51 * MS)]


def test_who_woke_a_thread_is_among_the_arguments():
    unlock = ["main", "unlock", "k:futex_wake", "k:try_to_wake_up"]
    profile = build_times([ran(WORKER, 1, unlock, 1), away(APP, 40, LOCK, 30, "futex")], until=100)
    thread, stack = (int(profile.numbers("samples", name)[0]) for name in ("thread", "stack"))
    profile = profile.derive({"wakers": make_table("wakers", [{"sample": 1, "thread": thread, "stack": stack}])})
    ((*_, arguments, _),) = Trace(profile).slices()
    assert (arguments["waker_thread"], arguments["waker_stack"]) == ("worker (8)", "futex_wake ← unlock ← main")


def test_requests_that_overlap_are_on_tracks_of_their_own():
    block_io = Event(1, "block-io", "nanoseconds", "block_rq_issue", "period", 1)
    took = {20: 10, 30: 15, 50: 10}
    samples = [
        ("app", 7, 7, 0, START_NS + at * MS, ["main", "read"], ms * MS, 1, "block-io") for at, ms in took.items()
    ]
    profile = build_profile(samples, events=(CPU, block_io), metadata={"clock": {"start_boottime_ns": START_NS}})
    duration_ns = with_columns(profile.table("samples"), duration_ns=[ms * MS for ms in took.values()])
    requests = [{"sample": row, "operation": "read", "bytes": 4096} for row in range(3)]
    absent = {"device": "vda", "sync": True, "meta": False, "sector": 0, "queue_ns": None, "device_ns": 7,
              "requeues": 0, "failed": False, "cgroup": ""}  # fmt: skip
    profile = profile.derive({"block_io": make_table("block_io", [absent | one for one in requests])})
    trace = Trace(profile.derive({"samples": duration_ns}), start_ns=START_NS)
    assert [row[1:4] for row in trace.slices()] == [
        ("read", 10 * MS, 20 * MS), ("read", 15 * MS, 30 * MS), ("read", 40 * MS, 50 * MS),
    ]  # fmt: skip
    assert trace.slices()[0][4] == {
        "value_ns": 10 * MS, "count": 1, "device": "vda", "operation": "read", "bytes": 4096, "device_ns": 7,
    }  # fmt: skip
    assert trace.counters()["app disk"] == [(0, 3 * 4096 * 10), (100 * MS, 0)]
    tracks = [packet.track_event.track_uuid for packet in trace.of_kind("track_event") if packet.track_event.type == 1]
    assert tracks[0] == tracks[2] != tracks[1]
    assert {tuple(trace.track(track)) for track in tracks} == {("app", "app", "block-io")}


def test_page_faults_that_were_not_timed_are_instants_with_their_file_and_their_stack():
    profile = two_events()
    faults = make_table("faults", [{"sample": 1, "object": 0, "offset": 4096, "ns": 0}])
    page_faults = with_columns(profile.table("events"), name=["cpu", "minor-faults"])
    trace = Trace(profile.derive({"faults": faults, "events": page_faults}))
    ((track, name, start_ns, end_ns, arguments, stack),) = trace.slices()
    assert (track, name, start_ns, end_ns) == (["app", "app", "minor-faults"], "minor-faults", 2_000, 2_000)
    assert arguments == {"value": 3, "count": 3, "object": "/usr/bin/app", "offset": 4096}
    assert stack == ["main", "load"]


def test_page_faults_that_were_timed_last_as_long():
    profile = two_events()
    faults = make_table("faults", [{"sample": 1, "object": 0, "offset": 4096, "ns": 1_500}])
    major_faults = with_columns(profile.table("events"), name=["cpu", "major-faults"])
    ((_, name, start_ns, end_ns, arguments, _),) = Trace(
        profile.derive({"faults": faults, "events": major_faults})
    ).slices()
    assert (name, start_ns, end_ns, arguments["ns"]) == ("major-faults", 500, 2_000, 1_500)


def test_curves_are_rates_over_a_tenth_of_a_second():
    faults = [("app", 7, 7, 0, START_NS + at * MS, ["main"], 50, 1, "page-faults") for at in (210, 290, 410)]
    spells = [ran(APP, at, ["main"], 10) for at in (5, 15, 120)]
    profile = build_times(spells, until=1000, events=(CPU, OFF_CPU, Event(2, *list(vars(FAULTS).values())[1:])),
                          more=faults)  # fmt: skip
    counters = Trace(profile, start_ns=START_NS).counters()
    assert counters["app CPUs in use"] == [(0, 0.2), (100 * MS, 0.1), (200 * MS, 0)]
    assert counters["app page-faults"] == [(200 * MS, 1000), (300 * MS, 0), (400 * MS, 500), (500 * MS, 0)]


def test_one_event_is_shown_when_it_is_named():
    trace = Trace(times(), event="off-cpu")
    assert not trace.samples()
    assert trace.slices()


def test_names_from_the_profiled_program_are_escaped():
    profile = build_profile([("\x1b[31m", 7, 7, 0, 1, ["\x1b]0;x\x07", "\u202e"], 1, 1)], metadata=METADATA)
    data = write(profile)
    assert b"\x1b[" not in data
    assert b"\x1b]" not in data
    assert Trace(profile).samples()[0][-1] == [r"\x1b]0;x\x07", r"\u202e"]


def test_what_perfetto_could_not_show_right_is_refused():
    with pytest.raises(UsageError, match="--inverted"):
        write(web_server().invert())
    with pytest.raises(UsageError, match="--aggregate"):
        write(web_server().derive({}, options={"aggregate": True}))
    with pytest.raises(EmptyProfile):
        write(build_profile([]))


def test_large_tables_of_names_are_in_several_packets():
    samples = [("app", 7, 7, 0, time, ["main", f"{'f' * 1500}{time}"], 1, 1) for time in range(2_000)]
    trace = decode(write(build_profile(samples)))
    sizes = [packet.interned_data.ByteSize() for packet in trace.packet if packet.HasField("interned_data")]
    assert len(sizes) == 3
    assert max(sizes) < 1.01 * 2**20
