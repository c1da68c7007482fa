"""``stackhound export``: a profile in another format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from stackhound import formats
from stackhound.cli.examples import ExampleCommand
from stackhound.cli.output import choose_target
from stackhound.cli.parameters import event_option, input_argument, output_option
from stackhound.cli.selection import Selection, selection_options
from stackhound.cli.verbosity import verbose_option
from stackhound.errors import UsageError
from stackhound.recording.invoker import find_invoker

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES: Final = (
    ("a flame graph to zoom and search", "stackhound export -o flame.html"),
    ("for 'go tool pprof'", "stackhound export night.hound -o night.pb.gz"),
    ("folded stacks of one event into a pipe", "stackhound export --event cpu --format folded | flamegraph.pl"),
    ("only what one process did in functions called json…", "stackhound export -p 1234 --focus ^json -o json.svg"),
    ("threads over time in ui.perfetto.dev", "stackhound export -o night.pftrace"),
    ("tables for polars, DuckDB, Spark", "stackhound export --format parquet -o tables"),
)


def describe_formats() -> str:
    """The registry's formats, for ``--help``."""
    width = max(len(known.name) for known in formats.FORMATS)
    lines = (f"  {known.name:{width}}  {''.join(known.suffixes[:1]):16}  {known.summary}" for known in formats.FORMATS)
    return "\n".join(("\b", "Formats:", *lines))


HELP: Final = f"""Write INPUT, by default stackhound.hound, in another format.

{describe_formats()}
"""


@click.command(cls=ExampleCommand, examples=EXAMPLES, help=HELP)
@input_argument
@output_option
@click.option("--format", "format_name", metavar="FORMAT", help="The format; without -o it goes to stdout.")
@event_option
@selection_options
@click.pass_context
@verbose_option
def command(
    context: click.Context,
    /,
    profile_path: Path,
    output: str | None,
    format_name: str | None,
    event: str | None,
    **_: object,
) -> None:
    if output is None and format_name is None:
        raise UsageError("where to, and in which format?", "for example -o flame.html, or --format folded")
    target = choose_target(output or "-", format_name)
    target.check()

    from stackhound.profile import load  # numpy and Arrow: a mistake above should not wait for them

    profile = Selection.parse(context.params).apply(load(profile_path))
    target.write(profile, event, owner=find_invoker())
