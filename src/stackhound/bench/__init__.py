"""Continuous benchmarking: run benchmarks, compare two builds, gate on regressions, keep a history.

Every number has a measure with its unit and direction; every verdict has an interval, and says when it cannot tell.
"""

from stackhound.bench.adapters import read_results, write_bmf
from stackhound.bench.configuration import Benchmark, Configuration, read_configuration
from stackhound.bench.measures import Measure
from stackhound.bench.results import Results
from stackhound.bench.runner import run_all, run_once

__all__ = [
    "Benchmark",
    "Configuration",
    "Measure",
    "Results",
    "read_configuration",
    "read_results",
    "run_all",
    "run_once",
    "write_bmf",
]
