"""Where a series of values changed for good."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackhound.bench.changes import LEAST, MOST, find_changes


def noisy(*levels, noise=0.02, seed=1):
    """So many values of each level, in order."""
    random = np.random.default_rng(seed)
    return [level * float(np.exp(random.normal(0, noise))) for count, level in levels for _ in range(count)]


def places(values):
    return [change.at for change in find_changes(values)]


def test_a_step_is_found_where_it_is():
    (change,) = find_changes(noisy((20, 100), (20, 110)))
    assert change.at == 20
    assert (change.before, change.after) == (pytest.approx(100, rel=0.02), pytest.approx(110, rel=0.02))
    assert change.probability <= 0.01


def test_several_steps_are_found_in_their_order():
    assert places(noisy((20, 100), (15, 130), (20, 90))) == [20, 35]


def test_counts_without_noise_are_no_trap():
    assert places([5.0] * 30) == []
    assert places([5.0] * 10 + [6.0] * 10) == [10]
    assert places([0.0] * 10 + [1.0] * 10) == [10]


def test_series_that_do_not_change_are_seldom_said_to():
    alarms = sum(bool(places(noisy((40, 100), seed=seed))) for seed in range(100))
    assert alarms <= 4


def test_one_value_that_is_off_is_no_change():
    values = noisy((30, 100))
    values[15] *= 3
    assert places(values) == []


def test_too_few_values_say_nothing():
    assert places([]) == []
    assert places([1.0]) == []
    assert places([1.0] * LEAST + [2.0] * (LEAST - 1)) == []


def test_of_a_long_series_the_newest_values_are_looked_at():
    values = noisy((MOST, 50), (MOST // 2, 100), (MOST // 2, 120))
    assert places(values) == [MOST + MOST // 2]


@given(st.lists(st.floats(0, 1e12), max_size=40))
def test_any_series_has_ordered_changes_with_values_between_them(values):
    found = places(values)
    ends = [0, *found, len(values)]
    assert found == sorted(set(found))
    assert not found or min(np.diff(ends)) >= LEAST
    assert places(values) == found
