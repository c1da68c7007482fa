"""Several profiles as one."""

from __future__ import annotations

import numpy as np
import pytest
from arro3.core import Array, DataType, Table
from hypothesis import given

from fixtures.profiles import CPU, FAULTS, build_profile, make_table
from fixtures.strategies import build, expected_paths, paths_of, repeatable, samples
from stackhound.errors import UsageError
from stackhound.profile import Event, Profile
from stackhound.profile.check import require_consistent
from stackhound.profile.schema import TABLES
from stackhound.transform import merge

SECOND = 10**9
ROWS = [
    ("app", 7, 7, 0, 1_000, ["main", "work", "i:add", "k:read"], 10, 1),
    ("app", 7, 8, 0, 3_000, ["main", "?libx.so+0x12"], 20, 1),
]


def clock(boot_to_unix_ns, start, end):
    return {"clock": {"boot_to_unix_ns_start": boot_to_unix_ns, "start_boottime_ns": start, "end_boottime_ns": end}}


def test_a_profile_merged_with_itself_has_everything_but_samples_once():
    profile = build_profile(ROWS)
    twice = profile.merge(profile)
    require_consistent(twice.tables)
    assert twice.table("samples").num_rows == 4
    assert {name: twice.table(name).num_rows for name in TABLES if name != "samples"} == {
        name: profile.table(name).num_rows for name in TABLES if name != "samples"
    }


def test_samples_are_in_the_order_of_their_times():
    other = build_profile([("db", 9, 9, 0, 2_000, ["main"], 5, 1)])
    merged = merge([build_profile(ROWS), other])
    assert merged.column("samples", "boottime_ns").tolist() == [1_000, 2_000, 3_000]
    assert merged.column("samples", "value").tolist() == [10, 5, 20]
    assert merged.column("samples", "id").tolist() == [0, 1, 2]


def test_what_happened_on_another_boot_is_moved_to_one_clock():
    early = build_profile(ROWS, metadata=clock(100 * SECOND, 0, SECOND))
    later = build_profile(ROWS, metadata=clock(160 * SECOND, 0, SECOND))
    merged = merge([later, early])
    times = [1_000, 3_000]
    assert merged.column("samples", "boottime_ns").tolist() == times + [60 * SECOND + time for time in times]
    assert merged.column("samples", "last_ns").tolist() == merged.column("samples", "boottime_ns").tolist()
    assert merged.column("processes", "start_boottime_ns").tolist() == [60 * SECOND + 7, 7]
    assert merged.duration_ns == 61 * SECOND
    assert merged.metadata["clock"]["boot_to_unix_ns_start"] == 100 * SECOND


def test_two_recordings_of_one_boot_are_not_moved_by_what_ntp_corrected():
    parts = [build_profile(ROWS, metadata=clock(100 * SECOND + drift, 0, SECOND)) for drift in (0, 5_000_000)]
    assert merge(parts).table("processes").num_rows == 1
    assert merge(parts).column("samples", "boottime_ns").tolist() == [1_000, 1_000, 3_000, 3_000]


def test_a_clock_that_cannot_be_moves_nothing():
    parts = [build_profile(ROWS, metadata=clock(offset, 0, SECOND)) for offset in (100 * SECOND, 10**40)]
    assert merge(parts).column("samples", "boottime_ns").tolist() == [1_000, 1_000, 3_000, 3_000]


def test_functions_of_the_same_file_at_two_paths_are_one():
    profile = build_profile(ROWS)
    moved = profile.derive({"objects": profile.table("objects").set_column(
        2, profile.table("objects").schema.field("path"), Array(["/a", "/b", "/c"], DataType.utf8()),
    )})  # fmt: skip
    merged = merge([profile, moved])
    assert merged.column("functions", "name") == ["main", "work", "add", "read", "read"]
    assert merged.column("objects", "path") == ["/usr/bin/app", "[kernel]", "/usr/lib/libx.so", "/b"]


def test_code_compiled_at_run_time_stays_apart():
    jit = build_profile([("node", 7, 7, 0, 1, ["main", "j:Loop"], 1, 1)])
    assert merge([jit, jit]).column("functions", "name") == ["main", "Loop", "Loop"]


