"""JSON lines: to the letter, and read by polars."""

from __future__ import annotations

import io
import json

import polars as pl
import pytest

from fixtures.examples import two_events, web_server
from fixtures.profiles import build_profile
from stackhound.formats import by_name

LIBZ_SAMPLE = (
    '{"event":"cpu","time_unix_ns":1763718193010000000,"boottime_ns":2010000000,"duration_ns":0,"cpu":1,'
    '"pid":7,"tid":8,"comm":"nginx: worker","value":10101010,"count":1,"frames":['
    '{"object":"/usr/lib/libz.so.1","kind":"elf","address":18,"reason":"no symbol table"},'
    '{"name":"main","file":"/src/main.c","line":12,"column":5,"object":"/usr/bin/app","kind":"elf","address":8196},'
    '{"name":"_start","object":"/usr/bin/app","kind":"elf","address":4097}]}\n'
)


def write(profile, event=None):
    out = io.BytesIO()
    by_name("jsonl").write(profile, out, event=event)
    return out.getvalue()


def samples(profile, event=None):
    return [json.loads(line) for line in write(profile, event).splitlines()[1:]]


def test_a_sample_is_a_line_with_its_frames_leaf_first():
    assert LIBZ_SAMPLE in write(web_server()).decode()


def test_inlined_functions_come_before_the_one_that_holds_them():
    frames = samples(web_server())[0]["frames"]
    assert [(frame["name"], frame.get("inlined", False)) for frame in frames] == [
        ("vfs_read", False),
        ("parse", True),
        ("main", False),
        ("_start", False),
    ]
    assert frames[1]["address"] == frames[2]["address"]


def test_the_first_line_describes_the_recording():
    first = json.loads(write(two_events()).splitlines()[0])["stackhound"]
    assert first["metadata"]["host"]["name"] == "web-1"
    assert [event["name"] for event in first["events"]] == ["cpu", "page-faults"]
    assert first["losses"][0]["cause"] == "ring-full"


def test_samples_are_in_order_of_time_and_those_of_all_events_unless_one_is_asked_for():
    assert [sample["event"] for sample in samples(two_events())] == ["cpu", "page-faults"]
    assert [sample["value"] for sample in samples(two_events(), "page-faults")] == [3]


def test_unix_time_is_left_out_where_the_clock_is_not_known():
    sample = samples(build_profile([("app", 7, 7, 0, 5, ["main"], 1000, 1)]))[0]
    assert sample["boottime_ns"] == 5
    assert "time_unix_ns" not in sample


@pytest.mark.parametrize("name", ["\x1b[2J\n", "\u202e", 'quo"te\\', "日本語", "\x7f\x9b"])
def test_hostile_names_are_escaped_and_read_back_as_they_were(name):
    profile = build_profile([(name, 7, 7, 0, 5, [name], 1000, 1)])
    assert samples(profile)[0]["comm"] == samples(profile)[0]["frames"][0]["name"] == name
    assert all(32 <= byte < 127 for line in write(profile).splitlines() for byte in line)


def test_polars_reads_the_samples():
    table = pl.read_ndjson(io.BytesIO(write(web_server()).split(b"\n", 1)[1]))
    leaves = table["frames"].list.first().struct.field("name")
    assert leaves.to_list() == ["vfs_read", "vfs_read", None, "Foo.bar"]
    assert table["value"].sum() == 4 * 10_101_010
