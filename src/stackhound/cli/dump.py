"""``stackhound dump``: what every thread of a process does now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import debug_dirs_option, flag, pids_option
from stackhound.cli.verbosity import verbose_option, verbosity_of

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES: Final = (
    ("what a process that hangs is waiting for", "sudo stackhound dump -p 1234"),
    ("a pool of threads that do the same, once", "sudo stackhound dump --group -p 1234"),
    ("all processes of a name", "sudo stackhound dump -p $(pgrep -d, nginx)"),
    ("for a script", "sudo stackhound dump --json -p 1234 | jq '.processes[].threads[] | .comm, .state'"),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@pids_option
@flag("--json", "as_json", help="One JSON object, as docs/dump.md describes it.")
@flag("--group", help="Show threads with the same stack together.")
@flag("--native-internals", help="Show the interpreter's own functions between Python's.")
@flag("--python/--no-python", default=True, help="Show Python's own frames.  [default: yes]")
@flag("--user-only", help="Leave out the kernel.")
@debug_dirs_option
@click.pass_context
@verbose_option
def command(
    context: click.Context,
    /,
    pids: tuple[int, ...],
    as_json: bool,
    group: bool,
    native_internals: bool,
    python: bool,
    user_only: bool,
    debug_dirs: tuple[Path, ...],
) -> None:
    """Print every thread's stack, with what it waits for: Python's, native and kernel functions, leaf first.

    No process is stopped. Each stack was its thread's at one moment: threads that sleep are looked at where they are,
    those on a CPU are sampled there within milliseconds.
    """
    from stackhound.recording.threads import dump

    profile = dump(pids, python=python, user_only=user_only, debug_dirs=debug_dirs, log_level=_log_level(context))
    profile = profile.show_native_internals() if native_internals else profile
    from stackhound.cli.threads import as_json as write_json
    from stackhound.cli.threads import draw

    if as_json:
        click.echo(write_json(profile))
        return
    for line in draw(profile, grouped=group):
        click.echo(line)


def _log_level(context: click.Context) -> int:
    return verbosity_of(context).level
