"""Events by the names that perf users know."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stackhound.errors import EventUnavailable, UsageError
from stackhound.recording.events import CACHE, HARDWARE, NAMED, RAW, SOFTWARE, find_event


@pytest.mark.parametrize(
    ("name", "type_", "config", "unit"),
    [
        ("cycles", HARDWARE, 0, "count"),
        ("instructions", HARDWARE, 1, "count"),
        ("cache-misses", HARDWARE, 3, "count"),
        ("branch-misses", HARDWARE, 5, "count"),
        ("ref-cycles", HARDWARE, 9, "count"),
        ("cpu-clock", SOFTWARE, 0, "nanoseconds"),
        ("task-clock", SOFTWARE, 1, "nanoseconds"),
        ("page-faults", SOFTWARE, 2, "count"),
        ("minor-faults", SOFTWARE, 5, "count"),
        ("major-faults", SOFTWARE, 6, "count"),
        ("cpu-migrations", SOFTWARE, 4, "count"),
        ("L1-dcache-loads", CACHE, 0x00000, "count"),
        ("L1-dcache-load-misses", CACHE, 0x10000, "count"),
        ("LLC-store-misses", CACHE, 0x10102, "count"),
        ("dTLB-prefetches", CACHE, 0x00203, "count"),
        ("iTLB-load-misses", CACHE, 0x10004, "count"),
        ("branch-load-misses", CACHE, 0x10005, "count"),
        ("r1a8", RAW, 0x1A8, "count"),
        ("rFFff", RAW, 0xFFFF, "count"),
    ],
)
def test_a_name_gives_the_numbers_of_perf_event_open(name, type_, config, unit):
    event = find_event(name)
    assert (event.name, event.type, event.config, event.unit) == (name, type_, config, unit)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("cpu-cycles", "cycles"),
        ("branches", "branch-instructions"),
        ("cs", "context-switches"),
        ("faults", "page-faults"),
        ("migrations", "cpu-migrations"),
        ("idle-cycles-frontend", "stalled-cycles-frontend"),
    ],
)
def test_perfs_aliases_are_known(alias, name):
    assert find_event(alias).name == name


def test_the_software_numbers_are_those_of_the_kernels_header():
    header = Path("/usr/include/linux/perf_event.h")
    if not header.exists():
        pytest.skip("linux-libc-dev is not installed")
    numbers = dict(re.findall(r"PERF_COUNT_(SW_\w+|HW_\w+)\s*=\s*(\d+)", header.read_text()))
    names = {
        "SW_PAGE_FAULTS": "page-faults",
        "SW_CONTEXT_SWITCHES": "context-switches",
        "SW_PAGE_FAULTS_MAJ": "major-faults",
        "SW_ALIGNMENT_FAULTS": "alignment-faults",
        "SW_EMULATION_FAULTS": "emulation-faults",
        "HW_BUS_CYCLES": "bus-cycles",
        "HW_STALLED_CYCLES_BACKEND": "stalled-cycles-backend",
    }
    assert {name: NAMED[ours].config for name, ours in names.items()} == {name: int(numbers[name]) for name in names}


@pytest.mark.parametrize(
    ("name", "exclude_kernel", "exclude_user"),
    [("cycles:u", True, False), ("page-faults:k", False, True), ("r1a8:uk", False, False), ("cpu:u", True, False)],
)
def test_modifiers_choose_user_space_or_the_kernel(name, exclude_kernel, exclude_user):
    event = find_event(name)
    assert (event.name, event.exclude_kernel, event.exclude_user) == (name, exclude_kernel, exclude_user)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("cylces", "cycles"),
        ("CPU", "cpu"),
        ("page-fault", "page-faults"),
        ("l1-dcache-load-miss", "L1-dcache-load-misses"),
    ],
)
def test_a_misspelt_event_is_answered_with_near_ones(name, near):
    with pytest.raises(UsageError, match=f"no event '{name}'") as refused:
        find_event(name)
    assert near in refused.value.remedy


@pytest.mark.parametrize("name", ["", "off-the-wall", "r", "rxyz", "r1a8zz", "a:b:c:d", "../x:y", "cycles:q"])
def test_what_is_no_event_is_refused(name, monkeypatch):
    monkeypatch.setattr("stackhound._native.list_events", list)
    with pytest.raises(UsageError, match="there is no"):
        find_event(name)


def test_a_misspelt_tracepoint_is_answered_with_near_ones(monkeypatch):
    names = [("sched:sched_switch", "tracepoint", ""), ("irq:irq_handler_entry", "tracepoint", "")]
    monkeypatch.setattr("stackhound._native.list_events", lambda: names)
    with pytest.raises(UsageError, match="no tracepoint sched:sched_swich") as refused:
        find_event("sched:sched_swich")
    assert refused.value.remedy == "did you mean sched:sched_switch?"


def test_a_tracepoint_keeps_its_name_under_a_modifier(monkeypatch):
    names = [("sched:sched_switch", "tracepoint", "")]
    monkeypatch.setattr("stackhound._native.list_events", lambda: names)
    event = find_event("sched:sched_switch:u")
    assert (event.name, event.tracepoint, event.exclude_kernel) == ("sched:sched_switch:u", "sched:sched_switch", True)


def test_where_tracefs_cannot_be_read_a_tracepoint_says_so(monkeypatch):
    unreadable = [("tracepoints", "tracepoint", "tracefs cannot be read: permission denied")]
    monkeypatch.setattr("stackhound._native.list_events", lambda: unreadable)
    with pytest.raises(EventUnavailable, match="tracefs cannot be read"):
        find_event("sched:sched_switch")


def test_every_name_is_unique_and_no_two_names_mean_the_same_event():
    numbers = [(event.type, event.config) for event in NAMED.values()]
    assert len(set(numbers)) == len(numbers)