def test_events_are_one_by_name_and_others_stay_apart():
    faults = build_profile([("app", 7, 7, 0, 2, ["main"], 1, 1)], [Event(0, *list(vars(FAULTS).values())[1:])])
    merged = merge([build_profile(ROWS, [CPU]), faults])
    assert [event.name for event in merged.events] == ["cpu", "page-faults"]
    assert merged.tree("page-faults").total_value[0] == 1
    assert merged.tree("cpu").total_value[0] == 30


def test_an_event_in_two_units_is_refused():
    other = build_profile(ROWS, [Event(0, "cpu", "count", "cycles", "period", 1)])
    with pytest.raises(UsageError, match="'cpu' counts nanoseconds in one profile and count in another"):
        merge([build_profile(ROWS), other])


def test_inverted_and_other_profiles_are_not_mixed():
    with pytest.raises(UsageError, match="some are not"):
        build_profile(ROWS).merge(build_profile(ROWS).invert())


def test_nothing_cannot_be_merged():
    with pytest.raises(UsageError, match="nothing to merge"):
        merge([])


def test_losses_counters_and_costs_add_up():
    parts = [
        build_profile(
            ROWS,
            losses=[("ring-full", count, False, "full"), (f"only-{count}", 1, True, "x")],
            metadata={"counters": {"entries": count}, "cost": {"bpf_ns": count, "resident_bytes": 9}, "notes": ["n"]},
        )
        for count in (2, 3)
    ]
    merged = merge(parts)
    assert merged.losses == [("ring-full", 5, False, "full"), ("only-2", 1, True, "x"), ("only-3", 1, True, "x")]
    assert merged.metadata["counters"] == {"entries": 5}
    assert merged.metadata["cost"] == {"bpf_ns": 5}
    assert merged.metadata["notes"] == ["n"]
    assert [one["counters"]["entries"] for one in merged.metadata["merged"]] == [2, 3]


def test_side_tables_follow_their_samples():
    addresses = make_table("addresses", [{"sample": one, "addresses": [one]} for one in (0, 1)])
    profile = build_profile(ROWS).derive({"addresses": addresses})
    merged = merge([profile, build_profile(ROWS), profile])
    assert merged.column("addresses", "sample").tolist() == [0, 2, 3, 5]
    assert merged.table("addresses")["addresses"].to_pylist() == [[0], [0], [1], [1]]
    require_consistent(merged.tables)


def test_what_this_version_does_not_know_is_left_out_with_a_note():
    later = Table.from_pydict({"sample": np.arange(2, dtype=np.uint64)})
    profile = build_profile(ROWS).derive({"of_later": later})
    merged = merge([Profile(profile.tables, {}, {"notes.txt": b"x"}), profile])
    assert "of_later" not in merged.tables
    assert merged.metadata["notes"] == ["left out of the merge: notes.txt", "left out of the merge: of_later"]


def test_a_column_that_only_one_profile_has_is_null_in_the_rows_of_the_other():
    profile = build_profile(ROWS)
    threads = profile.table("threads").append_column("nice", Array([5, 6], DataType.int32()))
    other = build_profile([("db", 9, 9, 0, 2, ["main"], 1, 1)])
    merged = merge([other, profile.derive({"threads": threads})])
    assert merged.table("threads")["nice"].to_pylist() == [None, 5, 6]


def test_a_column_of_two_types_is_refused():
    profile = build_profile(ROWS)
    parts = [
        profile.derive({"threads": profile.table("threads").append_column("nice", Array([5, 6], kind))})
        for kind in (DataType.int32(), DataType.int64())
    ]
    with pytest.raises(UsageError, match="'nice' has different types"):
        merge(parts)


@repeatable
@given(samples(), samples(), samples())
def test_merged_profiles_have_the_samples_of_all(first, second, third):
    merged = merge([build(rows) for rows in (first, second, third)])
    require_consistent(merged.tables)
    assert paths_of(merged) == expected_paths(first + second + third)
    assert merged.table("samples").num_rows == len(first + second + third)


@repeatable
@given(samples())
def test_parts_of_a_profile_merge_back_into_it(rows):
    whole = build([(*row[:5], [frame for frame in row[5] if not frame.startswith("j:")], *row[6:]) for row in rows])
    merged = merge([whole.filter(cpus=[0, 1]).compact(), whole.filter(cpus=[2, 3]).compact()])
    assert paths_of(merged) == paths_of(whole)
    for name in ("samples", "stacks", "locations", "functions", "objects", "threads", "processes"):
        assert merged.table(name).num_rows == whole.compact().table(name).num_rows
