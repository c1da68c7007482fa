"""Page faults by the memory that was touched: ``report --sort memory``."""

from __future__ import annotations

import json

import numpy as np

from fixtures.profiles import CPU, FAULTS, build_profile, make_table
from stackhound.cli.main import main
from stackhound.profile.columns import to_list, with_columns
from stackhound.profile.memory import UNKNOWN, memory_names, touched_memory
from stackhound.transform import merge

HEAP, FILE = "[heap]", "/var/lib/app.db"


def profile_with_memory():
    """Time, and five faults: three of the heap, one of a file, one that nobody looked at in time."""
    profile = build_profile(
        [
            ("app", 7, 7, 0, 1_000, ["main", "work"], 10, 1),
            ("app", 7, 7, 0, 2_000, ["main", "load"], 100, 1, "page-faults"),
            ("app", 7, 7, 0, 3_000, ["main", "grow"], 200, 1, "page-faults"),
            ("app", 7, 7, 0, 4_000, ["main", "grow"], 300, 1, "page-faults"),
            ("app", 7, 7, 0, 5_000, ["main", "grow"], 400, 1, "page-faults"),
            ("app", 7, 7, 0, 6_000, ["main"], 50, 1, "page-faults"),
        ],
        events=(CPU, FAULTS),
    )
    objects = profile.table("objects")
    first = objects.num_rows
    columns = {name: to_list(objects[name]) for name in objects.column_names}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows += [
        {"id": first + number, "kind": "data", "path": path, "build_id": ""} for number, path in enumerate((HEAP, FILE))
    ]
    faults = [
        {"sample": sample, "object": first + number, "offset": 4096 * sample, "ns": 0}
        for sample, number in ((1, 1), (2, 0), (3, 0), (4, 0))
    ]
    return profile.derive({"objects": make_table("objects", rows), "faults": make_table("faults", faults)})


def values_by_memory(profile):
    event = profile.event("page-faults")
    names, touched = memory_names(profile), touched_memory(profile, event)
    values = profile.samples_of(event).value
    return {names[one]: int(values[touched == one].sum()) for one in np.unique(touched).tolist()}


EXPECTED = {HEAP: 900, FILE: 100, UNKNOWN: 50}


def report(profile, tmp_path, capsys, *arguments):
    path = tmp_path / "a.hound"
    profile.save(path)
    assert main(["report", str(path), "--event", "page-faults", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


def test_faults_are_summed_by_what_was_touched():
    assert values_by_memory(profile_with_memory()) == EXPECTED


def test_a_report_by_memory_has_the_largest_first(tmp_path, capsys):
    rows = report(profile_with_memory(), tmp_path, capsys, "--sort", "memory")
    assert [(row["memory"], row["self"]) for row in rows] == list(EXPECTED.items())


def test_memory_goes_together_with_other_keys_in_the_order_asked_for(tmp_path, capsys):
    rows = report(profile_with_memory(), tmp_path, capsys, "--sort", "symbol,memory,comm,stack")
    own = [(row["symbol"], row["memory"], row["comm"], row["self"]) for row in rows if row["self"]]
    assert own == [("grow", HEAP, "app", 900), ("load", FILE, "app", 100), ("main", UNKNOWN, "app", 50)]
    assert {row["stack"] for row in rows} == {"unknown"}


def test_an_event_without_addresses_touches_what_is_not_known():
    profile = profile_with_memory()
    (touched,) = touched_memory(profile, profile.event("cpu")).tolist()
    assert memory_names(profile)[touched] == UNKNOWN


def test_samples_keep_their_memory_when_others_are_left_out():
    part = profile_with_memory().ignore("grow")
    assert values_by_memory(part) == {FILE: 100, UNKNOWN: 50}
    assert values_by_memory(part.compact()) == {FILE: 100, UNKNOWN: 50}
    assert HEAP not in part.compact().texts("objects", "path")


def test_samples_keep_their_memory_in_a_merge():
    profile = profile_with_memory()
    later = profile.derive({"samples": with_columns(profile.table("samples"), boottime_ns=np.arange(6) * 700)})
    assert values_by_memory(merge([profile, later])) == {name: 2 * value for name, value in EXPECTED.items()}
