"""Bounds on new values: by hand, by their laws, and by how often they are crossed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackhound.bench.thresholds import BY_PROBABILITY, TESTS, Threshold, find_bounds

EARLIER = [100.0, 102.0, 98.0, 101.0, 99.0]  # mean 100, s² = 2.5
S = math.sqrt(2.5)


@pytest.mark.parametrize(
    ("test", "bound", "low", "high"),
    [
        ("static", 120.0, 120.0, 120.0),
        ("percentage", 0.1, 90.0, 110.0),
        ("z-score", 0.975, 100 - 1.959964 * S, 100 + 1.959964 * S),
        ("t-test", 0.975, 100 - 2.776445 * S * math.sqrt(1.2), 100 + 2.776445 * S * math.sqrt(1.2)),
        ("iqr", 1.5, 100 - 1.5 * 2, 100 + 1.5 * 2),
    ],
)
def test_bounds_are_what_they_are_by_hand(test, bound, low, high):
    found = find_bounds(Threshold("wall", test, lower=bound, upper=bound), EARLIER)
    assert found == pytest.approx((low, high), rel=1e-6)


def test_log_normal_bounds_multiply_where_a_z_scores_add():
    found = find_bounds(Threshold("wall", "log-normal", 0.975, 0.975), [1.0, 10.0, 100.0, 10.0, 10.0])
    spread = 1.959964 * math.log(10) / math.sqrt(2)
    assert found == pytest.approx((10 * math.exp(-spread), 10 * math.exp(spread)), rel=1e-6)


def test_a_delta_iqr_follows_how_much_neighbours_differ():
    found = find_bounds(Threshold("wall", "delta-iqr", 1.0, 1.0), [100.0, 110.0, 99.0, 108.9, 98.01])  # ±10% each
    assert found == pytest.approx((100 * (1 - 0.2), 100 * (1 + 0.2)), rel=0.02)


def allowed(test):
    return st.floats(0.5, 0.999) if test in BY_PROBABILITY else st.floats(0, 10)


VALUES = st.lists(st.floats(1, 1e6), min_size=5, max_size=20)


@given(st.data(), st.sampled_from(sorted(TESTS)), VALUES)
def test_a_wider_threshold_never_refuses_what_a_narrower_one_allows(data, test, values):
    narrow, wide = sorted((data.draw(allowed(test)), data.draw(allowed(test))))
    one, other = (find_bounds(Threshold("wall", test, bound, bound), values) for bound in (narrow, wide))
    slack = 1e-6 * max(map(abs, (*one, *other)))
    assert other.low <= one.low + slack
    assert one.high <= other.high + slack


@given(st.data(), st.sampled_from(sorted(set(TESTS) - {"percentage"})), st.floats(1, 1e12))
def test_what_never_varied_may_not_change_and_may_stay(data, test, value):
    bound = data.draw(allowed(test))
    bounds = find_bounds(Threshold("wall", test, bound, bound), [value] * 10)
    assert bounds.hold(value)
    assert not bounds.hold(value * 1.0001)
    assert not bounds.hold(value * 0.9999)


@pytest.mark.parametrize("test", sorted(TESTS))
def test_too_few_values_have_no_bounds(test):
    threshold = Threshold("wall", test, upper=0.9, min_values=1)
    assert find_bounds(threshold._replace(min_values=6), EARLIER) is None
    assert find_bounds(threshold, []) is None


def test_only_the_newest_values_count():
    threshold = Threshold("wall", "percentage", upper=0.1, max_values=5)
    assert find_bounds(threshold, [1e9] * 20 + EARLIER).high == pytest.approx(110.0)


def test_a_t_test_of_99_percent_is_crossed_by_one_equal_run_in_a_hundred():
    random = np.random.default_rng(11)
    threshold = Threshold("wall", "t-test", upper=0.99, max_values=10)
    crossed = 0
    for _ in range(3000):
        values = random.normal(100, 5, 11).tolist()
        crossed += not find_bounds(threshold, values[:10]).hold(values[10])
    assert 15 <= crossed <= 45
