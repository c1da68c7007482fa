"""Results of other benchmark harnesses, known by their shape.

criterion is the directory ``target/criterion``, the others are JSON files: Bencher's Metric Format (BMF),
pytest-benchmark, hyperfine, Google Benchmark. Times become nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from stackhound.bench.measures import check_values
from stackhound.bench.results import KEY, Results, Values, make_results, parse_results, read_document
from stackhound.errors import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}

#: The longest names that Bencher takes.
BENCHER_BENCHMARK_CHARACTERS: Final = 1024
BENCHER_MEASURE_CHARACTERS: Final = 64

Found = dict[str, dict[str, list[object]]]


def read_results(path: Path) -> Results:
    """Read results of ours, or of another harness.

    Raises:
        BenchmarkError: it cannot be read, holds no results, or says that a benchmark failed.
    """
    if path.is_dir():
        return _checked(_read_criterion(path), path)
    document = read_document(path)
    if isinstance(document, dict) and KEY in document:
        return parse_results(document, str(path))
    for is_it, read in _SHAPES:
        try:
            if is_it(document):
                return _checked(read(document), path)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise BenchmarkError(f"{path} is damaged: {error!r}", "run its benchmarks again") from error
    raise BenchmarkError(
        f"{path} has no results that are known",
        "give those of stackhound bench run, BMF, criterion, pytest-benchmark, hyperfine or Google Benchmark",
    )


def write_bmf(results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """Results as Bencher reads them: the median of each measure, with the lowest and highest value.

    Source: https://bencher.dev/docs/reference/bencher-metric-format/

    Raises:
        BenchmarkError: Bencher would refuse a name.
    """
    for kind, names, most in (
        ("benchmark", results.benchmarks, BENCHER_BENCHMARK_CHARACTERS),
        ("measure", results.measures, BENCHER_MEASURE_CHARACTERS),
    ):
        if wrong := [name for name in names if not 0 < len(name) <= most]:
            what = f"{kind} {wrong[0]!r:.40} has a name of {len(wrong[0])} characters"
            raise BenchmarkError(what, f"Bencher takes 1 to {most}: call it something else")
    return {
        benchmark: {measure: _as_metric(values) for measure, values in measures.items()}
        for benchmark, measures in results.benchmarks.items()
    }


def _as_metric(values: list[float]) -> dict[str, float]:
    bounds = {"lower_value": min(values), "upper_value": max(values)} if len(values) > 1 else {}
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return {"value": low + (high - low) / 2, **bounds}  # the sum of two may be no number


def _checked(found: Found, path: Path) -> Results:
    values: Values = {
        name: {measure: check_values(name, measure, numbers) for measure, numbers in measures.items()}
        for name, measures in found.items()
    }
    if not values:
        raise BenchmarkError(f"{path} has no benchmark in it", "see that its harness ran some")
    return make_results(values)


def _read_bmf(document: dict[str, Any]) -> Found:
    return {
        benchmark: {measure: [metric["value"]] for measure, metric in measures.items()}
        for benchmark, measures in document.items()
    }


def _read_hyperfine(document: dict[str, Any]) -> Found:
    found: Found = {}
    for run in document["results"]:
        if any(run.get("exit_codes") or ()):
            raise BenchmarkError(f"benchmark {run['command']!r:.80} failed", "hyperfine ran it with --ignore-failure")
        measures: dict[str, list[object]] = {"wall": [1e9 * value for value in run.get("times") or [run["mean"]]]}
        measures["cpu"] = [1e9 * (run["user"] + run["system"])]
        if run.get("memory_usage_byte"):
            measures["peak-memory"] = run["memory_usage_byte"]
        found[run["command"]] = measures
    return found


def _read_pytest(document: dict[str, Any]) -> Found:
    """Rounds where they were written (``--benchmark-json``, ``--benchmark-save-data``), else their median."""
    return {
        run["fullname"]: {"latency": [1e9 * value for value in run["stats"].get("data") or [run["stats"]["median"]]]}
        for run in document["benchmarks"]
    }


def _read_google(document: dict[str, Any]) -> Found:
    found: defaultdict[str, defaultdict[str, list[object]]] = defaultdict(lambda: defaultdict(list))
    for run in document["benchmarks"]:
        if run.get("error_occurred"):
            raise BenchmarkError(f"benchmark {run['name']!r:.80} failed: {run.get('error_message', '')!r:.80}")
        if run.get("run_type", "iteration") != "iteration":
            continue  # a mean or deviation of the others
        measures = found[run.get("run_name", run["name"])]
        scale = NS[run.get("time_unit", "ns")]
        measures["latency"].append(scale * run["real_time"])
        measures["cpu"].append(scale * run["cpu_time"])
        if "items_per_second" in run:
            measures["throughput"].append(run["items_per_second"])
    return {name: dict(measures) for name, measures in found.items()}


def _read_criterion(directory: Path) -> Found:
    """Samples of the last run: ``**/new/sample.json``, beside ``benchmark.json`` with the name."""
    found: Found = {}
    for path in sorted(directory.glob("**/new/sample.json")):
        try:
            sample, benchmark = read_document(path), read_document(path.with_name("benchmark.json"))
            pairs = zip(sample["times"], sample["iters"], strict=True)
            found[benchmark["full_id"]] = {"latency": [time_ns / iterations for time_ns, iterations in pairs]}
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise BenchmarkError(f"{path} is damaged: {error!r}", "run cargo bench again") from error
    return found


def _is_bmf(document: Any) -> bool:  # noqa: ANN401 - whatever JSON it is
    return isinstance(document, dict) and all(
        isinstance(measures, dict)
        and all(isinstance(metric, dict) and "value" in metric for metric in measures.values())
        for measures in document.values()
    )


def _has_entry(document: Any, key: str, field: str) -> bool:  # noqa: ANN401
    entries = document.get(key) if isinstance(document, dict) else None
    return isinstance(entries, list) and bool(entries) and isinstance(entries[0], dict) and field in entries[0]


_SHAPES: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], Found]], ...]] = (
    (lambda document: _has_entry(document, "results", "command"), _read_hyperfine),
    (lambda document: _has_entry(document, "benchmarks", "stats"), _read_pytest),
    (lambda document: _has_entry(document, "benchmarks", "real_time"), _read_google),
    (lambda document: _has_entry(document, "benchmarks", "error_occurred"), _read_google),
    (_is_bmf, _read_bmf),
)
