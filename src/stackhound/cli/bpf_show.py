"""``stackhound bpf show``: all that is known of a program."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from stackhound.cli.bpf_list import as_object
from stackhound.cli.examples import ExampleCommand
from stackhound.cli.pager import show
from stackhound.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.bpf import Map, Program

EXAMPLES = (("by number, or by name", "sudo stackhound bpf show 42"), ("for a script", "… bpf show arrive --json"))


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("wanted", metavar="ID|NAME")
@click.option("--json", "as_json", is_flag=True, help="A JSON array, an object a program.")
@verbose_option
def command(wanted: str, as_json: bool) -> None:
    """Show a BPF program: its code, what the verifier did, its maps and how full they are, who holds it."""
    from stackhound.bpf import choose_programs, list_maps, list_programs

    programs = choose_programs(list_programs(), wanted)
    maps = {one.id: one for one in list_maps({map_id for program in programs for map_id in program.map_ids})}
    of_each = [[maps[map_id] for map_id in program.map_ids if map_id in maps] for program in programs]
    if as_json:
        document = [
            as_object(program) | {"maps": [asdict(one) for one in its]}
            for program, its in zip(programs, of_each, strict=True)
        ]
        click.echo(json.dumps(document, indent=1))
    else:
        show([line for program, its in zip(programs, of_each, strict=True) for line in _format(program, its)])


def _format(program: Program, maps: Sequence[Map]) -> Iterator[str]:
    from stackhound.profile.escape import printable

    yield click.style(printable(f"{program.name}  (program {program.id}, {program.type})"), bold=True)
    for label, text in _facts(program):
        yield f"  {label:12}{printable(text)}"
    for one in maps:
        yield f"  {'map':12}{printable(_describe_map(one))}"
    yield ""


def _facts(program: Program) -> Iterator[tuple[str, str]]:
    from stackhound.profile.units import format_value

    for place in program.attachments:
        yield "attached to", place.place
    for owner in program.owners:
        yield "held by", f"{owner.comm} ({owner.pid})"
    age_ns = max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - program.loaded_boottime_ns)
    yield "loaded", f"{format_value(age_ns, 'nanoseconds')} ago by user {program.uid}"
    machine = format_value(program.jited_bytes, "bytes") + " of machine code"
    yield "code", f"{program.instructions:,} instructions, {machine if program.jited_bytes else 'interpreted'}"
    if len(program.functions) > 1:
        yield "", f"in {len(program.functions)} functions"
    if program.verified_instructions:
        yield "verifier", f"{program.verified_instructions:,} instructions on all paths"
    yield "memory", format_value(program.memory_bytes, "bytes")
    yield "tag", program.tag
    if program.runs:
        each_ns = program.run_ns / program.runs
        yield "runs", f"{program.runs:,} while statistics were on, {each_ns:,.0f} ns each"
    if program.recursion_misses:
        yield "skipped", f"{program.recursion_misses:,} runs, because it was running already"


def _describe_map(one: Map) -> str:
    from stackhound.profile.units import format_value

    places = f"{one.max_entries:,}" if one.entries is None else f"{one.entries:,} of {one.max_entries:,}"
    element = f"{one.key_bytes} + {one.value_bytes} bytes"
    return f"{one.name} ({one.id}, {one.type}): {places} × {element}, {format_value(one.memory_bytes, 'bytes')}"
