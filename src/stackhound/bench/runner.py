"""One run of a benchmark: a command, a function in a Python of its own, a BPF program, or another harness."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from stackhound.bench import caller, launcher, valgrind
from stackhound.bench.adapters import read_results
from stackhound.bench.configuration import STDOUT
from stackhound.bench.measures import check_values
from stackhound.bench.results import Results, Values, describe_commit, describe_host, make_results, now, read_document
from stackhound.errors import BenchmarkError, UsageError, reason_of
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stackhound.bench.configuration import Benchmark, Configuration

#: Of the stderr of a run that failed.
SHOWN_CHARACTERS: Final = 200
READ_BYTES: Final = 4096

COUNTED: Final = "instructions"
#: PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS (Linux include/uapi/linux/perf_event.h)
COUNTER: Final = (0, 1)


def run_all(configuration: Configuration, directory: Path, tell: Callable[[str], None]) -> Results:
    """Run each benchmark as often as it says.

    Args:
        configuration: the benchmarks.
        directory: where they run.
        tell: what is called with the name of each benchmark before it runs.

    Raises:
        BenchmarkError: one failed; there are no results then.
    """
    values: Values = {}
    for benchmark in configuration.benchmarks:
        tell(benchmark.name)
        for _ in range(benchmark.warmups):
            run_once(benchmark, directory)
        for _ in range(benchmark.runs):
            _add(values, run_once(benchmark, directory).benchmarks)
    commit, branch = describe_commit(directory)
    made = make_results(values, configuration.measures)
    return Results(made.benchmarks, made.measures, describe_host(), commit, branch, now())


def run_once(benchmark: Benchmark, directory: Path) -> Results:
    """What one run gives.

    Raises:
        BenchmarkError: it cannot be started, fails, takes too long, or gives nonsense.
    """
    found: Values
    if benchmark.bpf:
        from stackhound.bench.programs import measure_programs

        found = measure_programs(benchmark, directory)
    elif benchmark.function:
        found = {benchmark.name: _call(benchmark, directory)}
    elif benchmark.results:
        found = _run_harness(benchmark, directory)
    else:
        found = {benchmark.name: _run_command(benchmark, directory)}
    return make_results({name: _choose(benchmark, measures) for name, measures in found.items()})


def wall_time_ns(benchmark: Benchmark, command: tuple[str, ...], directory: Path) -> int:
    """How long one run of the command takes, within the benchmark's time limit.

    Raises:
        BenchmarkError: it cannot be started, fails, or takes too long.
    """
    return int(_launch(benchmark, command, directory)["wall_ns"])


def _run_command(benchmark: Benchmark, directory: Path) -> dict[str, list[float]]:
    """What is asked for: all that one run tells, and what each of valgrind's tools counts in another."""
    values: dict[str, list[float]] = {}
    if not benchmark.measures or set(benchmark.measures) - valgrind.MEASURES:
        counter = COUNTER if COUNTED in benchmark.measures else None
        values |= _as_values(benchmark, _launch(benchmark, benchmark.command, directory, counter=counter))
    for tool in valgrind.choose_tools(benchmark.measures):
        values |= _count(benchmark, tool, directory)
    return values


def _count(benchmark: Benchmark, tool: valgrind.Tool, directory: Path) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as logs:
        command = tool.wrap(benchmark.command, Path(logs))
        _launch(benchmark, command, directory, environment=valgrind.ENVIRONMENT)
        found = tool.read(Path(logs))
    if not found:
        raise BenchmarkError(f"benchmark {benchmark.name!r}: valgrind's {tool.name} told no count")
    return {measure: check_values(benchmark.name, measure, numbers) for measure, numbers in found.items()}


