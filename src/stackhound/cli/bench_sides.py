"""The two sides of ``bench compare`` and ``bench gate``: builds, commands or files, and how they are compared."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from stackhound.cli.parameters import parse_duration
from stackhound.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stackhound.bench.comparison import Comparison, Side
    from stackhound.bench.measures import Measure
    from stackhound.bench.verdicts import Limits
    from stackhound.cli.parameters import Decorator

DEFAULT_TIME: Final = "5m"
MAX_PERCENT: Final = 1000.0


class Options(NamedTuple):
    """What the command line asks for, as `side_options` names it."""

    a: str
    b: str
    config: Path | None
    seconds: float
    tolerance: float
    detect: float
    as_json: bool
    markdown: str | None
    junit: str | None
    flame: Path | None

    def limits(self) -> Limits:
        """The shares.

        Raises:
            UsageError: there is none between them.
        """
        from stackhound.bench.verdicts import Limits

        if not 0 <= self.tolerance < self.detect <= MAX_PERCENT:
            raise UsageError(
                f"--tolerance {self.tolerance:g} and --detect {self.detect:g} leave nothing between them",
                "use for example --tolerance 1 --detect 3",
            )
        return Limits(self.tolerance / 100, self.detect / 100)


def side_options(command: Any) -> Any:  # noqa: ANN401 - a decorator of click's
    """The arguments A and B, and the options that both commands have."""
    percent: dict[str, Any] = {"type": float, "metavar": "PERCENT", "show_default": True}
    decorators: list[Decorator[Any]] = [
        click.argument("a", metavar="A"),
        click.argument("b", metavar="B"),
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A and B are directories or commits in which its benchmarks run.",
        ),
        click.option(
            "--time",
            "seconds",
            type=parse_duration,
            default=DEFAULT_TIME,
            metavar="TIME",
            help="Take this long at most.",
            show_default=True,
        ),
        click.option("--tolerance", default=1.0, help="A slowdown up to this is none.", **percent),
        click.option("--detect", default=3.0, help="A slowdown of this must not be missed.", **percent),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--markdown", type=click.Path(), metavar="FILE", help="Write a summary, too, as for a pull request."
        ),
        click.option("--junit", type=click.Path(), metavar="FILE", help="Write JUnit's XML, too."),
        click.option(
            "--flame",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Record what has regressed, and write flame graphs of what changed in it.",
        ),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def compare_as_asked(options: Options) -> Comparison:
    """Compare A and B.

    Raises:
        UsageError: they are not of one kind.
        BenchmarkError: a benchmark failed, or the sides have different ones.
    """
    from stackhound.bench.adapters import read_results
    from stackhound.bench.comparison import Duel, compare_results
    from stackhound.bench.flames import write_flames

    limits = options.limits()
    kinds = {_is_results(one) for one in (options.a, options.b)}
    if options.config is None and kinds == {True}:
        if options.flame:
            raise UsageError("--flame records both sides, and files cannot be run", "give commands, builds or commits")
        return compare_results(read_results(Path(options.a)), read_results(Path(options.b)), limits)
    if options.config is None and len(kinds) == 2:
        raise UsageError("A and B are not of one kind", "give two files with results, or two commands")
    with ExitStack() as places:
        contest = _choose_sides(options, places)
        duel = Duel(contest.a, contest.b, contest.measures, limits, options.seconds, _tell)
        comparison = duel.compare()
        drawn = [] if options.flame is None else write_flames(comparison, contest.a, contest.b, options.flame, _tell)
        return replace(comparison, notes=[*contest.notes, *comparison.notes, *drawn])


class _Contest(NamedTuple):
    a: Side
    b: Side
    measures: Mapping[str, Measure]
    notes: list[str]


def _is_results(argument: str) -> bool:
    path = Path(argument)
    return argument != "" and (path.is_dir() or (path.suffix == ".json" and path.is_file()))


def _choose_sides(options: Options, places: ExitStack) -> _Contest:
    from stackhound.bench.comparison import Side
    from stackhound.bench.configuration import Benchmark

    if options.config:
        return _open_places(options, options.config, places)
    a, b = (Side(Path.cwd(), (Benchmark("command", _split(one)),)) for one in (options.a, options.b))
    return _Contest(a, b, {}, [])


def _open_places(options: Options, config: Path, places: ExitStack) -> _Contest:
    """Directories and commits, prepared."""
    from stackhound.bench.comparison import Side
    from stackhound.bench.configuration import read_configuration
    from stackhound.bench.places import leave_out_new, open_places, prepare, tolerate_paths

    configuration = read_configuration(config)
    a, b = places.enter_context(open_places((options.a, options.b), Path.cwd()))
    for argument, directory in ((options.a, a), (options.b, b)):
        if configuration.prepare:
            _tell(f"preparing {argument}")
        prepare(configuration, directory)
    benchmarks, notes = leave_out_new(configuration.benchmarks, a, b)
    measures, remarks = tolerate_paths(configuration, a, b)
    return _Contest(Side(a, benchmarks), Side(b, benchmarks), measures, [*notes, *remarks])


def _split(line: str) -> tuple[str, ...]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"{line!r:.80} is no command: {str(error).lower()}", "close its quotes") from error
    if not words:
        raise UsageError("a command is empty", "name a program, a directory or a file with results")
    return tuple(words)


def _tell(line: str) -> None:
    click.echo(line, err=True)
