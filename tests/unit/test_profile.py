"""A profile answers what people ask of it, and never changes."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import numpy as np
import polars as pl
import pytest
from arro3.core import Table

import stackhound
from fixtures.profiles import CPU, FAULTS, build_profile
from stackhound.errors import DamagedProfile, UsageError
from stackhound.profile import Profile

ROWS = [
    ("app", 7, 7, 0, 1_000, ["main", "work"], 10, 1),
    ("app", 7, 8, 1, 3_000, ["main"], 20, 2),
]


def test_any_arrow_library_reads_the_tables():
    samples = build_profile(ROWS).table("samples")
    frame = pl.DataFrame(samples)
    assert frame["value"].to_list() == [10, 20]
    assert frame["boottime_ns"].dtype == pl.UInt64
    rows = pl.from_arrow(samples)  # polars 2 gives a column of structs, polars 1 a data frame
    assert len(rows) == len(frame)


def test_duckdb_queries_the_tables():
    samples = build_profile(ROWS).table("samples")  # noqa: F841  duckdb finds it by its name
    assert duckdb.sql("select sum(value) from samples").fetchall() == [(30,)]


def test_numbers_come_as_arrays_and_text_as_lists():
    profile = build_profile(ROWS)
    assert profile.column("samples", "value").tolist() == [10, 20]
    assert profile.column("functions", "name") == ["main", "work"]


def test_a_null_is_none_in_text_and_zero_in_numbers():
    profile = build_profile([("app", 7, 7, 0, 1_000, ["main", "?libx.so+0x12"], 1, 1)])
    assert profile.column("locations", "reason") == [None, "no symbol table"]
    assert profile.texts("locations", "reason") == ["", "no symbol table"]
    assert profile.column("processes", "exit_boottime_ns").tolist() == [0]


def test_columns_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        build_profile(ROWS).column("samples", "value")[0] = 1


def test_changing_the_metadata_that_was_handed_out_changes_nothing():
    profile = build_profile(ROWS, metadata={"host": {"name": "here"}})
    profile.metadata["host"]["name"] = "there"
    assert profile.metadata["host"]["name"] == "here"


def test_the_only_event_needs_no_name():
    assert build_profile(ROWS).event() == CPU


def test_with_several_events_one_is_asked_for_and_all_are_named():
    profile = build_profile(ROWS, [CPU, FAULTS])
    with pytest.raises(UsageError, match=r"cpu, page-faults.*--event"):
        profile.event()
    assert profile.event("page-faults") == FAULTS


def test_an_unknown_event_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="no event 'cycles': its events are cpu"):
        build_profile(ROWS).event("cycles")


@pytest.mark.parametrize("ask", [lambda profile: profile.table("x"), lambda profile: profile.column("samples", "x")])
def test_an_unknown_table_or_column_is_refused_with_those_there_are(ask):
    with pytest.raises(UsageError, match=r"it has .*samples|it has id, event"):
        ask(build_profile(ROWS))


def test_samples_of_one_event_leave_the_others_out():
    profile = build_profile([*ROWS, ("app", 7, 7, 0, 5_000, ["main"], 3, 3, "page-faults")], [CPU, FAULTS])
    assert profile.samples_of(FAULTS).value.tolist() == [3]
    assert profile.samples_of(CPU).value.tolist() == [10, 20]


def test_losses_say_cause_count_and_meaning():
    profile = build_profile(ROWS, losses=[("ring-full", 3, False, "the ring buffer was full")])
    assert profile.losses == [("ring-full", 3, False, "the ring buffer was full")]


def test_the_duration_is_what_the_clock_says():
    clock = {"clock": {"start_boottime_ns": 500, "end_boottime_ns": 9_500}}
    assert build_profile(ROWS, metadata=clock).duration_ns == 9_000


@pytest.mark.parametrize("clock", [{}, {"clock": None}, {"clock": {"start_boottime_ns": "soon"}}])
def test_without_a_clock_the_duration_is_that_of_the_samples(clock):
    assert build_profile(ROWS, metadata=clock).duration_ns == 2_000
    assert build_profile([], metadata=clock).duration_ns == 0


def test_a_profile_without_a_table_is_refused():
    tables = dict(build_profile(ROWS).tables)
    del tables["stacks"]
    with pytest.raises(DamagedProfile, match="'stacks' is missing"):
        Profile(tables, {})


def test_a_profile_with_a_column_of_another_type_is_refused():
    tables = dict(build_profile(ROWS).tables)
    samples = tables["samples"].drop_columns(["value"])
    tables["samples"] = samples.append_column("value", Table.from_pydict({"v": np.array([1.0, 2.0])})["v"])
    with pytest.raises(DamagedProfile, match=r"samples\.value is Float64, not uint64"):
        Profile(tables, {})


def test_a_notebook_shows_names_without_acting_on_them():
    profile = build_profile([("app", 7, 7, 0, 1_000, ["<script>alert(1)</script>\x1b[31m"], 10, 1)])
    shown = profile._repr_html_()
    assert "<script>" not in shown
    assert "\x1b" not in shown
    assert "&lt;script&gt;" in shown


def test_the_public_names_are_there():
    assert stackhound.Profile is Profile
    assert set(stackhound.__all__) <= set(dir(stackhound))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        stackhound.nothing  # noqa: B018


def test_importing_stackhound_waits_for_neither_numpy_nor_arrow():
    code = "import sys, stackhound, stackhound.profile.schema; print({'numpy', 'arro3.core'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