def _launch(
    benchmark: Benchmark,
    command: tuple[str, ...],
    directory: Path,
    *,
    stdout: str = os.devnull,
    environment: Mapping[str, str] | None = None,
    counter: tuple[int, int] | None = None,
) -> dict[str, Any]:
    request = {
        "command": command,
        "timeout_s": benchmark.timeout_s,
        "stdout": stdout,
        "environment": environment or {},
        "counter": counter,
    }
    try:
        status, answer, stderr = _ask_launcher(orjson.dumps(request), directory)
    except OSError as error:
        raise BenchmarkError(f"cannot run in {directory}: {reason_of(error)}") from error
    failed = f"benchmark {benchmark.name!r}: {command[0]!r:.80}"
    if status:
        raise BenchmarkError(f"{failed} could not be measured: {_last_line(stderr)}")
    found: dict[str, Any] = orjson.loads(answer)
    if "uncounted" in found:
        raise BenchmarkError(
            f"this machine does not count {COUNTED}: {found['uncounted']}", "measure callgrind-instructions instead"
        )
    if found["error"]:
        raise BenchmarkError(f"{failed} cannot be started: {found['error']}", "check its spelling, PATH and rights")
    if found["status"] is None:
        raise BenchmarkError(f"{failed} still ran after {benchmark.timeout_s:g} s", "raise its timeout_s")
    if found["status"]:
        ending = f"exit status {found['status']}" if found["status"] > 0 else f"signal {-found['status']}"
        raise BenchmarkError(f"{failed} failed with {ending}: {_last_line(stderr)}")
    return found


def _ask_launcher(request: bytes, directory: Path) -> tuple[int, bytes, bytes]:
    """Its status, stdout and stderr. Interrupted, it is given the time to end the command."""
    line = (sys.executable, "-I", "-S", launcher.__file__)
    with tempfile.TemporaryFile() as stderr:  # a pipe would be open as long as what a command left behind
        pipe = subprocess.PIPE
        process = subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=stderr, cwd=directory)
        try:
            answer, _ = process.communicate(request)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - READ_BYTES))
        return process.returncode, answer, stderr.read()


def _as_values(benchmark: Benchmark, found: dict[str, Any]) -> dict[str, list[float]]:
    values: dict[str, list[object]] = {"wall": [found["wall_ns"]], "cpu": [found["cpu_ns"]]}
    if found["peak_bytes"] > found["floor_bytes"]:
        values["peak-memory"] = [found["peak_bytes"]]
    if found["count"] is not None:
        values[COUNTED] = [found["count"]]
    return {measure: check_values(benchmark.name, measure, numbers) for measure, numbers in values.items()}


def _call(benchmark: Benchmark, directory: Path) -> dict[str, list[float]]:
    with tempfile.NamedTemporaryFile(suffix=".json") as output:
        _launch(benchmark, (sys.executable, caller.__file__, benchmark.function, output.name), directory)
        found = read_document(Path(output.name))
    return {measure: check_values(benchmark.name, measure, found[measure]) for measure in ("wall", "cpu")}


def _run_harness(benchmark: Benchmark, directory: Path) -> Values:
    """Its benchmarks, called ``NAME/…``. Results that were there before are not taken for those of this run."""
    if benchmark.results == STDOUT:
        with tempfile.NamedTemporaryFile(suffix=".json") as output:
            _launch(benchmark, benchmark.command, directory, stdout=output.name)
            found = read_results(Path(output.name))
    else:
        path = directory / benchmark.results
        before = _newest_ns(path)
        _launch(benchmark, benchmark.command, directory)
        if _newest_ns(path) == before:
            remedy = f"see that its command writes {benchmark.results}"
            raise BenchmarkError(f"benchmark {benchmark.name!r} wrote no results", remedy)
        found = read_results(path)
    return {f"{benchmark.name}/{name}": measures for name, measures in found.benchmarks.items()}


def _newest_ns(path: Path) -> int:
    """When the file, or the newest one in the directory, was written; 0 where there is none."""
    files = path.glob("**/*.json") if path.is_dir() else (path,)
    return max((one.stat().st_mtime_ns for one in files if one.is_file()), default=0)


def _choose(benchmark: Benchmark, measures: dict[str, list[float]]) -> dict[str, list[float]]:
    if not benchmark.measures:
        return measures
    if missing := [name for name in benchmark.measures if name not in measures]:
        there = ", ".join(measures)
        if missing[0] == "peak-memory":
            there += "; memory below 10 MB or so cannot be told"
        raise UsageError(f"benchmark {benchmark.name!r} has no measure {missing[0]!r:.40}", f"it has {there}")
    return {name: measures[name] for name in benchmark.measures}


def _add(values: Values, found: Values) -> None:
    for name, measures in found.items():
        for measure, numbers in measures.items():
            values.setdefault(name, {}).setdefault(measure, []).extend(numbers)


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode(errors="replace").strip().splitlines()
    return printable(lines[-1], SHOWN_CHARACTERS) if lines else "it said nothing"
