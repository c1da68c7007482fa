"""How far the walks of user stacks came, as a user reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from fixtures.profiles import CPU, build_profile
from stackhound.cli.breakdown import break_down
from stackhound.profile import Profile
from stackhound.profile.columns import with_columns
from stackhound.profile.completeness import count_ends
from stackhound.profile.facts import facts
from stackhound.profile.schema import USER_ENDS, SampleFlag
from stackhound.profile.walks import walks_by_object

if TYPE_CHECKING:
    from collections.abc import Sequence


def flag(end: str) -> int:
    return USER_ENDS.index(end) << SampleFlag.USER_END_SHIFT


COMPLETE = flag("complete")
BY_GUESS = COMPLETE | SampleFlag.USER_FRAME_POINTERS
NO_RULE = flag("no rule")


def profile_of(*samples: tuple[Sequence[str], int]) -> Profile:
    """A profile of (stack, flags), one observation and 10 ns each."""
    rows = [("app", 7, 7, 0, time, list(frames), 10, 1) for time, (frames, _) in enumerate(samples)]
    profile = build_profile(rows)
    flags = np.array([flags for _, flags in samples], np.uint32)
    return Profile({**profile.tables, "samples": with_columns(profile.table("samples"), flags=flags)}, {})


@pytest.fixture
def mixed() -> Profile:
    app, odd = ["_start", "main"], ["_start", "main", "?odd.so+0x10"]
    return profile_of(
        (app, COMPLETE),
        (odd, NO_RULE),
        (odd, BY_GUESS),
        (["k:kthread"], SampleFlag.KERNEL_THREAD),
        (["k:do_exit"], flag("thread was ending")),
        (["k:execve"], flag("program was being loaded")),
    )


def rows_by(profile: Profile, *keys: str) -> dict[tuple[object, ...], tuple[int, int]]:
    return {row.keys: (row.self_value, row.total_value) for row in break_down(profile, CPU, keys)}


def test_stacks_are_counted_by_how_they_ended(mixed: Profile) -> None:
    assert count_ends(mixed.samples_of(CPU)) == {
        "complete": 1,
        "no rule": 1,
        "complete, in part by frame pointers": 1,
    }


def test_a_report_shows_whether_stacks_are_complete(mixed: Profile) -> None:
    assert rows_by(mixed, "stack") == {
        ("complete",): (10, 10),
        ("no rule",): (10, 10),
        ("complete, in part by frame pointers",): (10, 10),
        ("kernel thread",): (10, 10),
        ("thread was ending",): (10, 10),
        ("program was being loaded",): (10, 10),
    }


def test_a_report_shows_through_which_files_the_incomplete_stacks_went(mixed: Profile) -> None:
    rows = rows_by(mixed, "object", "stack")
    assert rows["/usr/lib/odd.so", "no rule"] == (10, 10)
    assert rows["/usr/bin/app", "no rule"] == (0, 10)
    assert rows["/usr/bin/app", "complete"] == (10, 10)
    assert ("/usr/lib/odd.so", "complete") not in rows


def test_the_end_of_a_stack_goes_with_keys_of_threads_in_any_order(mixed: Profile) -> None:
    assert rows_by(mixed, "stack", "comm")["no rule", "app"] == (10, 10)
    assert rows_by(mixed, "comm", "stack")["app", "no rule"] == (10, 10)


def test_the_facts_say_how_many_stacks_are_complete(mixed: Profile) -> None:
    said = dict(facts(mixed, CPU))["Stacks"]
    assert said == "33.3% complete; 1 no rule, 1 complete, in part by frame pointers"


@pytest.fixture
def python() -> Profile:
    cut, guessed = SampleFlag.PYTHON_CUT, SampleFlag.PYTHON_GUESSED
    return profile_of(
        (["main"], COMPLETE | SampleFlag.PYTHON),
        (["main"], COMPLETE | SampleFlag.PYTHON | cut),
        (["main"], COMPLETE | SampleFlag.PYTHON | cut | guessed),
        (["main"], BY_GUESS | SampleFlag.PYTHON | guessed),
        (["main"], NO_RULE | SampleFlag.PYTHON | cut),
    )


def test_cut_and_guessed_python_stacks_are_not_called_complete(python: Profile) -> None:
    said = dict(facts(python, CPU))["Stacks"]
    assert said == (
        "20.0% complete; 2 Python's functions cut, 1 no rule, 1 Python's functions in part at guessed places"
    )


def test_a_report_shows_which_python_stacks_are_cut_or_guessed(python: Profile) -> None:
    assert rows_by(python, "stack") == {
        ("complete",): (10, 10),
        ("no rule",): (10, 10),
        ("Python's functions cut",): (20, 20),
        ("Python's functions in part at guessed places",): (10, 10),
    }


def test_no_file_is_blamed_for_pythons_part(python: Profile) -> None:
    (walks,) = walks_by_object(python)
    assert (walks.samples, walks.complete, walks.broken_here) == (5, 4, {"no rule": 1})


def test_by_frame_pointers_alone_only_pythons_part_is_told() -> None:
    profile = profile_of((["main"], 0), (["main"], SampleFlag.PYTHON | SampleFlag.PYTHON_CUT))
    assert dict(facts(profile, CPU))["Stacks"] == "1 Python's functions cut"


def test_stacks_that_were_not_unwound_say_nothing_of_themselves() -> None:
    profile = profile_of((["main"], 0))
    assert count_ends(profile.samples_of(CPU)) == {}
    assert "Stacks" not in dict(facts(profile, CPU))


def test_an_end_of_a_later_version_is_shown_by_its_number() -> None:
    profile = profile_of((["main"], 15 << SampleFlag.USER_END_SHIFT))
    assert rows_by(profile, "stack") == {("(15)",): (10, 10)}
