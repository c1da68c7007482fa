"""``stackhound bench``: continuous benchmarking, each subcommand imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.errors import UsageError

#: Each subcommand's file in this package is called ``bench_NAME``.
SUBCOMMANDS: Final = {
    "run": "Run the benchmarks that a file declares.",
    "compare": "Compare two builds, commands or files with results.",
    "gate": "Compare, and exit with 3 where there is a regression.",
    "history": "Keep results in a file, and show them over time.",
    "check": "Hold results against the history, and exit with 3 where they are out of bounds.",
}
EXAMPLES: Final = (
    ("what bench.toml declares, into a file", "stackhound bench run bench.toml -o new.json"),
    ("what another harness measured, for Bencher", "stackhound bench run target/criterion --bmf -o -"),
    ("two builds, in turns, until the answer is clear", "stackhound bench compare --config bench.toml ../main ."),
    ("an exit status for CI", "stackhound bench gate --config bench.toml ../main ."),
)


class BenchCommands(ExampleCommand, click.Group):
    """The subcommands, imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The one called so."""
        if cmd_name not in SUBCOMMANDS:
            raise UsageError(f"there is no subcommand 'bench {cmd_name}'", f"use {', '.join(SUBCOMMANDS)}")
        found: click.Command = import_module(f"stackhound.cli.bench_{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """What each one does."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


@click.group(cls=BenchCommands, examples=EXAMPLES, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Measure programs again and again, and stop regressions before they ship."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
