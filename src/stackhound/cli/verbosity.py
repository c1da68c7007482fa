"""How much is said on stderr: ``-v`` on the command line, else ``STACKHOUND_LOG``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from stackhound.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

LEVELS: Final = ("error", "warn", "info", "debug", "trace")
WARN: Final = LEVELS.index("warn")
INFO: Final = LEVELS.index("info")
VARIABLE: Final = "STACKHOUND_LOG"

Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")


class Verbosity:
    """The level asked for: 0 errors, 1 warnings, 2 info, 3 debug, 4 trace. From 1 on, an error has its traceback."""

    def __init__(self) -> None:
        self.level = 0

    def read_environment(self) -> None:
        """Take the level from STACKHOUND_LOG, where it is set.

        Raises:
            UsageError: it says something else than a level.
        """
        name = os.environ.get(VARIABLE, "").strip().lower()
        if name and name not in LEVELS:
            raise UsageError(f"{VARIABLE}={name!r} is not a level", f"use {', '.join(LEVELS)}")
        self.level = LEVELS.index(name) if name else 0


def verbosity_of(context: click.Context) -> Verbosity:
    """What this run of the command line was asked for."""
    return context.find_root().ensure_object(Verbosity)


def verbose_option(command: Decorated) -> Decorated:
    """``-v``, repeatable, on the group and on each subcommand."""
    return click.option(
        "-v",
        "--verbose",
        count=True,
        expose_value=False,
        callback=_set_level,
        help="Say more on stderr, and show tracebacks; repeat for info, debug, trace.",
    )(command)


def _set_level(context: click.Context, _: click.Parameter, count: int) -> None:
    if count:
        verbosity_of(context).level = min(count, len(LEVELS) - 1)
