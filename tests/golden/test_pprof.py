"""pprof: what the real ``go tool pprof`` shows of our file."""

from __future__ import annotations

import gzip
import io
import os
import re
import subprocess

import pytest

from fixtures.examples import two_events, web_server
from fixtures.heap import Allocation, build_heap
from fixtures.profiles import build_profile
from stackhound.errors import UsageError
from stackhound.formats import by_name

#: Nothing is fetched: Go compiles pprof from its own sources, once.
OFFLINE = {"GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}


def write(profile, event=None):
    out = io.BytesIO()
    by_name("pprof").write(profile, out, event=event)
    return out.getvalue()


@pytest.fixture
def pprof(tmp_path):
    """Run pprof's reports over a profile; one and the same file for all."""

    def run(profile, *options, event=None):
        path = tmp_path / "x.pb.gz"
        path.write_bytes(write(profile, event))
        command = ["go", "tool", "pprof", "-symbolize=none", "-nodefraction=0", *options, str(path)]
        environment = {**os.environ, **OFFLINE, "PPROF_TMPDIR": str(tmp_path), "GOPATH": str(tmp_path / "go")}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=900
        ).stdout

    return run


def shares(report):
    """{function: (flat, cumulative)} of a ``-top`` report."""
    rows = [line.split(None, 5) for line in report.splitlines() if re.match(r"\s*[\d.]+(ms)?\s+[\d.]+%", line)]
    return {row[5]: (row[0], row[3]) for row in rows}


def test_top_shows_the_functions_with_time_and_inlines(pprof):
    assert shares(pprof(web_server(), "-top")) == {
        "vfs_read": ("20.20ms", "20.20ms"),
        "Foo.bar": ("10.10ms", "10.10ms"),
        "[libz.so.1]": ("10.10ms", "10.10ms"),
        "_start": ("0", "40.40ms"),
        "main": ("0", "30.30ms"),
        "parse (inline)": ("0", "20.20ms"),
    }


def test_the_other_sample_type_counts_samples(pprof):
    assert shares(pprof(web_server(), "-top", "-sample_index=samples"))["vfs_read"] == ("2", "2")


def test_lines_are_those_of_the_calls(pprof):
    report = shares(pprof(web_server(), "-top", "-lines"))
    assert report["main /src/main.c:12"] == ("0", "30.30ms")
    assert report["parse /src/parse.h:40 (inline)"] == ("0", "20.20ms")


def test_the_listing_of_a_python_file_has_the_time_beside_its_lines(pprof, tmp_path):
    source = tmp_path / "app.py"
    source.write_text("def work():\n    pass\n\nwork()\n")
    stack = [f"p:app.<module> at {source}:4", f"p:app.work at {source}:2"]
    listing = pprof(build_profile([("app", 7, 7, 0, 1, stack, 10_000_000, 1)]), "-list", "app")
    rows = [line.split() for line in listing.splitlines() if re.search(r" \d+:", line)]
    assert ["10ms", "10ms", "2:", "pass"] in rows
    assert [".", "10ms", "4:work()"] in rows


def test_traces_are_leaf_first_with_the_thread_beside(pprof):
    traces = [" ".join(trace.split()) for trace in re.split("-+\\+-+", pprof(web_server(), "-traces"))]
    assert traces[1:4] == [
        "comm: nginx thread: nginx pid: 7 tid: 7 20.20ms vfs_read parse (inline) main _start",
        "comm: nginx thread: nginx: worker pid: 7 tid: 8 10.10ms [libz.so.1] main _start",
        "comm: java thread: java pid: 9 tid: 9 10.10ms Foo.bar _start",
    ]


def test_the_raw_file_has_columns_mappings_and_the_recordings_times(pprof):
    raw = pprof(web_server(), "-raw")
    assert "PeriodType: cpu nanoseconds\nPeriod: 10101010\n" in raw
    assert "Time: 2025-11-21 09:43:12" in raw
    assert "Duration: 10s\n" in raw
    assert "samples/count cpu/nanoseconds" in raw
    assert re.search(r"parse /src/parse\.h:40:9 s=0\n +main /src/main\.c:12:5 s=0", raw)
    assert re.search(r"0x\w+/0x\w+/0x\w+ /usr/bin/app \w{40} ", raw)


def test_the_kernel_is_a_mapping_that_readers_do_not_symbolize(pprof):
    assert "[kernel.kallsyms]" in pprof(web_server(), "-raw")


def test_comments_say_what_the_recording_says_of_itself(pprof):
    comments = pprof(web_server(), "-comments")
    assert "cpu on web-1" in comments
    assert "Lost: 0" in comments


def test_another_event_has_its_own_name_and_unit(pprof):
    assert "samples/count page-faults/count" in pprof(two_events(), "-raw", event="page-faults")
    assert shares(pprof(two_events(), "-top", event="page-faults")) == {"load": ("3", "3"), "main": ("0", "3")}


@pytest.mark.parametrize(
    ("index", "parse", "cache"),
    [
        ("alloc_objects", "10", "3"),
        ("alloc_space", "1000B", "3000B"),
        ("inuse_objects", None, "3"),
        ("inuse_space", None, "3000B"),
    ],
)
def test_allocations_have_the_values_of_gos_own_heap_profiles(pprof, index, parse, cache):
    profile = build_heap([
        Allocation("main parse malloc", 100, count=10, lifetime_us=5),
        Allocation("main cache malloc", 1_000, count=3),
    ])  # fmt: skip
    report = pprof(profile, "-top", f"-unit={'B' if index.endswith('space') else 'count'}", f"-sample_index={index}")
    rows = {line.split()[5]: line.split()[0] for line in report.splitlines() if re.match(r" *\d+B? ", line)}
    assert rows.get("parse") == parse
    assert rows["cache"] == cache


def test_a_profile_without_samples_is_read_too(pprof):
    assert "samples/count cpu/nanoseconds" in pprof(build_profile([]), "-raw")


def test_the_same_profile_gives_the_same_bytes():
    assert write(web_server()) == write(web_server())
    assert gzip.decompress(write(web_server()))


def test_an_inverted_profile_is_refused():
    with pytest.raises(UsageError, match="root to the leaf: export the profile without --inverted"):
        write(web_server().invert())
