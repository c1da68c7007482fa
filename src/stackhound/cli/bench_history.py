"""``stackhound bench history``: results over time."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.pager import show
from stackhound.cli.parameters import flag
from stackhound.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.bench.history import Series

EXAMPLES = (
    ("add what was measured", "stackhound bench history bench.sqlite --add new.json"),
    ("what has become of the parser", "stackhound bench history bench.sqlite parse"),
    ("where anything changed for good", "stackhound bench history bench.sqlite --changes"),
    ("all of it as curves, in one file for the browser", "stackhound bench history bench.sqlite --html history.html"),
)
BARS: Final = "▁▂▃▄▅▆▇█"
SHOWN: Final = 40
NAME_WIDTH: Final = 28

branch_option = click.option("--branch", metavar="NAME", help="Instead of the branch that the results have.")
testbed_option = click.option("--testbed", metavar="NAME", help="Instead of the machine's name that the results have.")


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("path", metavar="HISTORY", type=click.Path(path_type=Path))
@click.argument("text", metavar="[FILTER]", default="")
@click.option(
    "--add",
    "added",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="RESULT",
    help="Add these results; repeatable.",
)
@flag("--changes", help="Show where series changed for good (E-divisive), instead.")
@click.option("--html", type=click.Path(), metavar="FILE", help="Write a page with curves, instead.")
@branch_option
@testbed_option
@verbose_option
def command(
    path: Path,
    text: str,
    added: tuple[Path, ...],
    changes: bool,
    html: str | None,
    branch: str | None,
    testbed: str | None,
) -> None:
    """Show the medians that HISTORY (one SQLite file) has; with FILTER, of benchmarks with it in their names."""
    from stackhound.bench.adapters import read_results
    from stackhound.bench.history import open_history
    from stackhound.profile.output import open_output

    results = [read_results(one) for one in added]
    with open_history(path, create=bool(added)) as history:
        for one in results:
            history.add(one, branch or one.branch, testbed or one.host.get("name", ""))
        found = [series for series in history.series() if text in series.benchmark]
    if html:
        from stackhound.bench.page import write_page

        page = write_page(found).encode()
        with open_output(html) as out:
            out.write(page)
        return
    if changes:
        show([line for one in found for line in _format_changes(one)] or ["nothing changed for good"])
        return
    show(list(_format(found)) or [f"no benchmark has {text!r} in its name" if text else "nothing was added yet"])


def _format(found: Sequence[Series]) -> Iterator[str]:
    from stackhound.bench.text import format_number
    from stackhound.profile.escape import printable

    if not found:
        return
    yield click.style(
        f"{'benchmark':{NAME_WIDTH}}  {'measure':12}{'branch':14}{'testbed':14}{'median':>11}{'last':>11}  runs",
        bold=True,
    )
    for one in found:
        numbers = (format_number(number, one.unit) for number in (statistics.median(one.values), one.values[-1]))
        names = f"{printable(one.measure, 11):12}{printable(one.branch, 13):14}{printable(one.testbed, 13):14}"
        cells = "".join(f"{number:>11}" for number in numbers)
        name = printable(one.benchmark, NAME_WIDTH)
        yield f"{name:{NAME_WIDTH}}  {names}{cells}  {len(one.values):4}  {draw(one.values)}"


def _format_changes(series: Series) -> Iterator[str]:
    from stackhound.bench.changes import find_changes
    from stackhound.bench.text import describe_change
    from stackhound.profile.escape import printable

    for change in find_changes(series.values):
        names = f"{series.benchmark} · {series.measure} · {series.branch} · {series.testbed}"
        run = (series.commits[change.at][:12], series.times[change.at])
        since = ", ".join(one for one in (f"run {change.at + 1}", *run) if one)
        yield printable(f"{names}: {describe_change(change, series.unit)} since {since}")


def draw(values: Sequence[float]) -> str:
    """The newest values as bars, from the lowest to the highest of them."""
    newest = values[-SHOWN:]
    low, high = min(newest), max(newest)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in newest)
