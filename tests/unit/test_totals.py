"""Exact totals beside the samples: shown where they are known, and dropped where they would no longer be true."""

from __future__ import annotations

import json

import pytest

from fixtures.profiles import CPU, FAULTS, build_profile, make_table
from stackhound.cli.main import main
from stackhound.profile.facts import describe_event, facts
from stackhound.profile.totals import exact_total, exact_totals
from stackhound.transform import compact, merge


def profile_with_totals(*totals):
    """Two processes, of which 7 had both samples of faults; ``totals`` are (event, pid, count)."""
    profile = build_profile(
        [
            ("app", 7, 7, 0, 1_000, ["main", "work"], 10, 1),
            ("app", 7, 7, 0, 2_000, ["main", "load"], 300, 1, "page-faults"),
            ("app", 7, 7, 0, 3_000, ["main", "load"], 290, 1, "page-faults"),
            ("job", 9, 9, 0, 4_000, ["main"], 10, 1),
        ],
        events=(CPU, FAULTS),
    )
    rows = [{"event": event, "pid": pid, "start_boottime_ns": pid, "count": count} for event, pid, count in totals]
    return profile.derive({"event_totals": make_table("event_totals", rows)})


TOTALS = ((1, 0, 600), (1, 7, 588), (1, 9, 12))
PROFILE = profile_with_totals(*TOTALS)


def test_the_exact_number_stands_beside_what_samples_stand_for():
    line = describe_event(PROFILE, PROFILE.event("page-faults"))
    assert line == "page-faults each time: 2 samples, 590 of 600 counted"
    assert dict(facts(PROFILE, PROFILE.event("page-faults")))["Counted"] == "600, exactly"


def test_an_event_without_an_exact_number_does_not_speak_of_one():
    assert "counted" not in describe_event(PROFILE, PROFILE.event("cpu"))
    assert "Counted" not in dict(facts(PROFILE, PROFILE.event("cpu")))
    assert exact_total(build_profile([], events=(CPU,)), CPU) is None


def test_each_process_has_its_own_number():
    assert exact_totals(PROFILE, PROFILE.event("page-faults")) == {7: 588, 9: 12}


def test_a_part_of_the_samples_is_not_held_against_the_number_of_all():
    part = PROFILE.filter(pids=[7])
    assert exact_total(part, part.event("page-faults")) is None
    assert exact_totals(part, part.event("page-faults"))[7] == 588


def test_an_event_that_is_left_out_takes_its_numbers_along():
    assert exact_totals(PROFILE.filter(events=["cpu"]), PROFILE.event("cpu")) == {}
    faults = PROFILE.filter(events=["page-faults"])
    assert exact_totals(faults, faults.event()) == {7: 588, 9: 12}


def test_a_compacted_profile_tells_nothing_of_processes_that_were_left_out():
    small = compact(PROFILE.filter(pids=[7]))
    assert exact_totals(small, small.event("page-faults")) == {7: 588}


def test_merged_profiles_have_the_sum_of_their_numbers():
    both = merge([PROFILE, profile_with_totals((1, 0, 50), (1, 7, 50))])
    assert exact_total(both, both.event("page-faults")) == 650
    assert exact_totals(both, both.event("page-faults")) == {7: 638, 9: 12}


def test_a_merge_with_a_profile_without_numbers_has_none():
    both = merge([PROFILE, build_profile([("app", 7, 7, 0, 1_000, ["main"], 3, 3)], events=(FAULTS,))])
    assert exact_total(both, both.event("page-faults")) is None


@pytest.mark.parametrize(("event", "counted"), [("cpu", None), ("page-faults", 600)])
def test_programs_read_the_number_too(tmp_path, capsys, event, counted):
    path = tmp_path / "a.hound"
    PROFILE.save(path)
    assert main(["report", str(path), "--event", event, "--json"]) == 0
    assert json.loads(capsys.readouterr().out).get("counted") == counted
