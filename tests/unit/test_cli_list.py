"""``stackhound list``: what there is, what is missing and why."""

from __future__ import annotations

import json

import pytest

from stackhound import _native
from stackhound.cli.main import main

TRACEPOINTS = ["irq:irq_handler_entry", "sched:sched_switch", "sched:sched_waking"]


@pytest.fixture(autouse=True)
def core(monkeypatch):
    """A virtual machine: software events and tracepoints, no counters."""
    monkeypatch.setattr(_native, "probe_event", lambda kind, _: "" if kind == 1 else "no such counter")
    names = [(name, "tracepoint", "") for name in TRACEPOINTS]
    monkeypatch.setattr(_native, "list_events", lambda: names)


def shown(capsys, *arguments):
    assert main(["list", *arguments]) == 0
    return capsys.readouterr().out


def test_events_stand_under_their_kinds_with_their_units(capsys):
    lines = shown(capsys).splitlines()
    assert lines[0] == "cpu"
    assert lines[1].split() == ["cpu", "nanoseconds"]
    software = lines[lines.index("software") :]
    assert [line.split() for line in software[1:4]] == [
        ["cpu-clock", "nanoseconds"],
        ["task-clock", "nanoseconds"],
        ["page-faults", "count"],
    ]


def test_of_what_is_missing_the_reason_is_told_once(capsys):
    lines = shown(capsys).splitlines()
    assert lines[lines.index("hardware") + 1] == "  none: no such counter"


def test_what_alone_is_missing_is_named(capsys, monkeypatch):
    lacks = {(0, 5): "no such counter", (0, 6): "no such counter"}
    monkeypatch.setattr(_native, "probe_event", lambda kind, config: lacks.get((kind, config), ""))
    lines = shown(capsys, "hardware").splitlines()
    assert lines[-1] == "  not branch-misses, bus-cycles: no such counter"
    assert "  cycles                          count" in lines


def test_tracepoints_are_counted_by_category(capsys):
    lines = [line.split() for line in shown(capsys).splitlines()]
    assert ["irq:…", "1"] in lines
    assert ["sched:…", "2"] in lines


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("sched:", ["sched:sched_switch", "sched:sched_waking"]),
        ("waking", ["sched:sched_waking"]),
        ("minor", ["minor-faults"]),
        ("tracepoint", TRACEPOINTS),
    ],
)
def test_a_filter_finds_names_and_kinds(text, names, capsys):
    events = json.loads(shown(capsys, text, "--json"))
    assert [event["name"] for event in events] == names
    lines = shown(capsys, text).splitlines()
    assert [line.split()[0] for line in lines if line.startswith("  ")] == names


def test_a_filter_that_finds_nothing_says_so(capsys):
    assert shown(capsys, "zzz") == "no event has 'zzz' in its name\n"


def test_json_says_of_each_event_why_it_is_missing(capsys):
    events = {event["name"]: event for event in json.loads(shown(capsys, "--json"))}
    assert events["cycles"] == {"name": "cycles", "kind": "hardware", "unit": "count", "missing": "no such counter"}
    assert events["sched:sched_switch"]["missing"] == ""
    assert events["rNNNN"]["kind"] == "raw"


def test_where_tracefs_cannot_be_read_it_says_so(capsys, monkeypatch):
    unreadable = [("tracepoints", "tracepoint", "tracefs cannot be read: permission denied")]
    monkeypatch.setattr(_native, "list_events", lambda: unreadable)
    text = shown(capsys)
    assert "tracefs cannot be read: permission denied: run as root" in text
    assert "stackhound list CATEGORY:" not in text
