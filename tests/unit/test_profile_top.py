"""The functions where the time went."""

from __future__ import annotations

from collections import Counter

import polars as pl
from hypothesis import given

from fixtures.profiles import CPU, FAULTS, build_profile
from fixtures.strategies import build, expected_paths, repeatable, samples
from stackhound.profile.units import format_value

ROWS = [
    ("app", 7, 7, 0, 1_000, ["main", "fib", "fib", "fib"], 600, 1),
    ("app", 7, 7, 0, 2_000, ["main", "fib"], 300, 1),
    ("app", 7, 7, 0, 3_000, ["main", "?libx.so+0x12"], 100, 1),
]


def values(top):
    """(self, total) by function."""
    columns = (top.table[name].to_pylist() for name in ("function", "self", "total"))
    return {name: (own, total) for name, own, total in zip(*columns, strict=True)}


def test_a_recursive_function_counts_once_in_each_sample():
    assert values(build_profile(ROWS).top(10)) == {"fib": (900, 900), "[libx.so]": (100, 100), "main": (0, 1000)}


def test_the_most_time_of_its_own_comes_first_and_n_are_shown():
    assert list(values(build_profile(ROWS).top(2))) == ["fib", "[libx.so]"]
    assert len(build_profile(ROWS).top(0)) == 0


def test_a_function_is_one_row_inlined_or_not():
    rows = [("app", 7, 7, 0, 1, ["main", "add"], 1, 1), ("app", 7, 7, 0, 2, ["main", "i:add"], 2, 1)]
    assert values(build_profile(rows).top(10))["add"] == (3, 3)


def test_functions_of_one_name_in_two_objects_are_two_rows():
    rows = [("app", 7, 7, 0, 1, ["read"], 1, 1), ("app", 7, 7, 0, 2, ["k:read"], 2, 1)]
    top = build_profile(rows).top(10)
    assert top.table["object"].to_pylist() == ["[kernel]", "/usr/bin/app"]
    assert top.table["kind"].to_pylist() == ["kernel", "user"]


def test_percentages_are_of_all_samples():
    top = build_profile(ROWS).top(1)
    assert top.table["self_percent"].to_pylist() == [90.0]
    assert top.table["total_percent"].to_pylist() == [90.0]


def test_any_arrow_library_reads_it():
    frame = pl.DataFrame(build_profile(ROWS).top(10))
    assert frame.columns == [
        "function", "file", "object", "kind", "self", "total", "self_percent", "total_percent",
    ]  # fmt: skip
    assert frame["self"].dtype == pl.UInt64


def test_it_prints_as_a_table():
    assert str(build_profile(ROWS).top(10)).splitlines() == [
        " self   total    self    total  function   object",
        "90.0%   90.0%  900 ns   900 ns  fib        app",
        "10.0%   10.0%  100 ns   100 ns  [libx.so]  libx.so",
        " 0.0%  100.0%    0 ns  1.00 µs  main       app",
    ]


def test_printing_passes_no_terminal_escape_on():
    top = build_profile([("app", 7, 7, 0, 1, ["\x1b[2J\u202eevil\n"], 1, 1)]).top(10)
    assert r"\x1b[2J\u202eevil\n" in str(top)
    assert all(line.isprintable() for line in str(top).splitlines())
    assert top.table["function"].to_pylist() == ["\x1b[2J\u202eevil\n"]


def test_printing_a_name_without_end_is_bounded():
    top = build_profile([("app", 7, 7, 0, 1, ["x" * 1_000_000], 1, 1)]).top(10)
    assert len(str(top)) < 400


def test_a_profile_without_samples_has_no_top_functions():
    assert str(build_profile([]).top(10)) == "self  total  self  total  function  object"


def test_values_are_shown_in_a_fitting_unit():
    shown = {
        (0, "nanoseconds"): "0 ns",
        (999, "nanoseconds"): "999 ns",
        (1_500_000, "nanoseconds"): "1.50 ms",
        (12_345_678_901, "nanoseconds"): "12.3 s",
        (7_200_000_000_000, "nanoseconds"): "2.00 h",
        (1 << 20, "bytes"): "1.00 MiB",
        (5, "bytes"): "5 B",
        (1_234_567, "count"): "1,234,567",
    }
    assert {key: format_value(*key) for key in shown} == shown


@repeatable
@given(samples())
def test_self_adds_up_to_everything_and_total_counts_samples_not_frames(rows):
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for path, value in expected_paths(rows).items():
        own.update(dict.fromkeys(path[-1:], value))
        total.update(dict.fromkeys(set(path), value))
    assert values(build(rows).top(100, "cpu")) == {name: (own[name], total[name]) for name in total}


def test_of_several_events_the_first_is_shown_and_the_table_says_so():
    rows = [(*ROWS[0], "cpu"), ("app", 7, 7, 0, 9, ["touch"], 5, 1, "page-faults")]
    top = build_profile(rows, events=(CPU, FAULTS)).top(10)
    assert top.event.name == "cpu"
    assert list(values(top)) == ["fib", "main"]
    note = 'cpu; this profile also has page-faults: event="NAME" shows them'
    assert str(top).splitlines()[0] == note
    assert "<caption>cpu; this profile also has page-faults" in top._repr_html_()


def test_an_event_that_was_asked_for_needs_no_remark():
    rows = [(*ROWS[0], "cpu"), ("app", 7, 7, 0, 9, ["touch"], 5, 1, "page-faults")]
    top = build_profile(rows, events=(CPU, FAULTS)).top(10, "page-faults")
    assert list(values(top)) == ["touch"]
    assert str(top).splitlines()[0].split() == ["self", "total", "self", "total", "function", "object"]
