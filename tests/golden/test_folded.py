"""Folded stacks, to the letter."""

from __future__ import annotations

import io

import pytest

from fixtures.examples import two_events, web_server
from fixtures.profiles import build_profile
from stackhound.formats import by_name

HOSTILE = ["a;b", "new\nline", "\x1b[2J", "", "trailing ", "12", "\u202eturned", "<[u8; 4]>::map"]


def write(profile, event=None):
    out = io.BytesIO()
    by_name("folded").write(profile, out, event=event)
    return out.getvalue().decode()


def stack(*frames, comm="app", count=1, value=1000):
    return (comm, 7, 7, 0, 1_000, list(frames), value, count)


def test_stacks_are_lines_root_first_with_kernel_inlined_and_jit_marked():
    assert write(web_server()) == (
        "java;_start;Foo.bar_[j] 1\n"
        "nginx: worker;_start;main;[libz.so.1] 1\n"
        "nginx;_start;main;parse_[i];vfs_read_[k] 2\n"
    )


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        ("main", "main"),
        ("k:schedule", "schedule_[k]"),
        ("m:nf_hook", "nf_hook_[k]"),
        ("b:bpf_prog_1", "bpf_prog_1_[k]"),
        ("j:Foo.bar", "Foo.bar_[j]"),
        ("p:handler", "handler"),
        ("?libx.so+0x12", "[libx.so]"),
    ],
)
def test_each_kind_of_frame_has_its_mark(frame, shown):
    assert write(build_profile([stack(frame)])) == f"app;{shown} 1\n"


def test_an_inlined_kernel_function_is_marked_as_kernel():
    assert write(build_profile([stack("k:vfs_read", "i:k:rw_verify")])) == "app;vfs_read_[k];rw_verify_[k] 1\n"


def test_the_value_is_samples_for_cpu_and_the_events_own_for_others():
    profile = two_events()
    assert write(profile, "cpu") == "app;main;work 1\n"
    assert write(profile, "page-faults") == "app;main;load 3\n"


def test_addresses_of_one_function_are_one_line():
    profile = build_profile([stack("main", "work at work.c:1"), stack("main", "work at work.c:2", count=4)])
    assert write(profile) == "app;main;work 5\n"


def test_a_sample_without_a_stack_is_its_comm():
    assert write(build_profile([stack()])) == "app 1\n"


def test_no_samples_are_no_lines():
    assert write(build_profile([])) == ""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_leave_a_line_that_parses(name):
    text = write(build_profile([stack("main", name, "leaf", comm=name, count=3)]))
    path, _, weight = text.removesuffix("\n").rpartition(" ")
    assert (len(path.split(";")), weight, len(text.splitlines())) == (4, "3", 1)
    assert text.removesuffix("\n").isprintable()
