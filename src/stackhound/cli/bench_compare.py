"""``stackhound bench compare``: which of two builds is faster, and by how much."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from stackhound.cli.bench_sides import Options, compare_as_asked, side_options
from stackhound.cli.examples import ExampleCommand
from stackhound.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.bench.comparison import Comparison

EXAMPLES = (
    ("two commands, in turns", "stackhound bench compare './old big.json' './new big.json'"),
    ("two builds with the benchmarks of bench.toml", "stackhound bench compare --config bench.toml ../main ."),
    ("two commits, each built by its 'prepare'", "stackhound bench compare --config bench.toml HEAD^ HEAD"),
    ("what was measured before", "stackhound bench compare old.json new.json"),
)
NAME_WIDTH = 32


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@side_options
@verbose_option
def command(**given: Any) -> None:  # noqa: ANN401 - as `side_options` has them
    """Compare A and B: two commands, two files with results, or with --config two directories or commits.

    Commands run in turns (A B B A) until each answer is clear or the time is over. A regression is confirmed by fresh
    pairs of runs.
    """
    options = Options(**given)
    report(compare_as_asked(options), options)


def report(comparison: Comparison, options: Options) -> None:
    """Print the comparison, and write the files that are asked for."""
    from stackhound.bench.reports import as_object, write_junit, write_markdown
    from stackhound.profile.output import open_output

    for path, write in ((options.markdown, write_markdown), (options.junit, write_junit)):
        if path:
            with open_output(path) as out:
                out.write(write(comparison).encode())
    if options.as_json:
        click.echo(json.dumps(as_object(comparison), indent=1))
        return
    for line in _format(comparison):
        click.echo(line)


def _format(comparison: Comparison) -> Iterator[str]:
    from stackhound.bench.reports import COLORS, cells_of
    from stackhound.profile.escape import printable

    yield click.style(
        f"{'benchmark':{NAME_WIDTH}}  {'measure':12}{'A':>12}{'B':>12}{'change':>9}  {'interval':20} values  verdict",
        bold=True,
    )
    for finding in comparison.findings:
        name, measure, a, b, change, interval, values = cells_of(finding)
        verdict = click.style(finding.verdict.value, COLORS.get(finding.verdict))
        name, measure = printable(name, NAME_WIDTH), printable(measure, 12)
        yield f"{name:{NAME_WIDTH}}  {measure:12}{a:>12}{b:>12}{change:>9}  {interval:20} {values:>6}  {verdict}"
    for note in comparison.notes:
        yield printable(f"note: {note}")
