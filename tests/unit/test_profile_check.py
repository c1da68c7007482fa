"""Tables that are not what the schema says are refused before anything follows their ids."""

from __future__ import annotations

import numpy as np
import pytest
from arro3.core import Array, DataType
from hypothesis import given

from fixtures.profiles import build_profile, make_table
from fixtures.strategies import profiles, repeatable
from stackhound.errors import DamagedProfile
from stackhound.profile.check import require_consistent
from stackhound.profile.columns import with_columns
from stackhound.profile.schema import REFERENCES, TABLES

BARE_PROFILE = build_profile([
    ("app", 7, 7, 0, 1_000, ["main", "work", "i:add", "k:read"], 10, 1),
    ("app", 7, 8, 0, 2_000, ["main", "?libx.so+0x12"], 20, 1),
])  # fmt: skip
TOTALS = make_table("event_totals", [{"event": 0, "pid": 0, "start_boottime_ns": 0, "count": 35}])
TOUCHED = make_table("faults", [{"sample": 1, "object": 0, "offset": 4096, "ns": 0}])
WAKERS = make_table("wakers", [{"sample": 1, "thread": 0, "stack": 1}])
PROFILE = BARE_PROFILE.derive({"event_totals": TOTALS, "faults": TOUCHED, "wakers": WAKERS})


def damage(table, **columns):
    return {**PROFILE.tables, table: with_columns(PROFILE.table(table), **columns)}


@repeatable
@given(profiles())
def test_what_a_recording_makes_is_accepted(profile):
    require_consistent(profile.tables)


@pytest.mark.parametrize(("table", "column"), [key for key in REFERENCES if key != ("stacks", "parent")])
def test_an_id_beyond_its_table_is_refused(table, column):
    ids = PROFILE.numbers(table, column).copy()
    ids[-1] = PROFILE.table(REFERENCES[table, column]).num_rows
    with pytest.raises(DamagedProfile, match=rf"{table}\.{column} points outside of {REFERENCES[table, column]}"):
        require_consistent(damage(table, **{column: ids}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"parent": np.array([0, 0, 3, 2, 1])}, "no tree"),  # a cycle
        ({"parent": np.array([0, 1, 1, 2, 1])}, "no tree"),  # its own parent
        ({"parent": np.array([0, 0, 1, 2, 2**32 - 1])}, "points outside of stacks"),
        ({"parent": np.array([1, 0, 1, 2, 1])}, "no root"),
        ({"depth": np.array([0, 1, 2, 9, 2])}, "no tree"),
        ({"depth": np.array([1, 2, 3, 4, 3])}, "no root"),
        ({"id": np.array([0, 2, 1, 3, 4])}, "stacks.id is not the row number"),
    ],
)
def test_stacks_that_are_no_tree_are_refused(columns, message):
    with pytest.raises(DamagedProfile, match=message):
        require_consistent(damage("stacks", **columns))


def test_no_stacks_at_all_are_refused():
    with pytest.raises(DamagedProfile, match=r"points outside of stacks|no root"):
        require_consistent({**PROFILE.tables, "stacks": PROFILE.table("stacks").slice(0, 0)})


@pytest.mark.parametrize("column", [column for column, kind in TABLES["samples"].items()])
def test_nulls_are_refused_where_there_can_be_none(column):
    values = [None, *PROFILE.column("samples", column).tolist()[1:]]
    with pytest.raises(DamagedProfile, match=rf"samples\.{column} has nulls"):
        require_consistent(damage("samples", **{column: values}))


def test_a_missing_column_is_refused():
    with pytest.raises(DamagedProfile, match=r"the column lines\.line is missing"):
        require_consistent({**PROFILE.tables, "lines": PROFILE.table("lines").drop_columns(["line"])})


def test_two_columns_of_one_name_are_refused():
    lines = PROFILE.table("lines")
    twice = lines.append_column("line", lines["line"])
    with pytest.raises(DamagedProfile, match="two columns of one name"):
        require_consistent({**PROFILE.tables, "lines": twice})


def test_a_side_table_of_a_sample_that_is_not_there_is_refused():
    addresses = make_table("addresses", [{"sample": 2, "addresses": [1]}])
    with pytest.raises(DamagedProfile, match=r"addresses\.sample names no sample"):
        require_consistent({**PROFILE.tables, "addresses": addresses})


def test_a_side_table_of_another_type_is_refused():
    addresses = make_table("addresses", [{"sample": 0, "addresses": [1]}])
    wrong = addresses.set_column(1, "addresses", Array([1], DataType.uint64()))
    with pytest.raises(DamagedProfile, match=r"addresses\.addresses is UInt64, not list<uint64>"):
        require_consistent({**PROFILE.tables, "addresses": wrong})
