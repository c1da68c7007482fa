"""``stackhound bench check``: results against the bounds that the history gives them.

0 within · 1 a file cannot be read · 2 usage · 3 out of bounds · 4 too few earlier values, with --strict
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stackhound.cli.bench_history import branch_option, testbed_option
from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import flag
from stackhound.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.bench.check import Checked

EXAMPLES = (
    ("thresholds of bench.toml", "stackhound bench check new.json --history bench.sqlite --config bench.toml"),
    ("a branch against main's history", "stackhound bench check new.json --history … --config … --branch main"),
)
NAME_WIDTH = 32


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("path", metavar="RESULT", type=click.Path(path_type=Path))
@click.option(
    "--history", "history_path", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Earlier results."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="Where the thresholds are declared.",
)
@branch_option
@testbed_option
@flag("--strict", help="Exit with 4 where the history has too few values.")
@verbose_option
def command(path: Path, history_path: Path, config: Path, branch: str | None, testbed: str | None, strict: bool) -> int:
    """Hold the medians of RESULT against thresholds, and exit with 3 where one is out of bounds."""
    from stackhound.bench.adapters import read_results
    from stackhound.bench.check import check_results
    from stackhound.bench.configuration import read_configuration
    from stackhound.bench.gate import INCONCLUSIVE, PASSED, REGRESSED
    from stackhound.bench.history import open_history

    thresholds, results = read_configuration(config).thresholds, read_results(path)
    with open_history(history_path) as history:
        places = branch or results.branch, testbed or results.host.get("name", "")
        checked = check_results(results, thresholds, history, *places)
    for line in _format(checked):
        click.echo(line)
    verdicts = {one.verdict for one in checked}
    if "outside" in verdicts:
        return REGRESSED
    return INCONCLUSIVE if strict and "too few values" in verdicts else PASSED


def _format(checked: Sequence[Checked]) -> Iterator[str]:
    from stackhound.bench.text import format_number
    from stackhound.profile.escape import printable

    yield click.style(
        f"{'benchmark':{NAME_WIDTH}}  {'measure':12}{'value':>12}{'from':>12}{'to':>12}  {'test':11}  earlier  verdict",
        bold=True,
    )
    colors = {"outside": "red", "too few values": "yellow"}
    for one in checked:
        bounds = one.bounds or (None, None)
        numbers = (
            "" if number is None else format_number(max(0.0, number), one.unit) for number in (one.value, *bounds)
        )
        cells = "".join(f"{number:>12}" for number in numbers)
        names = f"{printable(one.benchmark, NAME_WIDTH):{NAME_WIDTH}}  {printable(one.measure, 11):12}"
        verdict = click.style(one.verdict, colors.get(one.verdict))
        yield f"{names}{cells}  {one.threshold.test:11}  {one.earlier:7}  {verdict}"
