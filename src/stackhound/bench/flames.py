"""Differential flame graphs of what got slower: both sides recorded in turns, by stackhound itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackhound.bench import caller
from stackhound.bench.runner import wall_time_ns
from stackhound.bench.verdicts import Verdict
from stackhound.errors import BenchmarkError, EmptyProfile, OutputError, StackhoundError, reason_of
from stackhound.formats.difference import write
from stackhound.profile.escape import printable
from stackhound.profile.hound import load
from stackhound.profile.output import open_output
from stackhound.transform.diff import diff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stackhound.bench.comparison import Comparison, Side
    from stackhound.bench.configuration import Benchmark
    from stackhound.profile import Profile

#: What is drawn, a file each.
EVENTS: Final = ("cpu", "off-cpu")
FREQUENCY_HZ: Final = "999"
#: A recording repeats the command until the slower side has taken about so long; there are two of each, A B B A.
RECORDED_NS: Final = 2_000_000_000
MOST_RUNS: Final = 500
TURNS: Final = (0, 1, 1, 0)

#: Runs a command $2 times in the directory $1; with one run a time, as many on each side.
LOOP: Final = 'cd "$1" || exit; n=$2; shift 2; while [ "$n" -gt 0 ]; do "$@" >/dev/null || exit; n=$((n-1)); done'
SHOWN_CHARACTERS: Final = 200


def write_flames(
    comparison: Comparison, a: Side, b: Side, directory: Path, tell: Callable[[str], None]
) -> Iterator[str]:
    """Write what changed in each benchmark that regressed: ``NAME.cpu.html`` and ``NAME.off-cpu.html``.

    Returns:
        A line a file, and one where there is none with the reason.

    Raises:
        OutputError: a file cannot be written.
    """
    regressed = {one.benchmark for one in comparison.having(Verdict.REGRESSED)}
    if not regressed:
        yield "nothing has regressed: there is no flame graph"
    for pair in zip(a.benchmarks, b.benchmarks, strict=True):
        name = pair[0].name
        if not any(one == name or one.startswith(f"{name}/") for one in regressed):
            continue
        tell(f"recording {printable(name)}")
        try:
            sides = _record_both(pair, (a.directory, b.directory))
        except StackhoundError as error:
            yield f"no flame graph of {name}: {error}"
            continue
        yield from _draw(name, sides, directory)


def _draw(name: str, sides: tuple[list[Profile], list[Profile]], directory: Path) -> Iterator[str]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {directory}: {reason_of(error)}", "name another directory") from error
    for event in EVENTS:
        path = directory / f"{_file_name(name)}.{event}.html"
        try:
            found = diff(*sides, event=event)
            with open_output(str(path)) as out:
                write(found, out, f"{event} of {name}: what changed")
        except EmptyProfile:
            yield f"no flame graph of {name}: it took no time of {event}"
        else:
            yield f"what changed in {name}: {path}"


def _file_name(name: str) -> str:
    """A benchmark's name as one that every file system takes."""
    return re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII).strip(".-")[:100] or "benchmark"


def _record_both(
    pair: tuple[Benchmark, Benchmark], directories: tuple[Path, Path]
) -> tuple[list[Profile], list[Profile]]:
    """Two profiles of each side, of as many runs each."""
    commands = [_command(benchmark) for benchmark in pair]
    longest_ns = max(map(wall_time_ns, pair, commands, directories))
    runs = max(1, min(MOST_RUNS, RECORDED_NS // longest_ns))
    sides: tuple[list[Profile], list[Profile]] = ([], [])
    for side in TURNS:
        sides[side].append(_record(commands[side], directories[side], runs))
    return sides


def _command(benchmark: Benchmark) -> tuple[str, ...]:
    if benchmark.bpf:
        raise BenchmarkError("it runs inside the kernel", "see 'stackhound bpf profile'")
    if benchmark.function:
        return (sys.executable, caller.__file__, benchmark.function, os.devnull)
    return benchmark.command


def _record(command: tuple[str, ...], directory: Path, runs: int) -> Profile:
    """A profile of so many runs, without the loop around them.

    Raises:
        BenchmarkError: stackhound may not record here, or the command failed.
    """
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "side.hound"
        options = ("-e", ",".join(EVENTS), "-F", FREQUENCY_HZ, "-o", str(output))
        loop = ("sh", "-c", LOOP, "sh", str(directory.resolve()), str(runs), *command)
        line = (sys.executable, "-m", "stackhound", "record", *options, "--", *loop)
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise BenchmarkError(printable(last or f"its command failed with {done.returncode}", SHOWN_CHARACTERS))
        return _without_root(load(output))


def _without_root(profile: Profile) -> Profile:
    """Without the process that all others come from."""
    pids = profile.numbers("processes", "pid").tolist()
    parents = profile.numbers("processes", "parent_pid").tolist()
    return profile.filter(pids=[pid for pid, parent in zip(pids, parents, strict=True) if parent in pids])
