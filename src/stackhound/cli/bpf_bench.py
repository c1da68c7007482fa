"""``stackhound bpf bench``: what one run of a program takes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import parse_duration
from stackhound.cli.verbosity import verbose_option
from stackhound.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.bpf.bench import Result

EXAMPLES: Final = (
    ("XDP, tc, socket filters: with a packet", "sudo stackhound bpf bench app.bpf.o --program parse --packet syn.bin"),
    ("a tracing program, where it is attached", "… bpf bench app.bpf.o --program on_switch --in-place 'make -j8'"),
    ("an XDP program under real packets", "… bpf bench app.bpf.o --program drop --in-place ./send --interface veth0"),
    ("for a script", "sudo stackhound bpf bench app.bpf.o --program parse --json"),
)
INCONCLUSIVE: Final = 4


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("path", metavar="OBJECT", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--program", required=True, metavar="NAME", help="The program to measure.")
@click.option(
    "--packet",
    type=click.Path(),
    metavar="FILE",
    help="The bytes of a packet, from its Ethernet header on; a .pcap: its first packet. Or module:function, a Python "
    "function that returns them.  [default: 64 zeros]",
)
@click.option(
    "--context",
    "given_context",
    type=click.Path(),
    metavar="FILE",
    help="The bytes of a context, for raw_tp and syscall programs, or module:function.",
)
@click.option("--maps", type=click.Path(), metavar="TOML", help="Elements first; or module:function.")
@click.option("--expect", "expected", type=int, metavar="N", help="What it must return.")
@click.option("--in-place", "place", metavar="COMMAND", help="Attach it, and run this meanwhile.")
@click.option("--interface", default="", metavar="NAME", help="Of the network, to attach XDP to (with --in-place).")
@click.option("--loads", type=click.IntRange(2), default=8, help="Load it so often at least.  [default: 8]")
@click.option("--most-loads", type=click.IntRange(2), default=256, help="And at most.  [default: 256]")
@click.option("--most-time", "most_s", type=parse_duration, default="2m", metavar="TIME", help="[default: 2m]")
@click.option("--batches", type=click.IntRange(2), default=20, help="Measurements a load.  [default: 20]")
@click.option("--json", "as_json", is_flag=True, help="A JSON object with ns_per_run, its interval and all loads.")
@click.pass_context
@verbose_option
def command(
    context: click.Context,
    /,
    path: Path,
    program: str,
    packet: str | None,
    given_context: str | None,
    maps: str | None,
    expected: int | None,
    place: str | None,
    interface: str,
    loads: int,
    most_loads: int,
    most_s: float,
    batches: int,
    as_json: bool,
    **_: object,
) -> None:
    """Measure a program of OBJECT: nanoseconds a run, without what running takes.

    The same program is faster or slower by where it is loaded, so it is loaded anew until the median is known to 2%.
    Exits with 4 where that takes more loads, or more time.
    """
    from stackhound.bpf.bench import Plan, bench
    from stackhound.bpf.commands import keep_running
    from stackhound.bpf.fixtures import find_context, find_maps, find_packet

    if interface and not place:
        raise UsageError("--interface is where a program is measured in place", "add --in-place COMMAND")
    plan = Plan(
        packet=find_packet(packet) if packet else Plan.packet,
        context=find_context(given_context) if given_context else b"",
        expected=expected,
        maps=find_maps(maps) if maps else {},
        loads=loads,
        most_loads=most_loads,
        most_s=most_s,
        batches=batches,
        place=keep_running(("sh", "-c", place), Path(), most_s) if place else None,
        interface=interface,
    )
    result = bench(path, program, plan)
    if as_json:
        interval = {"ns_per_run": result.ns_per_run.value, "low": result.ns_per_run.low, "high": result.ns_per_run.high}
        click.echo(json.dumps(asdict(result) | interval, indent=1))
    else:
        click.echo("\n".join(_format(result)))
    if not result.is_conclusive:
        context.exit(INCONCLUSIVE)


def _format(result: Result) -> Iterator[str]:
    ns, empty_ns = result.ns_per_run, result.empty_ns
    head = f"{result.program} ({result.type}): {ns.value:.1f} ns a run [{ns.low:.1f}, {ns.high:.1f}]"
    yield click.style(head, bold=True)
    if not result.is_conclusive:
        yield "  inconclusive: the loads differ too much"
    spread = f"{100 * result.load_spread:.0f}% from the fastest to the slowest"
    yield f"  {result.way}, {len(result.loads)} loads, {spread}; subtracted: {empty_ns:.1f} ns of an empty program"
    returned = "" if result.return_value is None else f"returned {result.return_value}; "
    yield f"  {returned}{result.instructions} instructions, {result.jited_bytes} bytes of machine code"
    if result.figures:
        yield f"  verifier: {result.figures.instructions:,} instructions, {result.figures.total_states:,} states"
