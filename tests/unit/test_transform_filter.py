"""Samples chosen by process, thread, CPU, time and event."""

from __future__ import annotations

import numpy as np
import pytest
from arro3.core import Table
from hypothesis import given
from hypothesis import strategies as st

from fixtures.profiles import CPU, FAULTS, build_profile, make_table
from fixtures.strategies import build, repeatable, samples
from stackhound.errors import UsageError
from stackhound.profile.check import require_consistent

ROWS = [
    ("app", 7, 7, 0, 1_000, ["main"], 1, 1),
    ("pool", 7, 8, 1, 2_000, ["main"], 2, 1),
    ("db", 9, 9, 2, 3_000, ["main"], 4, 1),
    ("db", 9, 9, 2, 4_000, ["main"], 8, 1, "page-faults"),
]


def profile(**metadata):
    return build_profile(ROWS, [CPU, FAULTS], metadata=metadata)


def kept(**conditions):
    """The values of the samples that are left; each has a bit of its own."""
    return profile().filter(**conditions).column("samples", "value").tolist()


def test_without_a_condition_everything_is_kept():
    assert kept() == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("conditions", "values"),
    [
        ({"pids": [7]}, [1, 2]),
        ({"tids": [8, 9]}, [2, 4, 8]),
        ({"comms": ["app", "db"]}, [1, 4, 8]),
        ({"cpus": {0, 1}}, [1, 2]),
        ({"events": ["page-faults"]}, [8]),
        ({"from_ns": 1_000}, [2, 4, 8]),
        ({"until_ns": 2_000}, [1, 2]),
        ({"from_ns": 1_000, "until_ns": 2_000}, [2]),
        ({"pids": [7], "cpus": [1, 2]}, [2]),
        ({"pids": [7, -1, 2**40], "cpus": [70_000, 0]}, [1]),
        ({"pids": []}, []),
        ({"from_ns": -5}, [1, 2, 4, 8]),
        ({"from_ns": 2**70}, []),
    ],
)
def test_every_condition_must_be_met(conditions, values):
    assert kept(**conditions) == values


def test_times_count_from_the_start_of_the_recording():
    recorded = profile(clock={"start_boottime_ns": 500})
    assert recorded.filter(until_ns=1_600).column("samples", "value").tolist() == [1, 2]


def test_events_that_were_filtered_out_need_not_be_named_any_more():
    left = profile().filter(events=["page-faults"])
    assert left.event().name == "page-faults"
    assert left.tree().total_value[0] == 8


def test_an_unknown_event_is_refused():
    with pytest.raises(UsageError, match="no event 'cycles'"):
        profile().filter(events=["cycles"])


def test_a_range_of_no_time_is_refused():
    with pytest.raises(UsageError, match="no time is from 5 ns on and before 5 ns"):
        profile().filter(from_ns=5, until_ns=5)


def test_what_was_done_is_written_down():
    done = profile(transforms=["focus x"]).filter(pids=[7, 9], from_ns=0).metadata["transforms"]
    assert done == ["focus x", "filter pids=7,9 from_ns=0"]


def test_the_profile_that_was_filtered_is_as_before():
    whole = profile()
    whole.filter(pids=[7])
    assert whole.column("samples", "value").tolist() == [1, 2, 4, 8]
    assert "transforms" not in whole.metadata


def test_losses_are_kept():
    assert profile().filter(pids=[7]).losses == profile().losses


def test_side_tables_lose_the_rows_of_dropped_samples_even_those_of_later_versions():
    addresses = make_table("addresses", [{"sample": one, "addresses": [one, 1]} for one in range(4)])
    later = Table.from_pydict({"sample": np.arange(4, dtype=np.uint64), "state": np.arange(4)})
    whole = profile().derive({"addresses": addresses, "of_later": later})
    left = whole.filter(cpus=[1, 2])
    assert left.table("addresses")["addresses"].to_pylist() == [[1, 1], [2, 1], [3, 1]]
    assert left.column("of_later", "state").tolist() == [1, 2, 3]
    require_consistent(left.tables)


@repeatable
@given(samples(), st.sets(st.integers(0, 3)))
def test_a_condition_and_its_opposite_share_the_samples_out(rows, cpus):
    whole = build(rows)
    parts = [whole.filter(cpus=chosen) for chosen in (cpus, {0, 1, 2, 3} - cpus)]
    assert sum(int(part.numbers("samples", "value").sum()) for part in parts) == sum(row[6] for row in rows)
    assert sum(part.table("samples").num_rows for part in parts) == len(rows)
