"""Counted stacks, to the letter."""

from __future__ import annotations

import io

from fixtures.examples import two_events, web_server
from fixtures.profiles import build_profile
from stackhound.formats import by_name


def write(profile, event=None):
    out = io.BytesIO()
    by_name("counted").write(profile, out, event=event)
    return out.getvalue().decode()


def test_lines_have_the_count_first_then_the_leaf_and_end_in_a_semicolon():
    go = ["runtime.goexit", "runtime.main", "main.sqrt"]
    profile = build_profile([("go", 7, 7, 0, time_ns, go, 1000, 1) for time_ns in range(24)])
    assert write(profile) == "24 main.sqrt;runtime.main;runtime.goexit;\n"


def test_the_largest_count_is_first_and_a_miss_is_unknown():
    assert write(web_server()) == (
        "2 vfs_read;parse;main;_start;\n"
        "1 Foo.bar;_start;\n"
        "1 [UNKNOWN];main;_start;\n"
    )  # fmt: skip


def test_threads_and_processes_with_the_same_stack_are_one_line():
    profile = build_profile([(comm, pid, pid, 0, 1, ["main"], 1000, 1) for comm, pid in (("a", 1), ("b", 2))])
    assert write(profile) == "2 main;\n"


def test_the_count_is_the_events_own_value_where_it_is_not_cpu():
    assert write(two_events(), "page-faults") == "3 load;main;\n"


def test_a_sample_without_a_stack_is_unknown():
    assert write(build_profile([("app", 7, 7, 0, 1, [], 1000, 5)])) == "5 [UNKNOWN];\n"


def test_a_hostile_name_stays_one_frame_of_one_line():
    profile = build_profile([("app", 7, 7, 0, 1, ["main", "a;b\n\x1b[2J"], 1000, 1)])
    assert write(profile) == "1 a\\x3bb\\n\\x1b[2J;main;\n"
