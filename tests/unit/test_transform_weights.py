"""Samples that weigh how often something was, or how long it took."""

from __future__ import annotations

import io
import json

import pytest

from fixtures.profiles import CPU, FAULTS, make_table
from fixtures.times import APP, MS, OFF_CPU, START_NS, away, build_times, ran
from stackhound.cli.main import main
from stackhound.errors import UsageError
from stackhound.formats import by_name
from stackhound.profile import Event

NAP = ["main", "nap", "k:do_nanosleep"]
LOCK = ["main", "lock", "k:futex_wait"]
SPELLS = [
    ran(APP, 5, ["main", "work"], 10),
    away(APP, 40, NAP, 30, "sleep"),
    away(APP, 60, LOCK, 0.5, "futex", value=10, count=20),
]
EVENTS = (CPU, OFF_CPU, Event(2, "minor-faults", *list(vars(FAULTS).values())[2:]))
TOUCHED = [
    ("app", 7, 7, 0, START_NS + at * MS, ["main", "touch"], value, 1, "minor-faults")
    for at, value in ((70, 5), (80, 3))
]


@pytest.fixture
def profile():
    return build_times(SPELLS, until=100, events=EVENTS, more=TOUCHED)


def weights(profile, event):
    """{leaf: value}"""
    tree = profile.tree(event)
    return {tree.name(node): int(value) for node, value in enumerate(tree.self_value) if value}


def folded(profile, event):
    out = io.BytesIO()
    by_name("folded").write(profile, out, event=event)
    return out.getvalue().decode().splitlines()


def test_by_count_absences_are_counted_instead_of_their_time(profile):
    assert weights(profile, "off-cpu") == {"do_nanosleep": 30 * MS, "futex_wait": 10 * MS}
    counted = profile.weigh_by_count()
    assert weights(counted, "off-cpu") == {"do_nanosleep": 1, "futex_wait": 20}
    assert folded(counted, "off-cpu") == ["app;main;lock;futex_wait_[k] 20", "app;main;nap;do_nanosleep_[k] 1"]
    assert {event.name: event.unit for event in counted.events} == {
        "cpu": "count", "off-cpu": "count", "minor-faults": "count",
    }  # fmt: skip


def test_by_count_faults_are_as_many_as_they_were(profile):
    assert weights(profile.weigh_by_count(), "minor-faults") == {"touch": 8}


def test_by_time_faults_weigh_what_each_of_them_took(profile):
    took = [{"sample": 3, "object": 0, "offset": 0, "ns": 2_000}, {"sample": 4, "object": 0, "offset": 0, "ns": 1_000}]
    timed = profile.derive({"faults": make_table("faults", took)}).weigh_by_time()
    assert weights(timed, "minor-faults") == {"touch": 5 * 2_000 + 3 * 1_000}
    assert timed.event("minor-faults").unit == "nanoseconds"
    assert weights(timed, "off-cpu") == weights(profile, "off-cpu")


def test_times_that_were_not_measured_are_not_made_up(profile):
    assert weights(profile.weigh_by_time(), "minor-faults") == {"touch": 8}
    with pytest.raises(UsageError, match="how long it took was not measured of minor-faults: drop --by time"):
        profile.filter(events=["minor-faults"]).weigh_by_time()


def test_what_was_asked_for_is_said_as_it_was_recorded(profile, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    profile.save("stackhound.hound")
    assert main(["report", "--event", "off-cpu", "--by", "count", "--sort", "reason"]) == 0
    assert capsys.readouterr().out.startswith(
        "off-cpu by sched_exit_tp every 1.00 ms: 21 samples, 21 (futex 95%, sleep 5%)\n"
    )
    assert main(["report", "--event", "off-cpu", "--by", "count", "--sort", "reason", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["unit"], document["total"]) == ("count", 21)
    assert [(row["reason"], row["self"]) for row in document["rows"]] == [("futex", 20), ("sleep", 1)]


@pytest.mark.parametrize("arguments", [["--why"], ["--timeline"]])
def test_pages_of_times_refuse_to_count(profile, arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    profile.save("stackhound.hound")
    assert main(["report", *arguments, "--by", "count"]) == 2
    assert capsys.readouterr().err == f"stackhound: {arguments[0]} is about times: drop --by\n"


@pytest.mark.parametrize("name", ["firefox", "perfetto"])
def test_formats_that_show_times_refuse_to_count(profile, name):
    with pytest.raises(UsageError, match="shows times: export the profile without --by"):
        by_name(name).write(profile.weigh_by_count(), io.BytesIO())


def test_pictures_show_numbers_instead_of_times(profile):
    out = io.BytesIO()
    by_name("svg").write(profile.weigh_by_count(), out, event="off-cpu")
    assert "20" in out.getvalue().decode()
    assert "10.0 ms" not in out.getvalue().decode()


def test_by_count_twice_is_by_count(profile):
    once = profile.weigh_by_count()
    assert once.weigh_by_count() is once
