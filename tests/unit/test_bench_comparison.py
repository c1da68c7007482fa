"""Verdicts of simulated machines: seeded, with a clock that only the runs move."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from stackhound.bench.comparison import Duel, Side, compare_results
from stackhound.bench.configuration import Benchmark
from stackhound.bench.measures import Measure
from stackhound.bench.results import make_results
from stackhound.bench.verdicts import Control, Limits, Samples, Verdict, check_controls, judge
from stackhound.errors import BenchmarkError

RUN_S = 1.0
FIVE_MINUTES_S = 300.0


class Machine:
    """Benchmarks that take about a second each; side B is ``slowdown`` times as slow.

    Noise as on a shared virtual machine: 2% from run to run, a neighbour in one run of ten, and a slow wave.
    """

    def __init__(self, seed, slowdown=1.0, noise=0.02, measure="wall", exact=None):
        self.random = np.random.default_rng(seed)
        self.slowdown, self.noise, self.measure, self.exact = slowdown, noise, measure, exact
        self.now_s = 0.0
        self.order = []

    def clock(self):
        return self.now_s

    def run(self, benchmark, directory):
        self.now_s += RUN_S
        self.order.append(directory.name)
        factor = self.slowdown if directory.name == "b" else 1.0
        if self.exact is not None:
            return make_results({benchmark.name: {self.measure: [self.exact[directory.name]]}})
        neighbour = self.random.exponential(0.3) if self.random.random() < 0.1 else 0.0
        wave = 0.1 * math.sin(self.now_s / 40)
        value = 1e9 * factor * math.exp(self.random.normal(0, self.noise) + neighbour + wave)
        return make_results({benchmark.name: {self.measure: [value]}})


def duel(machine, names=("x",), seconds=FIVE_MINUTES_S, seed=0, **fields):
    benchmarks = tuple(Benchmark(name, ("true",), warmups=0) for name in names)
    a, b = Side(Path("a"), benchmarks), Side(Path("b"), benchmarks)
    return Duel(a, b, seconds=seconds, run=machine.run, clock=machine.clock, seed=seed, **fields)


def verdict(machine, **fields):
    (finding,) = duel(machine, **fields).compare().findings
    return finding.verdict


def test_equal_sides_raise_a_false_alarm_in_less_than_one_of_a_hundred_comparisons():
    alarms = sum(verdict(Machine(seed), seed=seed) == Verdict.REGRESSED for seed in range(200))
    assert alarms <= 2


def test_a_slowdown_of_three_percent_is_found_within_five_minutes():
    found = sum(verdict(Machine(seed, 1.03), seed=seed) == Verdict.REGRESSED for seed in range(100))
    assert found >= 95


def test_many_benchmarks_raise_no_more_alarms_than_one():
    names = [f"x{place}" for place in range(20)]
    for seed in range(5):
        assert not duel(Machine(seed), names, 20 * 60, seed).compare().having(Verdict.REGRESSED)


def test_what_got_faster_is_improved():
    assert verdict(Machine(1, 0.7)) == Verdict.IMPROVED


def test_a_higher_throughput_is_no_regression_and_a_lower_one_is():
    assert verdict(Machine(1, 1.4, measure="throughput")) == Verdict.IMPROVED
    assert verdict(Machine(1, 0.9, measure="throughput")) == Verdict.REGRESSED


def test_the_time_limit_is_kept_and_the_answer_is_then_that_there_is_none():
    machine = Machine(1, noise=0.5)
    assert verdict(machine, seconds=60.0) == Verdict.INCONCLUSIVE
    assert machine.now_s <= 60 + 4 * RUN_S


def test_a_clear_answer_ends_it_early():
    machine = Machine(1, slowdown=2.0)
    assert verdict(machine) == Verdict.REGRESSED
    assert machine.now_s <= 50 * RUN_S


def test_sides_take_turns_each_first_as_often_as_chance_has_it():
    machine = Machine(1)
    duel(machine).compare()
    blocks = ["".join(machine.order[at : at + 4]) for at in range(0, len(machine.order), 4)]
    assert set(blocks) == {"abba", "baab"}


def test_one_slow_spell_is_not_confirmed():
    """B is slow only while the suspicion arises."""
    machine = Machine(3, slowdown=1.3, noise=0.01)
    honest = machine.run

    def run(benchmark, directory):
        if machine.now_s > 20:
            machine.slowdown = 1.0
        return honest(benchmark, directory)

    machine.run = run
    assert verdict(machine) == Verdict.NOT_WORSE


class JumpingMachine(Machine):
    """One whose frequency jumps: from the second ``jumps[n]`` on, everything takes ``factors[n]`` times as long.

    A run in whose middle it jumps takes the mean of both.
    """

    def __init__(self, seed, jumps, factors, slowdown=1.0):
        super().__init__(seed, slowdown)
        self.jumps, self.factors = np.array([0.0, *jumps]), np.array([1.0, *factors])

    def run(self, benchmark, directory):
        begin_s = self.now_s
        results = super().run(benchmark, directory)
        ends = np.clip([*self.jumps[1:], math.inf], begin_s, self.now_s)
        shares = np.diff([begin_s, *ends]) / RUN_S
        (values,) = results.benchmarks[benchmark.name].values()
        values[0] *= float(shares @ self.factors)
        return results


def jump_once(seed):
    """While the first answer is looked for: up or down, in the middle of a run of either side."""
    random = np.random.default_rng(seed)
    return [random.uniform(2, 40)], [random.choice([0.6, 0.8, 1.3, 2.0])]


def jump_often(seed):
    """Every few seconds, as a machine does that is too hot, or whose neighbours come and go."""
    times = np.cumsum(np.random.default_rng(seed).exponential(5, 100))
    return times, np.resize([1.3, 1.0], len(times))


@pytest.mark.parametrize("jump", [jump_once, jump_often])
def test_a_frequency_that_jumps_is_no_regression(jump):
    found = [verdict(JumpingMachine(seed, *jump(seed)), seed=seed) for seed in range(30)]
    assert Verdict.REGRESSED not in found


@pytest.mark.parametrize("jump", [jump_once, jump_often])
def test_a_frequency_that_jumps_hides_no_regression(jump):
    found = {verdict(JumpingMachine(seed, *jump(seed), 1.05), seed=seed) for seed in range(30)}
    assert found <= {Verdict.REGRESSED, Verdict.INCONCLUSIVE}


@pytest.mark.parametrize(("slowdown", "wanted"), [(1.0, Verdict.NOT_WORSE), (1.1, Verdict.REGRESSED)])
@pytest.mark.parametrize("leaping", ["a", "b"])
def test_a_clock_that_leaps_by_an_hour_in_one_run_changes_no_answer(leaping, slowdown, wanted):
    machine = Machine(1, slowdown, noise=0.01)
    honest = machine.run
    leaps = [3.6e12]

    def run(benchmark, directory):
        results = honest(benchmark, directory)
        if machine.now_s > 5 and directory.name == leaping and leaps:
            results.benchmarks[benchmark.name]["wall"][0] += leaps.pop()
        return results

    machine.run = run
    assert verdict(machine) == wanted
    assert not leaps


@pytest.mark.parametrize(("measure", "more"), [("instructions", 1), ("allocations", 1), ("allocated", 16)])
def test_one_more_of_a_count_that_never_varies_is_always_found(measure, more):
    machine = Machine(1, measure=measure, exact={"a": 1_000_000.0, "b": 1_000_000.0 + more})
    (finding,) = duel(machine).compare().findings
    assert finding.verdict == Verdict.REGRESSED
    assert finding.exact
    less = Machine(1, measure=measure, exact={"a": 1_000_000.0 + more, "b": 1_000_000.0})
    assert verdict(less) == Verdict.IMPROVED


def test_a_count_may_grow_by_the_share_that_its_measure_tolerates():
    def found(more):
        samples = {("x", "allocations"): Samples([1000.0], [1000.0 + more])}
        measure = Measure("allocations", "count", exact=True, tolerance=0.01)
        return judge(samples, {"allocations": measure}, Limits())["x", "allocations"].verdict

    assert [found(10), found(11), found(-10), found(-11)] == [
        Verdict.NOT_WORSE,
        Verdict.REGRESSED,
        Verdict.NOT_WORSE,
        Verdict.IMPROVED,
    ]


def test_a_count_that_never_varies_takes_four_runs_and_one_that_does_more():
    machine = Machine(1, measure="allocations", exact={"a": 5.0, "b": 5.0})
    assert verdict(machine) == Verdict.NOT_WORSE
    assert len(machine.order) == 4
    undeclared = Machine(1, measure="callgrind-instructions", exact={"a": 5.0, "b": 5.0})
    assert verdict(undeclared) == Verdict.NOT_WORSE
    assert len(undeclared.order) == 12  # until each side has five values or more


def test_counts_that_are_zero_on_both_sides_are_equal():
    assert verdict(Machine(1, measure="allocations", exact={"a": 0.0, "b": 0.0})) == Verdict.NOT_WORSE
    assert verdict(Machine(1, measure="allocations", exact={"a": 0.0, "b": 1.0})) == Verdict.REGRESSED


def test_differences_below_the_measures_floor_are_none():
    values = [1e6 + place for place in range(20)]
    samples = {("x", "wall"): Samples(values, [value + 5000 for value in values])}
    coarse = Limits(tolerance=0.001, detect=0.002)
    assert judge(samples, {"wall": Measure("wall", "ns", floor=1e4)}, coarse)["x", "wall"].verdict == Verdict.NOT_WORSE
    assert judge(samples, {"wall": Measure("wall", "ns")}, coarse)["x", "wall"].verdict == Verdict.REGRESSED


def test_a_measure_that_is_zero_at_times_has_no_ratio():
    samples = {("x", "faults"): Samples([0.0, 1.0] * 10, [1.0, 2.0] * 10)}
    with pytest.raises(BenchmarkError, match="is 0 in some runs"):
        judge(samples, {"faults": Measure("faults", "count")}, Limits())


def controls(ratio, noise, count=40):
    random = np.random.default_rng(5)
    pairs = [(1e6, 1e6 * ratio * math.exp(random.normal(0, noise))) for _ in range(count)]
    ((control, _),) = check_controls({("x", "wall"): Samples(control=pairs)}, Limits()).values()
    return control


def test_a_machine_is_steady_noisy_or_biased():
    assert controls(1.0, 0.02) == Control.STEADY
    assert controls(1.0, 0.3) == Control.NOISY
    assert controls(1.1, 0.02) == Control.BIASED


def test_a_benchmark_that_only_one_side_has_is_no_comparison():
    machine = Machine(1)
    honest = machine.run
    machine.run = lambda benchmark, directory: honest(Benchmark(benchmark.name + directory.name, ("true",)), directory)
    with pytest.raises(BenchmarkError, match="is in one side alone"):
        duel(machine).compare()


def test_a_measure_that_not_every_run_has_is_left_out_and_said():
    machine = Machine(1, noise=0.001)
    honest = machine.run

    def run(benchmark, directory):
        results = honest(benchmark, directory)
        if len(machine.order) % 2:
            results.benchmarks[benchmark.name]["peak-memory"] = [1e7]
        return make_results(results.benchmarks)

    machine.run = run
    found = duel(machine).compare()
    assert [finding.measure.name for finding in found.findings] == ["wall"]
    assert found.notes == ["peak-memory of x was left out: not every run has it"]


def results_of(seed, slowdown=1.0, count=60):
    values = 1e9 * slowdown * np.exp(np.random.default_rng(seed).normal(0, 0.02, count))
    return make_results({"x": {"wall": values.tolist()}})


def test_files_are_compared_by_all_their_values():
    def compared(b):
        (finding,) = compare_results(results_of(1), b, Limits()).findings
        return finding.verdict

    assert compared(results_of(2)) == Verdict.NOT_WORSE
    assert compared(results_of(2, 1.05)) == Verdict.REGRESSED
    assert compared(results_of(2, 0.9)) == Verdict.IMPROVED
    assert compared(results_of(2, 2.0, count=3)) == Verdict.INCONCLUSIVE


def test_a_benchmark_that_vanished_from_a_file_is_told():
    with pytest.raises(BenchmarkError, match="benchmark 'x' is missing"):
        compare_results(results_of(1), make_results({"y": {"wall": [1.0]}}), Limits())
