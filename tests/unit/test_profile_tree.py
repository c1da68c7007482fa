"""Samples merged into a call tree."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fixtures.profiles import CPU, FAULTS, build_profile
from fixtures.strategies import EVENTS, build, expected_paths, paths_of, profiles, repeatable, samples

ROWS = [
    ("app", 7, 7, 0, 1_000, ["main", "work", "i:add", "k:read"], 10, 1),
    ("app", 7, 8, 0, 2_000, ["main", "work"], 20, 1),
    ("db", 9, 9, 0, 3_000, ["main", "idle"], 5, 1),
]


def named(tree):
    """(name, depth, self, total) of all nodes, each followed by its children, the largest first."""
    rows, pending = [], [0]
    while pending:
        node = pending.pop()
        rows.append((tree.name(node), int(tree.depth[node]), int(tree.self_value[node]), int(tree.total_value[node])))
        pending += reversed(tree.children(node).tolist())
    return rows


def test_a_tree_goes_from_the_root_to_what_ran():
    assert named(build_profile(ROWS).tree()) == [
        ("all", 0, 0, 35),
        ("main", 1, 0, 35),
        ("work", 2, 20, 30),
        ("add", 3, 0, 10),
        ("read", 4, 10, 10),
        ("idle", 2, 5, 5),
    ]


def test_an_inverted_tree_goes_from_what_ran_to_its_callers():
    assert named(build_profile(ROWS[:1]).tree(inverted=True)) == [
        ("all", 0, 0, 10),
        ("read", 1, 0, 10),
        ("add", 2, 0, 10),
        ("work", 3, 0, 10),
        ("main", 4, 10, 10),
    ]


def test_a_tree_by_process_begins_with_the_programs():
    tree = build_profile(ROWS).tree(root="process")
    assert [row for row in named(tree) if row[1] == 1] == [("app", 1, 0, 30), ("db", 1, 0, 5)]
    assert tree.is_label.tolist() == (tree.depth == 1).tolist()


def test_a_tree_by_thread_begins_with_the_names_of_threads():
    rows = [*ROWS, ("pool-1", 7, 11, 0, 4_000, ["main"], 100, 1)]
    labels = [row[0] for row in named(build_profile(rows).tree(root="thread")) if row[1] == 1]
    assert labels == ["pool-1", "app", "db"]


def test_a_tree_with_lines_tells_the_lines_of_a_function_apart():
    rows = [("app", 7, 7, 0, line, [f"main at m.c:{line}"], line, 1) for line in (3, 9)]
    tree = build_profile(rows).tree(lines=True)
    assert [int(tree.frames.line[tree.frame[node]]) for node in tree.children(0)] == [9, 3]
    assert len(build_profile(rows).tree()) == 2


def test_a_profile_without_samples_has_a_tree_with_nothing_in_it():
    tree = build_profile([]).tree()
    assert named(tree) == [("all", 0, 0, 0)]
    assert tree.percent.tolist() == [0.0]


def test_percentages_are_of_all_samples():
    tree = build_profile(ROWS).tree()
    assert tree.percent[0] == 100.0
    assert tree.percent.tolist() == (tree.total_value * (100 / 35)).tolist()


def test_an_event_of_several_is_chosen_by_name():
    rows = [*ROWS, ("app", 7, 7, 0, 9, ["main"], 3, 3, FAULTS.name)]
    profile = build_profile(rows, [CPU, FAULTS])
    assert profile.tree("page-faults").total_value[0] == 3
    assert profile.tree("cpu").total_value[0] == 35


@repeatable
@given(samples())
def test_a_tree_has_each_path_with_the_sum_of_its_samples(rows):
    profile = build(rows)
    for event in EVENTS:
        assert paths_of(profile, event.name) == expected_paths(rows, event.name)


@repeatable
@given(profiles(), st.booleans(), st.sampled_from([None, "process", "thread"]), st.booleans())
def test_totals_add_up_at_every_node_of_every_kind_of_tree(profile, inverted, root, lines):
    tree = profile.tree("cpu", root=root, inverted=inverted, lines=lines)
    assert tree.total_value[0] == profile.samples_of(tree.event).value.sum()
    for node in range(len(tree)):
        children = tree.children(node)
        assert tree.total_value[node] == tree.self_value[node] + tree.total_value[children].sum()
        assert (tree.parent[children] == node).all()
        assert (tree.depth[children] == tree.depth[node] + 1).all()
    assert (tree.parent[1:] < np.arange(1, len(tree))).all()


@repeatable
@given(samples())
def test_an_inverted_tree_has_each_path_the_other_way_round(rows):
    profile = build(rows)
    turned = profile.invert()
    expected = {path[::-1]: value for path, value in expected_paths(rows).items()}
    assert paths_of(turned) == expected
    assert named(profile.tree("cpu", inverted=True))[0] == named(turned.tree("cpu"))[0]
