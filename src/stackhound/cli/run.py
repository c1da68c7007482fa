"""``stackhound run``: a Python script, recorded."""

from __future__ import annotations

import sys

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.record import run_record
from stackhound.cli.request import Request, record_options
from stackhound.cli.verbosity import verbose_option, verbosity_of

EXAMPLES = (
    ("a script with its arguments, into stackhound.hound", "sudo stackhound run train.py --epochs 3"),
    ("the same as a flame graph, at a higher rate", "sudo stackhound run -F 999 -o flame.html train.py --epochs 3"),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES, context_settings={"allow_interspersed_args": False})
@record_options
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
@verbose_option
def command(context: click.Context, /, script: str, arguments: tuple[str, ...], **_: object) -> int:
    """Record SCRIPT, run by the Python that stackhound is installed in.

    It is 'stackhound record -- python SCRIPT ARGUMENTS'.
    """
    given = {**context.params, "command": (sys.executable, script, *arguments)}
    return run_record(Request.parse(given, verbosity_of(context).level))
