"""``stackhound bpf``: the machine's eBPF programs, each subcommand imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.errors import UsageError

#: Each subcommand's file in this package is called ``bpf_NAME``.
SUBCOMMANDS: Final = {
    "list": "List the programs that are loaded.",
    "show": "Show one program with its maps.",
    "top": "Show what each program costs right now.",
    "profile": "Show where programs spend their time, to the source line.",
    "verify": "Say whether the kernel takes a program, and what that takes.",
    "bench": "Measure what one run of a program takes.",
}
EXAMPLES: Final = (
    ("what is loaded, and by whom", "sudo stackhound bpf list"),
    ("one program: code, maps, where it is attached", "sudo stackhound bpf show 42"),
    ("which program takes how much of the CPUs", "sudo stackhound bpf top"),
)


class BpfCommands(ExampleCommand, click.Group):
    """The subcommands, imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The one called so."""
        if cmd_name not in SUBCOMMANDS:
            raise UsageError(f"there is no subcommand 'bpf {cmd_name}'", f"use {', '.join(SUBCOMMANDS)}")
        found: click.Command = import_module(f"stackhound.cli.bpf_{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """What each one does."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUBCOMMANDS.items()))


@click.group(cls=BpfCommands, examples=EXAMPLES, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Measure eBPF programs, whoever loaded them."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
