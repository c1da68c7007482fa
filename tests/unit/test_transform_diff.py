"""What changed between two profiles, node by node."""

from __future__ import annotations

import pytest

from fixtures.profiles import CPU, FAULTS, Frame, build_profile
from stackhound.errors import UsageError
from stackhound.transform import diff


def profile(*stacks, events=(CPU,)):
    return build_profile([("app", 7, 7, 0, 1_000, list(frames), value, 1) for *frames, value in stacks], events=events)


def nodes(found):
    """Total before and after, by the path of names."""
    paths = {0: ""}
    for node in range(1, len(found.after)):
        paths[node] = f"{paths[int(found.after.parent[node])]}/{found.after.name(node)}"
    before, after = found.before.total_value.tolist(), found.after.total_value.tolist()
    return {path: (before[node], after[node]) for node, path in paths.items()}


def test_each_node_has_what_it_was_worth_before_and_after():
    before = profile(("main", "parse", 10), ("main", "draw", 5))
    after = profile(("main", "parse", 30), ("main", "draw", 5))
    assert nodes(diff([before], [after], "cpu")) == {
        "": (15, 35),
        "/main": (15, 35),
        "/main/parse": (10, 30),
        "/main/draw": (5, 5),
    }


def test_what_is_new_and_what_is_gone_have_nodes_too():
    found = diff([profile(("main", "old", 10))], [profile(("main", "new", 20))], "cpu")
    assert nodes(found) == {"": (10, 20), "/main": (10, 20), "/main/old": (10, 0), "/main/new": (0, 20)}


def test_functions_of_two_builds_are_the_same_where_their_names_are():
    builds = [
        Frame("drain", path=f"/{name}/app", file=f"/{name}/drain.c", address=at) for name, at in (("a", 1), ("b", 9))
    ]
    before, after = (profile(("main", frame, 10)) for frame in builds)
    assert nodes(diff([before], [after], "cpu"))["/main/drain"] == (10, 10)


def test_several_recordings_of_a_side_add_up():
    one, two = profile(("main", 1)), profile(("main", 2))
    assert nodes(diff([one, two], [two, two], "cpu"))["/main"] == (3, 4)


def test_a_side_without_samples_is_worth_nothing():
    empty = profile(("main", 1)).filter(comms=["nobody"])
    assert nodes(diff([empty], [profile(("main", 5))], "cpu"))["/main"] == (0, 5)


def test_other_events_are_left_alone():
    rows = [("app", 7, 7, 0, 1_000, ["main"], 10, 1), ("app", 7, 7, 0, 2_000, ["fault"], 3, 1, "page-faults")]
    both = build_profile(rows, events=(CPU, FAULTS))
    assert nodes(diff([both], [both], "cpu")) == {"": (10, 10), "/main": (10, 10)}


def test_nothing_to_compare_is_a_usage_error():
    one = profile(("main", 1))
    with pytest.raises(UsageError, match="nothing to compare"):
        diff([], [one], "cpu")
    with pytest.raises(UsageError, match="no event 'off-cpu'"):
        diff([one], [one], "off-cpu")
