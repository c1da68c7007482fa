"""Commands of commands, imported one at a time: the start of a recording waits for nothing it does not need."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Subcommands(ExampleCommand, click.Group):
    """A group whose ``--help`` imports none of its commands."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's
        subcommands: Mapping[str, str],
        start: str = "",
        **attributes: Any,  # noqa: ANN401 - click's
    ) -> None:
        """A group.

        Args:
            subcommands: by name what each does; its file in this package is called ``start`` and the name.
            start: like ``bpf_`` for ``stackhound bpf …``.
        """
        super().__init__(*args, invoke_without_command=True, **attributes)
        self._subcommands = subcommands
        self._start = start

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Their names."""
        return list(self._subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The one called so."""
        if cmd_name not in self._subcommands:
            return None
        found: click.Command = import_module(f"stackhound.cli.{self._start}{cmd_name}").command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The one that the arguments begin with."""
        if args and args[0] not in self._subcommands and not args[0].startswith("-"):
            named = self._start.replace("_", " ") + args[0]
            raise UsageError(f"there is no subcommand {named!r}", f"use {', '.join(self._subcommands)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's signature
        """Show the help where no command is named."""
        result = super().invoke(ctx)
        if ctx.invoked_subcommand is None:
            click.echo(ctx.get_help())
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """What each one does."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._subcommands.items()))
