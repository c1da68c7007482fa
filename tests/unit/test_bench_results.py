"""Results of ours and of other harnesses."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stackhound.bench import read_results, write_bmf
from stackhound.bench.results import make_results, parse_results
from stackhound.errors import BenchmarkError

HYPERFINE = {
    "results": [
        {"command": "sleep 1", "times": [1.0, 1.1], "mean": 1.05, "user": 0.001, "system": 0.002, "exit_codes": [0, 0]}
    ]
}
PYTEST = {
    "benchmarks": [
        {"fullname": "tests/test_a.py::test_one", "stats": {"median": 0.001, "data": [0.001, 0.002]}},
        {"fullname": "tests/test_a.py::test_two", "stats": {"median": 0.5}},
    ]
}
GOOGLE = {
    "context": {},
    "benchmarks": [
        {
            "name": "BM_a",
            "run_name": "BM_a",
            "run_type": "iteration",
            "real_time": 1.5,
            "cpu_time": 1.0,
            "time_unit": "us",
        },
        {
            "name": "BM_a",
            "run_name": "BM_a",
            "run_type": "iteration",
            "real_time": 2.5,
            "cpu_time": 1.0,
            "time_unit": "us",
        },
        {"name": "BM_a_mean", "run_name": "BM_a", "run_type": "aggregate", "real_time": 2.0, "cpu_time": 1.0},
        {"name": "BM_b", "real_time": 7, "cpu_time": 6, "time_unit": "ns", "items_per_second": 5.0},
    ],
}
BMF = {"parse": {"latency": {"value": 3.5, "lower_value": 3}, "throughput": {"value": 7}}}


def read(tmp_path, document):
    path = tmp_path / "results.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return read_results(path)


@pytest.mark.parametrize(
    ("document", "values"),
    [
        (HYPERFINE, {"sleep 1": {"wall": [1e9, 1.1e9], "cpu": [3e6]}}),
        (
            PYTEST,
            {"tests/test_a.py::test_one": {"latency": [1e6, 2e6]}, "tests/test_a.py::test_two": {"latency": [5e8]}},
        ),
        (
            GOOGLE,
            {
                "BM_a": {"latency": [1500.0, 2500.0], "cpu": [1000.0, 1000.0]},
                "BM_b": {"latency": [7.0], "cpu": [6.0], "throughput": [5.0]},
            },
        ),
        (BMF, {"parse": {"latency": [3.5], "throughput": [7.0]}}),
    ],
    ids=["hyperfine", "pytest", "google", "bmf"],
)
def test_results_of_other_harnesses_are_known_by_their_shape(document, values, tmp_path):
    found = read(tmp_path, document).benchmarks
    assert found.keys() == values.keys()
    for name, measures in values.items():
        assert found[name].keys() == measures.keys()
        for measure, numbers in measures.items():
            assert found[name][measure] == pytest.approx(numbers)


def test_what_criterion_measured_is_each_samples_time_by_its_iterations(tmp_path):
    new = tmp_path / "group" / "parse" / "new"
    new.mkdir(parents=True)
    (new / "sample.json").write_text(json.dumps({"iters": [10.0, 20.0], "times": [1000.0, 3000.0]}))
    (new / "benchmark.json").write_text(json.dumps({"full_id": "group/parse"}))
    assert read_results(tmp_path).benchmarks == {"group/parse": {"latency": [100.0, 150.0]}}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ("", "is no JSON"),
        ('{"a": {"b": {"value": 1', "is no JSON"),
        ([1, 2], "no results that are known"),
        ({}, "no benchmark in it"),
        ({"a": {"b": {"valve": 1}}}, "no results that are known"),
        ({"a": {"b": {"value": "fast"}}}, "b is 'fast'"),
        ({"a": {"b": {"value": -1}}}, "b is -1"),
        ({"a": {"b": {"value": None}}}, "b is None"),
        ({"a": {"b": {"value": True}}}, "b is True"),
        ({"results": [HYPERFINE["results"][0] | {"exit_codes": [0, 1]}]}, "'sleep 1' failed"),
        ({"results": [{"command": "a"}]}, "is damaged"),
        ({"results": [HYPERFINE["results"][0] | {"times": 3}]}, "is damaged"),
        ({"benchmarks": [{"name": "BM_a", "error_occurred": True, "error_message": "no"}]}, "'BM_a' failed: 'no'"),
        ({"benchmarks": [GOOGLE["benchmarks"][3] | {"time_unit": "weeks"}]}, "is damaged"),
    ],
)
def test_nonsense_is_refused_in_one_line(document, told, tmp_path):
    with pytest.raises(BenchmarkError) as error:
        read(tmp_path, document)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_directory_without_results_is_refused(tmp_path):
    with pytest.raises(BenchmarkError, match="no benchmark in it"):
        read_results(tmp_path)


VALUES = st.lists(st.floats(0, 1e18), min_size=1, max_size=5)
BENCHMARKS = st.dictionaries(st.text(max_size=8), st.dictionaries(st.text(max_size=8), VALUES, max_size=3), max_size=3)


@given(BENCHMARKS)
def test_results_are_read_as_they_were_written(benchmarks):
    results = make_results(benchmarks)
    assert parse_results(json.loads(results.to_json()), "a") == results


def own(**changed):
    return json.loads(make_results({"a": {"wall": [1.0]}}).to_json()) | changed


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (own(stackhound_bench=2), "has version 2"),
        (own(measures={}), "does not describe its measures"),
        (own(measures={"wall": {"unit": "ns", "better": "more"}}), "does not describe its measures"),
        (own(measures={"wall": {"weight": 3}}), "is damaged"),
        (own(benchmarks=[]), "is damaged"),
        (own(benchmarks={"a": {"wall": []}}), "wall has no value"),
        (own(host=None), "is damaged"),
    ],
)
def test_a_damaged_or_newer_file_of_ours_is_refused(document, told, tmp_path):
    with pytest.raises(BenchmarkError, match=told):
        read(tmp_path, document)


@given(st.lists(st.floats(0, allow_infinity=False), min_size=1, max_size=5))
def test_bencher_gets_the_median_between_the_bounds(values):
    metric = write_bmf(make_results({"a": {"wall": values}}))["a"]["wall"]
    assert all(math.isfinite(number) for number in metric.values())
    assert metric.get("lower_value", -math.inf) <= metric["value"] <= metric.get("upper_value", math.inf)
    assert ("lower_value" in metric) == (len(values) > 1)


def test_what_bencher_reads_is_read_back(tmp_path):
    metrics = write_bmf(make_results({"a": {"latency": [1.0, 2.0, 6.0]}}))
    assert read(tmp_path, metrics).benchmarks == {"a": {"latency": [2.0]}}


@pytest.mark.parametrize(
    ("benchmark", "measure", "told"),
    [
        ("b" * 1025, "wall", "benchmark 'bbb"),
        ("", "wall", "benchmark ''"),
        ("b", "m" * 65, "measure 'mmm"),
        ("b", "", "measure ''"),
    ],
)
def test_a_name_that_bencher_refuses_is_told_before_it_does(benchmark, measure, told):
    with pytest.raises(BenchmarkError) as error:
        write_bmf(make_results({benchmark: {measure: [1.0]}}))
    assert str(error.value).startswith(told)
    assert len(str(error.value)) < 200


def test_names_as_long_as_bencher_takes_them_are_written():
    assert write_bmf(make_results({"ü" * 1024: {"m" * 64: [1.0]}})) == {"ü" * 1024: {"m" * 64: {"value": 1.0}}}
