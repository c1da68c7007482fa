"""``stackhound report --timeline``: what threads did when."""

from __future__ import annotations

import json
import random
import re
from itertools import pairwise

import pytest

from fixtures.terminal import run_on_terminal
from fixtures.times import APP, MS, WORKER, away, build_times, ran
from stackhound.cli.main import main

WORK = ["main", "work"]
READ = [*WORK, "read", "k:vfs_read"]
NAP = [*WORK, "nap", "k:do_nanosleep"]
LOAD = [*WORK, "load", "k:io_schedule"]
FAULT = [*WORK, "touch", "k:asm_exc_page_fault", "k:clear_page"]

#: Ten cells, of 10 ms each.
SPELLS = [
    ran(APP, 5, WORK, 10),
    ran(APP, 15, READ, 10, in_kernel=True),
    away(APP, 50, NAP, 30, "sleep", queued=10),
    away(APP, 60, LOAD, 10, "disk", state="disk"),
    ran(APP, 65, FAULT, 10, in_kernel=True),
    away(APP, 80, NAP, 4, "sleep", value=10, count=5),
    ran(WORKER, 45, WORK, 10),
    away(WORKER, 70, NAP, 20, "sleep"),
    ran(("other", 9, 9), 50, WORK, 5),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "10")
    build_times(SPELLS, until=100).save("stackhound.hound")


