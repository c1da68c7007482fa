"""What benchmarks gave: every value of every run, with the machine and the commit, as a JSON file.

{"stackhound_bench": 1, "time": "2026-11-22T03:00:00+00:00", "host": {"name": …, "cpu": …, "kernel": …},
 "commit": "b7cddf3…", "branch": "main",
 "measures": {"wall": {"unit": "nanoseconds", "better": "lower", "floor": 10000.0, "exact": false}},
 "benchmarks": {"parse": {"wall": [1203344.0, 1210021.0]}}}
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import orjson

from stackhound.bench.measures import Measure, check_values, known_measure
from stackhound.errors import BenchmarkError, reason_of

VERSION: Final = 1
KEY: Final = "stackhound_bench"
#: A file larger than this is no result of benchmarks.
MAX_BYTES: Final = 1 << 28

#: Values of each measure of each benchmark.
Values = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Results:
    """Values of one or more runs.

    Attributes:
        benchmarks: values by benchmark and measure.
        measures: those of ``benchmarks``, by name.
        host: what tells machines apart: ``name``, ``cpu``, ``cpus``, ``kernel``.
        commit, branch: of the working directory's repository; empty without one.
        time: when, ISO 8601 with its zone; empty where it is not known.
    """

    benchmarks: Values
    measures: dict[str, Measure]
    host: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    branch: str = ""
    time: str = ""

    def to_json(self) -> bytes:
        """As drawn above."""
        document = {
            KEY: VERSION,
            "time": self.time,
            "host": self.host,
            "commit": self.commit,
            "branch": self.branch,
            "measures": {name: _without_name(one) for name, one in self.measures.items()},
            "benchmarks": self.benchmarks,
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def make_results(benchmarks: Values, measures: dict[str, Measure] | None = None) -> Results:
    """Results with what the tables say of their measures: ``measures``, else what is known by name."""
    named = sorted({measure for values in benchmarks.values() for measure in values})
    return Results(benchmarks, {name: (measures or {}).get(name) or known_measure(name) for name in named})


def read_document(path: Path) -> Any:  # noqa: ANN401 - whatever JSON it holds
    """The JSON in a file.

    Raises:
        BenchmarkError: it cannot be read, or is none.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BenchmarkError(f"{path} is too large for results", f"at most {MAX_BYTES >> 20} MiB are read")
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise BenchmarkError(f"cannot read {path}: {reason_of(error)}") from error
    except orjson.JSONDecodeError as error:
        raise BenchmarkError(f"{path} is no JSON: {error}", "it may be cut off: run the benchmarks again") from error


def parse_results(document: dict[str, Any], source: str) -> Results:
    """Results out of the JSON that `Results.to_json` writes.

    Raises:
        BenchmarkError: it is damaged, or a later version wrote it.
    """
    if document[KEY] != VERSION:
        raise BenchmarkError(f"{source} has version {document[KEY]!r:.20}", f"this stackhound reads {VERSION}")
    try:
        measures = {name: Measure(name, **fields) for name, fields in document["measures"].items()}
        benchmarks = {
            name: {measure: check_values(name, measure, found) for measure, found in values.items()}
            for name, values in document["benchmarks"].items()
        }
        host = {str(name): str(value) for name, value in document["host"].items()}
        texts = {name: str(document[name]) for name in ("commit", "branch", "time")}
    except (KeyError, TypeError, AttributeError) as error:
        raise BenchmarkError(f"{source} is damaged: {error!r}", "run the benchmarks again") from error
    missing = {measure for values in benchmarks.values() for measure in values} - measures.keys()
    if missing or not all(one.better in {"lower", "higher"} for one in measures.values()):
        raise BenchmarkError(f"{source} is damaged: it does not describe its measures", "run the benchmarks again")
    return Results(benchmarks, measures, host, **texts)


def describe_host() -> dict[str, str]:
    """What tells this machine from others."""
    system = os.uname()
    return {"name": system.nodename, "cpu": _cpu_name(), "cpus": str(os.cpu_count() or 0), "kernel": system.release}


def describe_commit(directory: Path) -> tuple[str, str]:
    """The commit, with ``+`` where files differ from it, and the branch; empty without git or a repository."""
    commit = _git(directory, "rev-parse", "HEAD")
    changed = "+" if commit and _git(directory, "status", "--porcelain", "--untracked-files=no") else ""
    return commit + changed, _git(directory, "rev-parse", "--abbrev-ref", "HEAD")


def now() -> str:
    """The time, as results have it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _git(directory: Path, *arguments: str) -> str:
    try:
        run = subprocess.run(("git", *arguments), cwd=directory, capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def _without_name(measure: Measure) -> dict[str, object]:
    fields: dict[str, object] = measure._asdict()
    del fields["name"]
    return fields
