"""BPF programs as benchmarks: how long a run takes, and what the verifier had to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackhound.bench.measures import check_values
from stackhound.bpf.bench import Plan, bench
from stackhound.bpf.commands import keep_running
from stackhound.bpf.fixtures import find_context, find_maps, find_packet
from stackhound.bpf.verify import verify
from stackhound.errors import BenchmarkError, StackhoundError, reason_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stackhound.bench.configuration import Benchmark
    from stackhound.bench.results import Values
    from stackhound.bpf.verify import Figures, Verdict

TIME: Final = "ns-per-run"
VERIFIER: Final = "verifier-instructions"
STATES: Final = "verifier-states"
#: Of each run of the benchmark: each load has its own speed, and gives one value.
LOADS: Final = 8


def measure_programs(benchmark: Benchmark, directory: Path) -> Values:
    """What one run of a benchmark with BPF programs gives; they are not run where only the verifier is asked.

    Raises:
        BenchmarkError: the kernel refuses one, it returns what it should not, or this process may not load it.
    """
    try:
        path = directory / benchmark.bpf
        if not benchmark.program:
            return {f"{benchmark.name}/{one.program}": _count(one) for one in verify(path)}
        found = _measure(benchmark, directory)
    except OSError as error:
        raise BenchmarkError(f"benchmark {benchmark.name!r}: cannot read its files: {reason_of(error)}") from error
    except StackhoundError as error:
        raise BenchmarkError(f"benchmark {benchmark.name!r}: {error.message}", error.remedy) from error
    name = benchmark.name
    return {name: {measure: check_values(name, measure, values) for measure, values in found.items()}}


def _measure(benchmark: Benchmark, directory: Path) -> dict[str, Sequence[float]]:
    path = directory / benchmark.bpf
    if benchmark.measures and TIME not in benchmark.measures:
        (verdict,) = verify(path, [benchmark.program])
        return dict(_count(verdict))
    result = bench(path, benchmark.program, _plan(benchmark, directory))
    return {TIME: result.loads, **_as_values(result.figures)}


def _count(verdict: Verdict) -> dict[str, list[float]]:
    if verdict.refusal:
        refused = f"the kernel refuses {verdict.program}: {verdict.refusal.message}"
        raise BenchmarkError(refused, "see 'stackhound bpf verify'")
    return _as_values(verdict.figures)


def _as_values(figures: Figures | None) -> dict[str, list[float]]:
    """None of a kernel that does not tell."""
    return {} if figures is None else {VERIFIER: [float(figures.instructions)], STATES: [float(figures.total_states)]}


def _plan(benchmark: Benchmark, directory: Path) -> Plan:
    place = keep_running(benchmark.in_place, directory, benchmark.timeout_s) if benchmark.in_place else None
    return Plan(
        packet=find_packet(benchmark.packet, directory) if benchmark.packet else Plan.packet,
        context=find_context(benchmark.context, directory) if benchmark.context else b"",
        maps=find_maps(benchmark.maps, directory) if benchmark.maps else {},
        expected=benchmark.expect,
        place=place,
        interface=benchmark.interface,
        most_s=benchmark.timeout_s,
        loads=LOADS,
        most_loads=LOADS,
    )
