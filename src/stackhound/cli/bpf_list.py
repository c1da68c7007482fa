"""``stackhound bpf list``: the programs that are loaded."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.pager import show
from stackhound.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.bpf import Program

NAME_WIDTH = 32
PLACE_WIDTH = 44


@click.command(cls=ExampleCommand, examples=(("programs with 'sched' in a column", "sudo stackhound bpf list sched"),))
@click.argument("text", metavar="[FILTER]", default="")
@click.option("--json", "as_json", is_flag=True, help="A JSON array with all that is known of each.")
@verbose_option
def command(text: str, as_json: bool) -> None:
    """List the BPF programs that are loaded; with FILTER, those with it in name, type, place or owner."""
    from stackhound.bpf import list_programs

    programs = [one for one in list_programs() if any(text in cell for cell in cells_of(one))]
    if as_json:
        click.echo(json.dumps([as_object(one) for one in programs], indent=1))
    else:
        show(list(_format(programs)) or [f"no BPF program has {text!r}" if text else "no BPF program is loaded"])


def as_object(program: Program) -> dict[str, object]:
    """For JSON: attachments and owners as objects."""
    return asdict(program) | {
        "attachments": [one._asdict() for one in program.attachments],
        "owners": [one._asdict() for one in program.owners],
    }


def places_of(program: Program) -> str:
    """Where it is attached, in a few words."""
    return _some([one.place for one in program.attachments])


def owners_of(program: Program) -> str:
    """Who holds it, in a few words."""
    return _some([f"{one.comm} ({one.pid})" for one in program.owners])


def _some(texts: Sequence[str]) -> str:
    return f"{texts[0]} +{len(texts) - 1}" if len(texts) > 1 else "".join(texts)


def cells_of(program: Program) -> tuple[str, ...]:
    """What a filter is looked for in."""
    return (program.name, program.type, *(one.place for one in program.attachments), *(
        one.comm for one in program.owners
    ))  # fmt: skip


def _format(programs: Sequence[Program]) -> Iterator[str]:
    from stackhound.profile.escape import printable
    from stackhound.profile.units import format_value

    if not programs:
        return
    yield click.style(
        f"{'id':>6}  {'type':16}{'name':{NAME_WIDTH}}  {'code':>9} {'maps':>4}  {'attached to':{PLACE_WIDTH}}  held by",
        bold=True,
    )
    for one in programs:
        code = format_value(one.jited_bytes, "bytes") if one.jited_bytes else "interpreted"
        name, place = printable(one.name, NAME_WIDTH), printable(places_of(one), PLACE_WIDTH)
        line = f"{one.id:6}  {one.type:16}{name:{NAME_WIDTH}}  {code:>9} {len(one.map_ids):4}  {place:{PLACE_WIDTH}}"
        yield f"{line}  {printable(owners_of(one))}".rstrip()
