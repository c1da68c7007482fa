"""``stackhound run``: a Python script, recorded."""

from __future__ import annotations

import sys

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import flag
from stackhound.cli.record import run_record
from stackhound.cli.request import Request, record_options
from stackhound.cli.verbosity import verbose_option, verbosity_of

EXAMPLES = (
    ("a script with its arguments, into stackhound.hound", "sudo stackhound run train.py --epochs 3"),
    ("the same as a flame graph, at a higher rate", "sudo stackhound run -F 999 -o flame.html train.py --epochs 3"),
    ("a module, as python -m runs it", "sudo stackhound run -m pytest tests"),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES, context_settings={"allow_interspersed_args": False})
@record_options
@flag("-m", "as_module", help="SCRIPT is the name of a module.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
@verbose_option
def command(context: click.Context, /, script: str, arguments: tuple[str, ...], as_module: bool, **_: object) -> int:
    """Record SCRIPT, run by the Python that stackhound is installed in.

    It is 'stackhound record -- python SCRIPT ARGUMENTS': at its end it prints where the time went and writes the
    profile.
    """
    given = {**context.params, "command": (sys.executable, *(["-m"] * as_module), script, *arguments)}
    return run_record(Request.parse(given, verbosity_of(context).level))
