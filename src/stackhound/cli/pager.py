"""Text for people: through their pager when it is longer than the terminal, plain into a pipe."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence


def show(lines: Sequence[str]) -> None:
    """Print the lines, or page them. Lines are cut by the terminal or the pager, never here."""
    text = "\n".join(lines)
    if not sys.stdout.isatty() or len(lines) < shutil.get_terminal_size().lines:
        click.echo(text)
        return
    os.environ.setdefault("LESS", "FRSX")  # as git does: leave at the end of one page, pass colours, cut long lines
    click.echo_via_pager(text + "\n")
