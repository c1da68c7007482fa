"""``stackhound bench run``: the benchmarks that a file declares."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.bench import Results

EXAMPLES = (
    ("what bench.toml declares, into a file", "stackhound bench run bench.toml -o new.json"),
    ("for Bencher", "stackhound bench run bench.toml --bmf -o - | bencher run --file -"),
    ("results of another harness, as ours", "stackhound bench run hyperfine.json -o new.json"),
)
NAME_WIDTH = 40


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("source", metavar="CONFIG", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(), metavar="FILE", help="Where the results go; - is stdout.")
@click.option("--bmf", is_flag=True, help="Write Bencher's Metric Format: medians alone.")
@verbose_option
def command(source: Path, output: str | None, bmf: bool) -> None:
    """Run the benchmarks that CONFIG (.toml) declares, and show the median of each measure.

    A file or directory of results (criterion, pytest-benchmark, hyperfine, Google Benchmark, BMF, ours) is read
    instead.
    """
    import orjson

    from stackhound.bench import read_configuration, read_results, run_all, write_bmf
    from stackhound.bench.places import prepare
    from stackhound.profile.output import open_output

    if source.suffix == ".toml":
        configuration = read_configuration(source)
        prepare(configuration, Path.cwd())
        results = run_all(configuration, Path.cwd(), _tell)
    else:
        results = read_results(source)
    document = orjson.dumps(write_bmf(results), option=orjson.OPT_INDENT_2) + b"\n" if bmf else results.to_json()
    if output == "-":
        click.echo(document, nl=False)
        return
    if output:
        with open_output(output) as out:
            out.write(document)
    for line in _format(results):
        click.echo(line)


def _tell(name: str) -> None:
    from stackhound.profile.escape import printable

    click.echo(f"running {printable(name)}", err=True)


def _format(results: Results) -> Iterator[str]:
    import statistics

    from stackhound.bench.text import format_number
    from stackhound.profile.escape import printable

    yield click.style(
        f"{'benchmark':{NAME_WIDTH}}  {'measure':14}{'median':>12}{'lowest':>12}{'highest':>12}  runs", bold=True
    )
    for name, measures in results.benchmarks.items():
        for measure, values in measures.items():
            numbers = (statistics.median(values), min(values), max(values))
            shown = "".join(f"{format_number(number, results.measures[measure].unit):>12}" for number in numbers)
            yield f"{printable(name, NAME_WIDTH):{NAME_WIDTH}}  {printable(measure, 14):14}{shown}  {len(values):4}"
