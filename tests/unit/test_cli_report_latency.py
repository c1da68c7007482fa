"""``report --latency``: how long what samples stand for took, by what they have in common."""

from __future__ import annotations

import json

import pytest

from fixtures.profiles import CPU, build_profile, make_table
from stackhound.cli.main import main
from stackhound.profile import Event
from stackhound.profile.columns import with_columns
from stackhound.profile.schema import OPTIONAL_TABLES

BLOCK = Event(0, "block-io", "nanoseconds", "block_io_start", "period", 1)
NOTHING = {name: "" if kind == "utf8" else 0 for name, kind in OPTIONAL_TABLES["block_io"].items()}


def requests(*rows, options=None):
    """A profile of requests: (thread's name, device, operation, bytes, ns, how many it stands for)."""
    samples = [
        (comm, 7, 7 + at, 0, 1_000 + at, ["work"], ns * count, count) for at, (comm, *_, ns, count) in enumerate(rows)
    ]
    profile = build_profile(samples, (BLOCK,), metadata={"options": options or {}})
    profile = profile.derive({"samples": with_columns(profile.table("samples"), duration_ns=[row[4] for row in rows])})
    flags = dict.fromkeys(("sync", "meta", "failed"), False)
    said = [
        NOTHING | flags | {"sample": at, "device": device, "operation": operation, "bytes": size}
        for at, (_, device, operation, size, *_) in enumerate(rows)
    ]
    return profile.derive({"block_io": make_table("block_io", said)})


def report(tmp_path, profile, *options):
    path = tmp_path / "r.hound"
    profile.save(path)
    return main(["report", str(path), "--latency", *options])


def test_half_of_the_requests_took_as_long_as_p50_or_less(tmp_path, capsys):
    reads = [("app", "vda", "read", 4096, 1_000 * number, 1) for number in range(1, 101)]
    assert report(tmp_path, requests(*reads), "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["device"], row["operation"], row["count"], row["bytes"]) == ("vda", "read", 100, 100 * 4096)
    assert [row[name] for name in ("p50_ns", "p95_ns", "p99_ns", "max_ns")] == [50_000, 95_000, 99_000, 100_000]


def test_a_sample_counts_for_as_many_as_it_stands_for(tmp_path, capsys):
    profile = requests(("app", "vda", "read", 512, 1_000, 99), ("app", "vda", "read", 4096, 9_000, 1))
    assert report(tmp_path, profile, "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["count"], row["bytes"]) == (100, 99 * 512 + 4096)
    assert (row["p50_ns"], row["p99_ns"], row["max_ns"]) == (1_000, 1_000, 9_000)


def test_the_most_frequent_come_first_by_whatever_is_asked_for(tmp_path, capsys):
    profile = requests(
        ("app", "vda", "read", 512, 1_000, 1),
        ("job", "vda", "write", 512, 2_000, 3),
        ("job", "vdb", "read", 512, 500, 1),
    )
    assert report(tmp_path, profile, "--sort", "comm") == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(at for at, line in enumerate(lines) if line.split()[:2] == ["count", "bytes"])
    assert [line.split()[-1] for line in lines[head + 1 :]] == ["job", "app"]


def test_what_lasts_no_time_and_what_is_summed_up_is_refused(tmp_path, capsys):
    assert report(tmp_path, build_profile([("app", 7, 7, 0, 1, ["a"], 1, 1)], (CPU,))) == 2
    assert "last no time" in capsys.readouterr().err
    row = ("app", "vda", "read", 512, 1_000, 1)
    assert report(tmp_path, requests(row, options={"aggregate": True})) == 2
    assert "--aggregate" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["symbol", "line"])
def test_keys_of_frames_are_refused(tmp_path, capsys, key):
    assert report(tmp_path, requests(("app", "vda", "read", 512, 1_000, 1)), "--sort", key) == 2
    assert key in capsys.readouterr().err
