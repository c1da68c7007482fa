"""The two sides of ``bench compare`` and ``bench gate``: builds, commands or files, and how they are compared."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from stackhound.cli.parameters import parse_duration
from stackhound.errors import UsageError

if TYPE_CHECKING:
    from stackhound.bench.comparison import Comparison, Side
    from stackhound.bench.configuration import Configuration
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
            help="A and B are directories in which its benchmarks run.",
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

    limits = options.limits()
    kinds = {_is_results(one) for one in (options.a, options.b)}
    if options.config is None and kinds == {True}:
        return compare_results(read_results(Path(options.a)), read_results(Path(options.b)), limits)
    if options.config is None and len(kinds) == 2:
        raise UsageError("A and B are not of one kind", "give two files with results, or two commands")
    configuration, sides = _choose_sides(options)
    duel = Duel(*sides, configuration.measures, limits, options.seconds, _tell)
    return duel.compare()


def _is_results(argument: str) -> bool:
    path = Path(argument)
    return argument != "" and (path.is_dir() or (path.suffix == ".json" and path.is_file()))


def _choose_sides(options: Options) -> tuple[Configuration, tuple[Side, Side]]:
    from stackhound.bench.comparison import Side
    from stackhound.bench.configuration import Benchmark, Configuration, read_configuration

    if options.config:
        configuration = read_configuration(options.config)
        for one in (options.a, options.b):
            if not Path(one).is_dir():
                raise UsageError(f"{one} is no directory", "with --config, A and B are two builds")
        a, b = (Side(Path(one), configuration.benchmarks) for one in (options.a, options.b))
        return configuration, (a, b)
    a, b = (Side(Path.cwd(), (Benchmark("command", _split(one)),)) for one in (options.a, options.b))
    return Configuration(()), (a, b)


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
