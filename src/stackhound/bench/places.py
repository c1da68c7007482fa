"""Where benchmarks run: directories, and commits in worktrees of their own; each made ready by the configuration."""

from __future__ import annotations

import math
import os
import secrets
import shutil
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stackhound.bench.measures import PATHS_FLOOR, known_measure
from stackhound.errors import BenchmarkError, UsageError, reason_of
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.bench.configuration import Benchmark, Configuration
    from stackhound.bench.measures import Measure

#: A build that takes longer has gone wrong.
PREPARE_TIMEOUT_S: Final = 3600.0
#: Of what a failed command said.
SHOWN_CHARACTERS: Final = 200
#: Tells commands of the configuration where its own files are, also in a commit that had others.
DIRECTORY_VARIABLE: Final = "STACKHOUND_BENCH_DIR"

#: Programs, and their loader, copy the path of their directory, and ask the heap for room for it: where one is longer
#: than the other, these counts of equal builds differ by up to so much. Seen with paths of 12 to 211 bytes: 14
#: instructions in C, 1,900 with 820 bytes in 3 blocks in C++ that asks for it, 0.06% and 0.14% in Python.
PATHS_SHOW_IN: Final = {"callgrind-instructions": PATHS_FLOOR, "allocated": 2000.0, "allocations": 8.0}
PATHS_TOLERANCE: Final = 0.002

#: Of the names of worktrees.
PREFIX: Final = "stackhound-"
#: Bytes of them: so that nobody else has the same, and where the path may be as long as it likes.
LEAST_NAME: Final = 4
USUAL_NAME: Final = 20
#: NAME_MAX (Linux include/uapi/linux/limits.h)
LONGEST_NAME: Final = 255


@contextmanager
def open_places(arguments: Sequence[str], here: Path) -> Iterator[list[Path]]:
    """The directory that each argument names, or a worktree of the commit that it names.

    What programs do with the path of their directory shows in counts, so worktrees have paths as long as the first
    directory's, as far as the directory for temporary files allows it.

    Args:
        arguments: each a directory, else what git calls a commit: ``HEAD^``, ``v1.2``, ``main``.
        here: a directory of the repository; where it is not its top, the same one within each worktree is given.

    Raises:
        UsageError: one is neither.
        BenchmarkError: git cannot check it out.
    """
    lengths = [path_length(here / one) for one in arguments if (here / one).is_dir()]
    with ExitStack() as worktrees:
        yield [
            here / one if (here / one).is_dir() else worktrees.enter_context(_check_out(one, here, lengths))
            for one in arguments
        ]


def path_length(directory: Path) -> int:
    """Bytes of the path by which the kernel knows a directory, and tells programs where they are."""
    return len(os.fsencode(directory.resolve()))


