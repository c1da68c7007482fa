"""Where benchmarks run: directories, and commits in worktrees of their own; each made ready by the configuration."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from stackhound.errors import BenchmarkError, UsageError, reason_of
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stackhound.bench.configuration import Benchmark, Configuration

#: A build that takes longer has gone wrong.
PREPARE_TIMEOUT_S: Final = 3600.0
#: Of what a failed command said.
SHOWN_CHARACTERS: Final = 200
#: Tells commands of the configuration where its own files are, also in a commit that had others.
DIRECTORY_VARIABLE: Final = "STACKHOUND_BENCH_DIR"


@contextmanager
def open_place(argument: str, here: Path, worktree: Path) -> Iterator[Path]:
    """The directory that ``argument`` names, or a worktree of the commit that it names.

    Args:
        argument: a directory, else what git calls a commit: ``HEAD^``, ``v1.2``, ``main``.
        here: a directory of the repository; where it is not its top, the same one within the worktree is given.
        worktree: where the worktree is put, and taken away from in the end.

    Raises:
        UsageError: it is neither.
        BenchmarkError: git cannot check it out.
    """
    if (here / argument).is_dir():
        yield here / argument
        return
    commit = find_commit(argument, here)
    prefix = _git(here, "rev-parse", "--show-prefix")
    _git(here, "-c", "core.hooksPath=/dev/null", "worktree", "add", "--quiet", "--detach", str(worktree), commit)
    try:
        yield worktree / prefix
    finally:
        _git(here, "worktree", "remove", "--force", str(worktree))


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
