"""What other harnesses write, read: by the harnesses themselves, held against what they say of it in the same file."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from statistics import fmean

import pytest

from stackhound.bench import read_results
from support_workloads import require

GOOGLE = """
#include <benchmark/benchmark.h>
static void work(benchmark::State &state) {
    for (auto _ : state)
        benchmark::DoNotOptimize(state.range(0) * 3);
    state.SetItemsProcessed(state.iterations());
}
BENCHMARK(work)->Arg(7)->Unit(benchmark::kMicrosecond);
BENCHMARK_MAIN();
"""
PYTEST = """
def test_sum(benchmark):
    assert benchmark(sum, range(10)) == 45
"""


def run(directory, *command):
    subprocess.run(command, cwd=directory, check=True, stdout=subprocess.DEVNULL)


def test_what_hyperfine_writes_is_each_run_of_each_command(tmp_path):
    run(tmp_path, require("hyperfine"), "-N", "--runs", "3", "--export-json", "h.json", "true", "sleep 0.01")
    told = json.loads((tmp_path / "h.json").read_text())["results"]
    found = read_results(tmp_path / "h.json").benchmarks
    assert list(found) == ["true", "sleep 0.01"]
    for one in told:
        measures = found[one["command"]]
        assert len(measures["wall"]) == 3
        assert fmean(measures["wall"]) == pytest.approx(1e9 * one["mean"])
        assert measures["cpu"] == pytest.approx([1e9 * (one["user"] + one["system"])])


def test_what_google_benchmark_writes_is_each_repetition_without_its_summaries(tmp_path):
    require("g++")
    (tmp_path / "work.cpp").write_text(GOOGLE)
    command = ("g++", "-O1", "work.cpp", "-lbenchmark", "-lpthread", "-o", "work")
    if subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip("needs libbenchmark-dev (make test installs it)")
    options = ("--benchmark_repetitions=3", "--benchmark_min_time=0.001")
    run(tmp_path, "./work", *options, "--benchmark_out=g.json", "--benchmark_out_format=json")
    told = json.loads((tmp_path / "g.json").read_text())["benchmarks"]
    (mean,) = (one for one in told if one.get("aggregate_name") == "mean")
    assert mean["time_unit"] == "us"
    found = read_results(tmp_path / "g.json").benchmarks
    assert list(found) == ["work/7"]
    assert {name: len(values) for name, values in found["work/7"].items()} == {"latency": 3, "cpu": 3, "throughput": 3}
    assert fmean(found["work/7"]["latency"]) == pytest.approx(1e3 * mean["real_time"])
    assert fmean(found["work/7"]["cpu"]) == pytest.approx(1e3 * mean["cpu_time"])


@pytest.mark.parametrize(
    ("options", "whole"),
    [(["--benchmark-json=p.json"], True), (["--benchmark-save=p"], False)],
    ids=["every round", "median"],
)
def test_what_pytest_benchmark_writes_is_every_round_or_their_median(options, whole, tmp_path):
    if importlib.util.find_spec("pytest_benchmark") is None:
        pytest.skip("needs pytest-benchmark (make test installs it)")
    (tmp_path / "test_work.py").write_text(PYTEST)
    rounds = ("--benchmark-max-time=0.01", "--benchmark-min-rounds=5")
    run(tmp_path, sys.executable, "-m", "pytest", "-q", *rounds, *options, "test_work.py")
    (path,) = tmp_path.glob("**/*p.json")
    (told,) = json.loads(path.read_text())["benchmarks"]
    ((name, measures),) = read_results(path).benchmarks.items()
    assert name == "test_work.py::test_sum"
    if whole:
        assert len(measures["latency"]) == told["stats"]["rounds"]
        assert fmean(measures["latency"]) == pytest.approx(1e9 * told["stats"]["mean"])
    else:
        assert measures["latency"] == pytest.approx([1e9 * told["stats"]["median"]])