@contextmanager
def _check_out(commit: str, here: Path, lengths: Sequence[int]) -> Iterator[Path]:
    number = find_commit(commit, here)
    prefix = _git(here, "rev-parse", "--show-prefix")
    with _make_directory(lengths[0] - len(os.fsencode(f"/{prefix}".rstrip("/"))) if lengths else None) as worktree:
        _git(here, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--quiet", "--detach", str(worktree), number)
        try:
            yield worktree / prefix
        finally:
            _git(here, "worktree", "remove", "--force", str(worktree))


@contextmanager
def _make_directory(length: int | None) -> Iterator[Path]:
    """A new directory for temporary files, removed in the end.

    Args:
        length: of its path, in bytes; with None, or too few for a name of its own, some other one.
    """
    top = Path(tempfile.gettempdir()).resolve()
    free = 0 if length is None else length - len(os.fsencode(top)) - 1
    names = _make_names(free if free >= LEAST_NAME else USUAL_NAME)
    made, directory = top / names[0], top.joinpath(*names)
    try:
        made.mkdir(mode=0o700)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BenchmarkError(f"cannot make {directory}: {reason_of(error)}", "see TMPDIR") from error
    try:
        yield directory
    finally:
        if made.exists():
            shutil.rmtree(made)


def _make_names(length: int) -> list[str]:
    """Names that make a path of so many bytes, none longer than file systems allow, the first one nobody else's."""
    count = math.ceil((length + 1) / (LONGEST_NAME + 1))
    letters = length - (count - 1)
    sizes = [letters // count + (place < letters % count) for place in range(count)]
    return [(PREFIX * (size > USUAL_NAME - 1) + secrets.token_hex(size))[:size] for size in sizes]


def find_commit(argument: str, here: Path) -> str:
    """The number of the commit that ``argument`` names.

    Raises:
        UsageError: there is none, or no repository.
    """
    try:
        return _git(here, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{argument}^{{commit}}")
    except BenchmarkError as error:
        remedy = "with --config, A and B are two builds, or commits that this clone has (a shallow one has few)"
        raise UsageError(f"{argument!r:.80} is neither a directory nor a commit", remedy) from error


def prepare(configuration: Configuration, directory: Path) -> None:
    """Run what the configuration wants to be run first, in the directory.

    Raises:
        BenchmarkError: it cannot be started, fails, or takes too long.
    """
    if not configuration.prepare:
        return
    environment = {**os.environ, DIRECTORY_VARIABLE: str(configuration.directory)}
    name = f"prepare: {configuration.prepare[0]!r:.80}"
    try:
        done = subprocess.run(
            configuration.prepare,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PREPARE_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise BenchmarkError(
            f"{name} cannot be started: {reason_of(error)}", "check its spelling and rights"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"{name} still ran after {PREPARE_TIMEOUT_S:g} s") from error
    if done.returncode:
        raise BenchmarkError(f"{name} failed with status {done.returncode}: {_last_line(done.stdout)}")


def leave_out_new(benchmarks: tuple[Benchmark, ...], a: Path, b: Path) -> tuple[tuple[Benchmark, ...], list[str]]:
    """The benchmarks that both sides can run, and a note on each that A had not yet, by the file that it needs.

    Raises:
        BenchmarkError: B lacks such a file, or nothing is left.
    """
    for one in benchmarks:
        if one.needs and not (b / one.needs).exists():
            raise BenchmarkError(f"benchmark {one.name!r} needs {one.needs!r:.80}", "take it out where it is gone")
    new = [one for one in benchmarks if one.needs and not (a / one.needs).exists()]
    if len(new) == len(benchmarks):
        raise BenchmarkError("there is nothing to compare", "A has none of the files that the benchmarks need")
    return tuple(one for one in benchmarks if one not in new), [
        f"{one.name} is new: nothing to compare it with" for one in new
    ]


def tolerate_paths(configuration: Configuration, a: Path, b: Path) -> tuple[dict[str, Measure], list[str]]:
    """The measures that are declared, and those that tolerate what paths of unlike length make of equal builds.

    With a note on it, where the paths are so and a benchmark has such measures.
    """
    lengths = path_length(a), path_length(b)
    shown = [name for name in PATHS_SHOW_IN if any(_has(one, name) for one in configuration.benchmarks)]
    if lengths[0] == lengths[1] or not shown:
        return configuration.measures, []
    declared = {name: configuration.measures.get(name) or known_measure(name) for name in shown}
    tolerant = {
        name: one._replace(floor=max(one.floor, PATHS_SHOW_IN[name]), tolerance=max(one.tolerance, PATHS_TOLERANCE))
        for name, one in declared.items()
    }
    differences = ", ".join(f"{one.floor:,g} {name}" for name, one in tolerant.items())
    note = f"the paths of A and B have {lengths[0]} and {lengths[1]} bytes, which shows in counts: differences up to "
    note += f"{differences}, or {PATHS_TOLERANCE:.1%}, are none; between paths of one length each would be told"
    return configuration.measures | tolerant, [note]


def _has(benchmark: Benchmark, measure: str) -> bool:
    """Whether a benchmark may give it: what other harnesses give is known when they have run."""
    return measure in benchmark.measures or (bool(benchmark.results) and not benchmark.measures)


def _git(directory: Path, *arguments: str) -> str:
    try:
        run = subprocess.run(("git", *arguments), cwd=directory, capture_output=True, check=False)
    except OSError as error:
        raise BenchmarkError(f"cannot run git: {reason_of(error)}", "install it, or give two directories") from error
    if run.returncode:
        raise BenchmarkError(f"git failed: {_last_line(run.stderr)}")
    return run.stdout.decode(errors="surrogateescape").strip()


def _last_line(output: bytes) -> str:
    lines = output.decode(errors="replace").strip().splitlines()
    return printable(lines[-1], SHOWN_CHARACTERS) if lines else "it said nothing"
