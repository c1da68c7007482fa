"""``stackhound bench gate``: an exit status that stops a regression.

0 no regression · 1 a benchmark failed, or the machine is too noisy · 2 usage · 3 regression · 4 unclear, with --strict
"""

from __future__ import annotations

from typing import Any

import click

from stackhound.cli.bench_compare import report
from stackhound.cli.bench_sides import Options, compare_as_asked, side_options
from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import flag
from stackhound.cli.verbosity import verbose_option

EXAMPLES = (
    ("this checkout against its parent", "stackhound bench gate --config bench.toml HEAD^ ."),
    ("counts that were measured before, for CI's reports", "stackhound bench gate old.json new.json --junit gate.xml"),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@side_options
@flag("--strict", help="Exit with 4 where an answer is not clear in the time given.")
@verbose_option
def command(strict: bool, **given: Any) -> int:  # noqa: ANN401 - as `side_options` has them
    """Compare A and B, and exit with 3 where B has regressed.

    0: not worse. 1: a benchmark failed, or this machine, on which A is compared with itself, too, is too noisy to
    tell. 2: the request makes no sense. 4: not clear, with --strict.
    """
    from stackhound.bench.gate import decide

    options = Options(**given)
    comparison = compare_as_asked(options)
    report(comparison, options)
    decision = decide(comparison, options.limits(), strict)
    click.echo(decision.reason, err=True)
    return decision.status
