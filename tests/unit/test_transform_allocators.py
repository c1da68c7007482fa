"""Allocations are shown where they were asked for, and those that are in use by themselves."""

from __future__ import annotations

import io
import json

import pytest

from fixtures.heap import HEAP, Allocation, build_heap
from fixtures.profiles import CPU, Frame, build_profile
from fixtures.strategies import paths_of
from stackhound.cli.main import main
from stackhound.errors import UsageError
from stackhound.formats import by_name
from stackhound.profile import Event


def shown(*stack, event="heap", **chosen):
    events = (CPU, Event(1, *list(vars(HEAP).values())[1:]))
    profile = build_profile([("app", 7, 7, 0, 1_000, stack, 10, 1, event)], events=events)
    profile = profile.show_native_internals() if chosen.get("internals") else profile
    (path,) = paths_of(profile, event)
    return list(path)


@pytest.mark.parametrize(
    "allocator",
    [
        ["malloc"],
        ["realloc", "malloc"],
        ["__libc_calloc"],
        ["operator new(unsigned long)", "malloc"],
        ["operator new[](unsigned long)", "operator new(unsigned long)", "malloc"],
        ["je_malloc"],
        ["mi_zalloc_aligned"],
        ["__rust_alloc", "__rdl_alloc", "aligned_alloc"],
        ["PyObject_Malloc", "_PyObject_Malloc", "_PyMem_RawMalloc"],
        ["malloc@plt"],
    ],
    ids=" ".join,
)
def test_memory_belongs_to_the_function_that_asks_for_it(allocator):
    assert shown("main", "parse", *allocator) == ["main", "parse"]


def test_the_library_that_follows_allocations_is_no_part_of_the_program():
    library = "/var/cache/stackhound/stackhound-heap-00ff00ff00ff00ff.so"
    frames = [Frame(name, path=library) for name in ("malloc", "look_closer", "stackhound_heap_allocated")]
    assert shown("main", "parse", *frames) == ["main", "parse"]
    assert shown("main", "parse", *frames, internals=True)[-1] == "stackhound_heap_allocated"


def test_a_function_that_is_called_like_an_allocators_stays_among_others():
    assert shown("main", "malloc", "hook", "malloc") == ["main", "malloc", "hook"]
    assert shown("main", "my_malloc") == ["main", "my_malloc"]


def test_time_in_the_allocator_stays_there():
    assert shown("main", "parse", "malloc", event="cpu") == ["main", "parse", "malloc"]


def test_where_there_is_nothing_else_the_outermost_stays():
    assert shown("realloc", "malloc") == ["realloc"]


@pytest.fixture
def profile():
    return build_heap([
        Allocation("main parse malloc", 100, count=10, lifetime_us=5),
        Allocation("main cache malloc", 1_000, count=3),
        Allocation("main far malloc", 7_000, fate="unknown"),
    ])  # fmt: skip


def folded(profile):
    out = io.BytesIO()
    by_name("folded").write(profile, out)
    return out.getvalue().decode().splitlines()


def test_pictures_show_what_was_allocated_or_what_is_in_use(profile):
    assert folded(profile) == ["app;main;cache 3000", "app;main;far 7000", "app;main;parse 1000"]
    assert folded(profile.keep_live()) == ["app;main;cache 3000"]
    assert folded(profile.keep_live().weigh_by_count()) == ["app;main;cache 3"]


def test_what_is_in_use_is_asked_of_allocations_only():
    with pytest.raises(UsageError, match="-e heap"):
        build_profile([("app", 7, 7, 0, 1_000, ["main"], 10, 1)]).keep_live()


@pytest.fixture
def path(profile, tmp_path):
    profile.save(tmp_path / "x.hound")
    return str(tmp_path / "x.hound")


def test_leaks_are_stacks_by_what_is_in_use(path, capsys):
    assert main(["report", path, "--leaks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "in use at the end: 2.93 KiB in 3 allocations, of 10.7 KiB in 14; not known: 6.84 KiB" in lines
    assert lines[-1].split() == ["2.93", "KiB", "3", "2.93", "KiB", "cache", "←", "main"]


def test_leaks_are_there_for_programs(path, capsys):
    assert main(["report", path, "--leaks", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row == {
        "frames": ["cache", "main"],
        "alloc_objects": 3,
        "alloc_bytes": 3000,
        "inuse_objects": 3,
        "inuse_bytes": 3000,
        "unknown_bytes": 0,
    }


def test_a_report_of_what_is_in_use_has_nothing_else(path, capsys):
    assert main(["report", path, "--live", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["symbol"], row["self"]) for row in rows if row["self"]] == [("cache", 3000)]


def test_leaks_of_another_event_are_refused(tmp_path, capsys):
    build_profile([("app", 7, 7, 0, 1_000, ["main"], 10, 1)]).save(tmp_path / "cpu.hound")
    assert main(["report", str(tmp_path / "cpu.hound"), "--leaks"]) == 2
    assert "heap" in capsys.readouterr().err