def shown(capsys, *arguments, status=0):
    assert main(["report", "--timeline", *map(str, arguments)]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def strips(capsys, *arguments):
    """{thread: its strip}"""
    blocks = shown(capsys, *arguments).split("\n\n")[1:-1]
    return {lines[0]: lines[1] for lines in (block.splitlines() for block in blocks)}


def spells(capsys, *arguments):
    """{tid: [(start, end, state, reason)]} in ms."""
    document = json.loads(shown(capsys, "--json", *arguments))
    return {
        thread["tid"]: [
            (spell["start_ns"] / MS, spell["end_ns"] / MS, spell["state"], spell["reason"])
            for spell in thread["spells"]
        ]
        for thread in document["threads"]
    }


def test_each_cell_shows_what_the_thread_did_most_of_its_time(capsys):
    assert strips(capsys) == {"app (7)": "UKssrDFs??", "worker (8)": "    Uss   "}


def test_the_intervals_are_there_for_programs(capsys):
    assert spells(capsys)[7] == [
        (0, 10, "user", "on the CPU"),
        (10, 20, "kernel", "on the CPU"),
        (20, 40, "sleeping", "sleep"),
        (40, 50, "runnable", "woken"),
        (50, 60, "disk", "disk"),
        (60, 70, "faulting", "on the CPU"),
        (70, 80, "sleeping", "sleep"),
        (80, 100, "unknown", ""),
    ]


def test_a_thread_is_found_by_its_id_or_name_and_a_process_shows_all_of_its_threads(capsys):
    assert list(strips(capsys, 8)) == ["worker (8)"]
    assert list(strips(capsys, "worker")) == ["worker (8)"]
    assert list(strips(capsys, 7)) == ["app (7)", "worker (8)"]
    assert list(strips(capsys, "other")) == ["other (9)"]


def test_more_threads_than_are_asked_for_are_counted(capsys):
    page = shown(capsys, "-n", 1)
    assert "worker" not in page
    assert "\n1 more: -n 0 shows all threads\n" in page
    assert list(strips(capsys, "-n", 0)) == ["app (7)", "worker (8)"]


def test_the_page_has_a_legend_an_axis_and_the_reasons_with_their_time(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    assert shown(capsys, 7) == (
        "U user code  K kernel  r ready  s sleeping  D disk  F page faults  ? not known\n"
        "\n"
        "app (7)\n"
        "UUUUKKKKssssssssrrrrDDDDFFFFssss????????\n"
        "0 ms                50 ms\n"
        "30.0% sleep 30.0 ms, 10.0% disk 10.0 ms\n"
        "\n"
        "worker (8)\n"
        "                UUUUssssssss            \n"
        "0 ms                50 ms\n"
        "66.7% sleep 20.0 ms\n"
        "\n"
        "13 samples · 0 lost\n"
    )


@pytest.mark.parametrize(("until", "marks"), [(3, "0 ms"), (2_000, "0 s"), (60_000, "0 s")])
def test_the_axis_has_the_unit_that_the_recording_is_long(until, marks, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    build_times([ran(APP, 1, WORK, 1)], until=until).save("stackhound.hound")
    assert f"\n{marks}  " in shown(capsys)


def test_as_many_reasons_as_there_is_room_for_are_below_a_strip(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    assert "\n30.0% sleep 30.0 ms, 10.0% disk 10.0 ms, 10.0% page faults 10.0 ms\n" in shown(capsys, 7)


def test_time_on_the_cpu_gives_way_to_what_is_known_exactly(capsys):
    build_times([ran(APP, 20, WORK, 20), away(APP, 20, NAP, 15, "sleep")], until=40).save("stackhound.hound")
    assert spells(capsys)[7] == [
        (0, 5, "unknown", ""),
        (5, 20, "sleeping", "sleep"),
        (20, 30, "user", "on the CPU"),
        (30, 40, "unknown", ""),
    ]


def test_samples_that_overlap_follow_one_another(capsys):
    build_times([ran(APP, 10, WORK, 20), ran(APP, 20, READ, 20, in_kernel=True)], until=30).save("stackhound.hound")
    assert spells(capsys)[7] == [(0, 20, "user", "on the CPU"), (20, 30, "kernel", "on the CPU")]


def test_what_was_not_recorded_is_said_with_what_to_record(capsys):
    build_times(SPELLS[:2], until=100).filter(events=["cpu"]).save("stackhound.hound")
    assert "\ntime off the CPU was not recorded: 'stackhound record -e cpu,off-cpu' has both\n" in shown(capsys)


def test_combined_samples_have_no_times(capsys):
    profile = build_times(SPELLS, until=100)
    profile.derive({}, options={"aggregate": True}).save("stackhound.hound")
    assert shown(capsys, status=2) == (
        "stackhound: samples of this profile were combined, and have no times: record without --aggregate\n"
    )


def test_a_thread_that_is_not_there_is_said_to_be_missing(capsys):
    assert shown(capsys, 4242, status=2) == (
        "stackhound: this profile has no thread '4242': 'report --sort thread' lists those it has\n"
    )


def test_a_terminal_gets_colours_as_wide_as_it_is():
    page = run_on_terminal("report", "--timeline", COLUMNS="").decode()
    strip = page.splitlines()[3]
    assert strip.startswith("\x1b[30m\x1b[42mUUUUUUUUUU\x1b[0m")
    assert len(re.sub(r"\x1b\[[0-9;]*m", "", strip).rstrip("\r")) == 100


def test_names_from_the_profiled_program_do_not_reach_the_terminal(capsys):
    build_times([ran(("\x1b[31mapp", 7, 7), 5, WORK, 10)], until=10).save("stackhound.hound")
    assert "\x1b" not in shown(capsys)


def test_spells_of_random_threads_have_no_gaps_and_no_more_time_than_there_is(capsys):
    chance = random.Random(7)
    spells_of = [
        ran(APP, chance.uniform(1, 99), WORK, chance.uniform(0.5, 9))
        if chance.random() < 0.5
        else away(APP, chance.uniform(1, 99), NAP, chance.uniform(0.1, 9), chance.choice(["sleep", "cpu", "disk"]))
        for _ in range(200)
    ]
    build_times(spells_of, until=100).save("stackhound.hound")
    found = spells(capsys)[7]
    assert (found[0][0], found[-1][1]) == (0, 100)
    assert all(before[1] == after[0] and before[2:] != after[2:] for before, after in pairwise(found))
    assert all(start < end for start, end, *_ in found)
