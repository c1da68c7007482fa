"""Values on the command line, and options that several subcommands share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from stackhound.errors import UsageError

Decorated = TypeVar("Decorated", bound="Callable[..., Any] | click.Command")

#: What ``record`` writes and the others read.
DEFAULT_PATH: Final = "stackhound.hound"

MAX_PID: Final = 2**22  # the kernel's PID_MAX_LIMIT
MAX_DURATION_S: Final = 30 * 24 * 3600  # a recording is held in memory until it ends

_DURATION: Final = r"(\d+\.?\d*|\.\d+)(ms|s|m|h|)"
_SECONDS: Final = {"": 1.0, "s": 1.0, "ms": 1e-3, "m": 60.0, "h": 3600.0}
_SIZE: Final = r"(?i)(\d+)([KMG]?)(i?B)?"
_BYTES: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}


def parse_pids(value: str) -> tuple[int, ...]:
    """Read ``1234`` or ``1234,5678``."""
    words = split_names(value)
    for word in words:
        if not word.isascii() or not word.isdecimal() or not 0 < int(word[:10]) <= MAX_PID:
            raise UsageError(f"{word!r} is not a process id", "give numbers, for example -p 1234,5678")
    return tuple(int(word) for word in words)


def parse_numbers(value: str) -> tuple[int, ...]:
    """Read ``0`` or ``0,2``."""
    words = split_names(value)
    for word in words:
        if not (word.isascii() and word.isdecimal()):
            raise UsageError(f"{word!r} is not a number", "give numbers, for example 0,2")
    return tuple(int(word) for word in words)


def parse_duration(value: str) -> float:
    """Read ``10``, ``2.5s``, ``300ms``, ``5m``, ``1h``: seconds."""
    found = re.fullmatch(_DURATION, value)
    seconds = float(found[1]) * _SECONDS[found[2]] if found else math.nan
    if not seconds > 0:
        raise UsageError(f"{value!r} is not a duration", "use for example -d 10, -d 2.5s, -d 300ms, -d 5m, -d 1h")
    if seconds > MAX_DURATION_S:
        raise UsageError(f"{value!r} is too long for one recording", "use at most 720h, and several recordings")
    return seconds


def parse_size(value: str) -> int:
    """Read ``65536``, ``512K``, ``4M``: bytes."""
    found = re.fullmatch(_SIZE, value)
    if not found:
        raise UsageError(f"{value!r} is not a size", "use bytes, or for example 512K, 4M")
    return int(found[1]) * _BYTES[found[2].upper()]


def split_names(value: str) -> tuple[str, ...]:
    """Read ``cpu`` or ``cpu,page-faults``: the words between the commas."""
    return tuple(word.strip() for word in value.split(",") if word.strip()) or (value,)


Decorator = Callable[[Decorated], Decorated]


def flag(*names: str, default: bool = False, help: str) -> Decorator[Any]:  # noqa: A002 - as click calls it
    """An option without a value."""
    return click.option(*names, is_flag=True, default=default, help=help)


def list_option(
    *names: str,
    parse: Callable[[str], tuple[Any, ...]],
    default: tuple[str, ...] = (),
    metavar: str,
    help: str,  # noqa: A002
) -> Decorator[Any]:
    """An option that may be repeated and takes lists: one tuple of all values."""
    return click.option(
        *names, type=parse, multiple=True, default=default, callback=_flatten, metavar=metavar, help=help
    )


def _flatten(_: click.Context, __: click.Parameter, lists: tuple[tuple[Any, ...], ...]) -> tuple[Any, ...]:
    return tuple(value for one in lists for value in one)


def frequency_option(default_hz: int) -> Decorator[Any]:
    """``-f`` and ``-F`` both mean the frequency, everywhere."""
    names = ("-F", "-f", "--frequency", "--freq", "frequency_hz")
    return click.option(*names, type=int, metavar="HZ", help=f"Samples a second, on each CPU.  [default: {default_hz}]")


pids_option = list_option(
    "-p",
    "--pid",
    "pids",
    parse=parse_pids,
    metavar="PID,...",
    help="Only these processes, all their threads; repeatable.",
)

output_option = click.option(
    "-o",
    "--output",
    type=click.Path(),  # which shells complete
    metavar="PATH",
    help="Where to, the format by its suffix; - is stdout.",
)

#: For what shows one event.
event_option = click.option("--event", metavar="NAME", help="Which event to show, when there are several.")

debug_dirs_option = click.option(
    "--debug-dir",
    "debug_dirs",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Look for separate debug files here, too; repeatable.",
)

software_option = flag(
    "--sw-event", "software_only", help="Use the software clock even where there is a cycle counter."
)

#: A profile, by default the one that ``record`` writes.
input_argument = click.argument(
    "profile_path", metavar="[INPUT]", default=DEFAULT_PATH, type=click.Path(path_type=Path)
)
