"""Statistics against tables, against their definitions, and on what nobody expects."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackhound.bench.statistics import holm, paired_ratio, rank_sum_p, signed_rank_p, t_quantile, unpaired_ratio

POSITIVE = st.floats(1e-3, 1e12)
TAILS = (0.005, 0.005)
PAIRS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    [  # Student's own table, as every textbook prints it
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.95, 4, 2.132),
        (0.99, 5, 3.365),
        (0.995, 10, 3.169),
        (0.9, 29, 1.311),
        (0.975, 120, 1.980),
        (0.01, 5, -3.365),
        (0.5, 7, 0.0),
    ],
)
def test_quantiles_of_students_t_are_those_of_the_table(probability, degrees, value):
    assert t_quantile(probability, degrees) == pytest.approx(value, abs=6e-4)


@given(PAIRS, st.floats(0.01, 100))
def test_a_ratio_lies_within_its_interval_and_follows_the_scale(pairs, scale):
    a, b = zip(*pairs, strict=True)
    one = paired_ratio(a, b, TAILS)
    assert one.low <= one.value <= one.high
    scaled = paired_ratio(a, [scale * value for value in b], TAILS)
    assert scaled.value == pytest.approx(scale * one.value, rel=1e-6)
    assert scaled.high == pytest.approx(scale * one.high, rel=1e-6)


@given(PAIRS)
def test_the_ratio_the_other_way_round_is_its_inverse(pairs):
    a, b = zip(*pairs, strict=True)
    assert paired_ratio(b, a, TAILS).value == pytest.approx(1 / paired_ratio(a, b, TAILS).value, rel=1e-9)


@given(st.lists(POSITIVE, min_size=1, max_size=20), st.floats(0.01, 100))
def test_values_that_do_not_vary_have_their_ratio_for_certain(values, ratio):
    found = paired_ratio(values, [ratio * value for value in values], TAILS)
    assert found == pytest.approx((ratio, ratio, ratio), rel=1e-9)
    equal = [values[0]] * 6
    assert unpaired_ratio(equal, [ratio * one for one in equal], TAILS) == pytest.approx((ratio,) * 3, rel=1e-9)


def test_one_wild_value_in_ten_moves_the_ratio_by_little():
    a = [100.0] * 10
    b = [101.0] * 9 + [1e9]
    assert paired_ratio(a, b, TAILS).value == pytest.approx(1.01)


def exact_signed_rank_p(differences):
    """By all signs that chance could have given."""
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    got = ranks[np.array(differences) > 0].sum()
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in product((0, 1), repeat=len(ranks))
    ]
    return np.mean([one >= got for one in sums])


@pytest.mark.parametrize("seed", range(20))
def test_signed_ranks_are_never_bolder_in_the_tail_than_all_signs_counted_out(seed):
    logs = np.random.default_rng(seed).normal(0.6, 1, 10)
    approximate, exact = signed_rank_p(np.ones(10), np.exp(logs)), exact_signed_rank_p(logs)
    assert approximate == pytest.approx(exact, abs=0.01)
    if exact < 0.01:
        assert approximate >= 0.9 * exact


@given(PAIRS)
def test_worse_and_better_are_never_both_unlikely(pairs):
    a, b = zip(*pairs, strict=True)
    for test in (signed_rank_p, rank_sum_p):
        assert 0 <= test(a, b) <= 1
        assert test(a, b) + test(b, a) >= 1 - 1e-9


def test_equal_values_are_no_evidence():
    assert signed_rank_p([3.0] * 20, [3.0] * 20) == 1
    assert rank_sum_p([3.0] * 20, [3.0] * 20) == 1


def test_all_of_one_side_above_the_other_is_strong_evidence():
    a, b = [float(value) for value in range(100, 112)], [float(value) for value in range(200, 212)]
    assert rank_sum_p(a, b) < 1e-4
    assert signed_rank_p(a, b) < 2e-3
    assert signed_rank_p(a, b, ratio=3.0) > 0.99


PROBABILITIES = st.dictionaries(st.integers(), st.floats(0, 1), max_size=8)


@given(PROBABILITIES)
def test_holm_lies_between_none_and_bonferroni_and_keeps_the_order(probabilities):
    adjusted = holm(probabilities)
    for key, one in probabilities.items():
        assert one <= adjusted[key] <= min(1, one * len(probabilities)) + 1e-12
    in_order = sorted(probabilities, key=lambda key: (probabilities[key], adjusted[key]))
    assert [adjusted[key] for key in in_order] == sorted(adjusted.values())


def test_holm_gives_what_his_example_gives():
    assert holm({"a": 0.01, "b": 0.02, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.04, "c": 0.04})


def test_an_interval_of_99_percent_misses_the_truth_in_about_one_of_a_hundred():
    generator = np.random.default_rng(7)
    missed = 0
    for _ in range(400):
        b = np.exp(generator.normal(math.log(1.02), 0.05, 30))
        interval = paired_ratio(np.ones(30), b, TAILS)
        missed += not interval.low <= 1.02 <= interval.high
    assert missed <= 16  # the bootstrap of 30 values is a little short
