"""Help that teaches by examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


class ExampleCommand(click.Command):
    """A command whose ``--help`` ends with examples: (what it does, the command line)."""

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]], **attributes: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **attributes)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section ``Examples``."""
        super().format_epilog(ctx, formatter)
        with formatter.section("Examples"):
            for meaning, line in self.examples:
                formatter.write(
                    f"{'':{formatter.current_indent}}{line}\n{'':{formatter.current_indent}}    {meaning}\n"
                )
