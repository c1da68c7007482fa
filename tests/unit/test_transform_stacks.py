"""Stacks chosen, cut, turned and folded by the functions in them, compared with the same done to lists of names."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.profiles import build_profile
from fixtures.strategies import build, expected_paths, paths_of, profiles, repeatable, samples, shown
from stackhound.errors import UsageError
from stackhound.profile.check import require_consistent

patterns = st.sampled_from(["a", "^b$", "enter|read", "lib", "Loop", "nothing", "."])
TRANSFORMS = {
    "focus": lambda profile: profile.focus("a|read"),
    "ignore": lambda profile: profile.ignore("a|read"),
    "show_from": lambda profile: profile.show_from("a|read"),
    "without_callers": lambda profile: profile.without_callers("a|read"),
    "without_recorder": lambda profile: profile.without_recorder(7),
    "invert": lambda profile: profile.invert(),
    "collapse_recursion": lambda profile: profile.collapse_recursion(),
    "merge_threads": lambda profile: profile.merge_threads(),
    "drop_inlined": lambda profile: profile.drop_inlined(),
    "compact": lambda profile: profile.compact(),
    "merge": lambda profile: profile.merge(profile),
    "filter": lambda profile: profile.filter(cpus=[0, 1], events=["cpu"]),
}


def one(*stack):
    return build_profile([("app", 7, 7, 0, 1_000, list(stack), 10, 1)])


def stack_of(profile):
    """The only path of a profile."""
    (path,) = paths_of(profile)
    return list(path)


def matches(pattern, name):
    return re.search(pattern, name) is not None


def test_focus_keeps_stacks_whole():
    assert stack_of(one("main", "parse_json", "read").focus("json")) == ["main", "parse_json", "read"]
    assert paths_of(one("main", "other").focus("json")) == {}


def test_ignore_drops_what_focus_keeps():
    assert paths_of(one("main", "parse_json", "read").ignore("json")) == {}
    assert stack_of(one("main", "other").ignore("json")) == ["main", "other"]


def test_show_from_starts_at_the_outermost_match():
    assert stack_of(one("main", "json_a", "x", "json_b").show_from("json")) == ["json_a", "x", "json_b"]


def test_show_from_an_inlined_function_leaves_out_what_it_was_inlined_into():
    cut = one("main", "work", "i:json", "i:skip", "read").show_from("json")
    assert stack_of(cut) == ["json", "skip", "read"]
    assert cut.frames.inlined[cut.tree().frame[1:]].tolist() == [False, True, False]


def test_show_from_leaves_other_stacks_through_the_same_location_alone():
    both = [["json", "work", "i:json"], ["main", "work", "i:json"]]
    profile = build_profile([("app", 7, 7, 0, time, stack, 10, 1) for time, stack in enumerate(both)])
    assert paths_of(profile.show_from("json")) == {("json", "work", "json"): 10, ("json",): 10}


def test_without_callers_cuts_where_show_from_does_and_keeps_the_other_stacks():
    profile = build_profile(
        [("app", 7, 7, 0, 1, ["main", "json", "x"], 10, 1), ("app", 7, 8, 0, 2, ["run", "y"], 5, 1)]
    )
    assert paths_of(profile.without_callers("json")) == {("json", "x"): 10, ("run", "y"): 5}


def test_a_frame_without_a_name_is_found_by_its_label():
    assert stack_of(one("main", "?libx.so+0x12").focus("libx")) == ["main", "[libx.so]"]


@pytest.mark.parametrize("transform", ["focus", "ignore", "show_from", "without_callers"])
def test_a_broken_pattern_is_refused_in_one_line(transform):
    with pytest.raises(UsageError, match=r"'\(' is no regular expression"):
        getattr(one("main"), transform)("(")


def test_recursion_folds_into_one_call():
    assert stack_of(one("main", "fib", "fib", "fib", "add").collapse_recursion()) == ["main", "fib", "add"]


def test_mutual_recursion_stays():
    assert stack_of(one("a", "b", "a", "b").collapse_recursion()) == ["a", "b", "a", "b"]


def test_recursion_through_inlining_folds_too():
    assert stack_of(one("fib", "i:fib", "fib", "i:add", "add").collapse_recursion()) == ["fib", "add"]


def test_of_a_recursive_call_the_line_farthest_from_the_root_stays():
    folded = one("fib at f.c:1", "fib at f.c:2", "fib at f.c:3", "add at f.c:9").collapse_recursion()
    assert folded.frames_with_lines.line[folded.tree(lines=True).frame[1:]].tolist() == [3, 9]


def test_frames_without_names_are_not_taken_for_recursion():
    stack = ["main", "?libx.so+0x12", "?libx.so+0x20"]
    assert stack_of(one(*stack).collapse_recursion()) == ["main", "[libx.so]", "[libx.so]"]


def test_dropping_inlined_functions_leaves_the_one_that_was_called():
    assert stack_of(one("main", "i:a", "i:b", "work", "i:c").drop_inlined()) == ["main", "work"]


def test_merging_threads_gives_their_time_to_the_process():
    rows = [("main", 7, 7, 0, 1, ["f"], 1, 1), ("pool", 7, 8, 0, 2, ["f"], 2, 1), ("other", 9, 9, 0, 3, ["f"], 4, 1)]
    merged = build_profile(rows).merge_threads()
    assert merged.column("threads", "tid").tolist() == [7, 9]
    assert merged.column("threads", "comm") == ["main", "other"]
    assert merged.tree(root="thread").total_value.tolist() == merged.tree(root="process").total_value.tolist()


def test_compacting_leaves_nothing_of_what_is_not_shown():
    rows = [("app", 7, 7, 0, 1, ["main", "i:x", "k:read"], 1, 1), ("secret", 9, 9, 0, 2, ["hidden", "?liby.so"], 2, 1)]
    left = build_profile(rows).filter(pids=[7]).compact()
    assert left.column("processes", "comm") == ["app"]
    assert left.column("functions", "name") == ["main", "x", "read"]
    assert left.column("objects", "path") == ["/usr/bin/app", "[kernel]"]
    assert left.table("mappings").num_rows == 2
    assert left.table("stacks").num_rows == 3
    assert stack_of(left) == ["main", "x", "read"]


@repeatable
@given(profiles())
def test_equal_stacks_have_equal_hashes_whatever_was_done_in_between(profile):
    def hashes(one):
        return dict(zip(one.numbers("stacks", "hash").tolist(), one.numbers("stacks", "depth").tolist(), strict=True))

    compact = profile.compact()
    assert len(hashes(compact)) == compact.table("stacks").num_rows
    for same in (compact.invert().invert(), profile.merge(profile), profile.merge_threads().compact()):
        assert hashes(same) == hashes(compact)


@repeatable
@given(samples(), patterns)
def test_focus_and_ignore_share_the_samples_out(rows, pattern):
    paths = expected_paths(rows)
    found = {path: value for path, value in paths.items() if any(matches(pattern, name) for name in path)}
    assert paths_of(build(rows).focus(pattern)) == found
    assert paths_of(build(rows).ignore(pattern)) == paths - Counter(found)


@repeatable
@given(samples(), patterns)
def test_show_from_cuts_every_stack_at_its_first_match(rows, pattern):
    expected: Counter[tuple[str, ...]] = Counter()
    for path, value in expected_paths(rows).items():
        first = next((place for place, name in enumerate(path) if matches(pattern, name)), None)
        if first is not None:
            expected[path[first:]] += value
    assert paths_of(build(rows).show_from(pattern)) == expected


@repeatable
@given(samples())
def test_inverting_turns_every_stack_and_twice_is_as_before(rows):
    turned = build(rows).invert()
    assert paths_of(turned) == Counter({path[::-1]: value for path, value in expected_paths(rows).items()})
    assert paths_of(turned.invert()) == expected_paths(rows)
    assert not turned.invert().inverted


@repeatable
@given(samples())
def test_folding_recursion_leaves_no_function_next_to_itself(rows):
    expected: Counter[tuple[str, ...]] = Counter()
    for path, value in expected_paths(rows).items():
        folded = [name for name, following in pairwise((*path, None)) if name != following or name.startswith("[")]
        expected[tuple(folded)] += value
    assert paths_of(build(rows).collapse_recursion()) == expected


@repeatable
@given(samples())
def test_folding_recursion_of_an_inverted_profile_folds_the_same(rows):
    profile = build(rows)
    assert paths_of(profile.invert().collapse_recursion().invert()) == paths_of(profile.collapse_recursion())


@repeatable
@given(samples(), patterns)
def test_show_from_cuts_an_inverted_profile_at_its_own_root(rows, pattern):
    expected: Counter[tuple[str, ...]] = Counter()
    for path, value in expected_paths(rows).items():
        turned = path[::-1]
        first = next((place for place, name in enumerate(turned) if matches(pattern, name)), None)
        if first is not None:
            expected[turned[first:]] += value
    assert paths_of(build(rows).invert().show_from(pattern)) == expected


@repeatable
@given(samples())
def test_dropping_inlined_functions_drops_nothing_else(rows):
    expected: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        if row[8] == "cpu":
            expected[tuple(shown(frame) for frame in row[5] if not frame.startswith("i:"))] += row[6]
    assert paths_of(build(rows).drop_inlined()) == expected


@repeatable
@given(samples())
def test_merging_threads_and_compacting_change_no_stack(rows):
    for done in (build(rows).merge_threads(), build(rows).compact()):
        assert paths_of(done) == expected_paths(rows)


@repeatable
@given(profiles(), st.lists(st.sampled_from(sorted(TRANSFORMS)), min_size=1, max_size=3))
def test_any_transforms_one_after_the_other_leave_a_consistent_profile(profile, names):
    for name in names:
        profile = TRANSFORMS[name](profile)
    require_consistent(profile.tables)
    for event in profile.events:
        assert profile.tree(event.name).total_value[0] == profile.samples_of(event).value.sum()
