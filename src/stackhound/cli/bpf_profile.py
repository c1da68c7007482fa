"""``stackhound bpf profile``: where BPF programs spend their time, by program, function and source line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import parse_duration
from stackhound.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.bpf.profile import Share
    from stackhound.profile import Profile

EXAMPLES: Final = (
    ("ten seconds", "sudo stackhound bpf profile"),
    ("then as a flame graph", "stackhound export bpf.hound -o bpf.html"),
    ("a program's source with the time beside its lines", "stackhound report bpf.hound --lines probe.bpf.c"),
)
HZ: Final = 4_999
LINES: Final = 10


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.option(
    "-d", "--duration", "duration_s", type=parse_duration, default="10s", metavar="TIME", help="[default: 10s]"
)
@click.option("-F", "--freq", "frequency_hz", type=click.IntRange(1), default=HZ, help="Samples a second and CPU.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default="bpf.hound", help="[default: bpf.hound]")
@click.option("--json", "as_json", is_flag=True, help="A JSON object with programs and lines.")
@verbose_option
def command(duration_s: float, frequency_hz: int, output: Path, as_json: bool) -> None:
    """Sample the whole machine, and show what of it was within BPF programs: by program, by function and by line.

    Beside it stands what the kernel's statistics say of the same time. The profile holds those samples alone, each
    stack from the program on.
    """
    from stackhound.bpf import Monitor, list_programs
    from stackhound.bpf.profile import share_out, within_programs
    from stackhound.recording import RecordOptions
    from stackhound.recording.recorder import Recorder

    with Monitor() as monitor, Recorder(RecordOptions(frequency_hz=frequency_hz)) as recorder:
        monitor.read()
        recorder.wait(duration_s)
        reading, programs = monitor.read(), list_programs()
    inside = within_programs(recorder.profile)
    inside.save(output)
    shares = share_out(inside, reading, programs)
    lines = hot_lines(inside)
    if as_json:
        click.echo(json.dumps({"programs": [_as_object(one) for one in shares], "lines": lines}, indent=1))
    else:
        click.echo("\n".join([*_programs(shares), *_lines(lines), f"wrote {output}"]))


def hot_lines(inside: Profile) -> list[dict[str, Any]]:
    """The lines with the most time of their own, and with what they called: ns."""
    from stackhound.cli.breakdown import break_down

    if inside.table("samples").num_rows == 0:
        return []
    rows = break_down(inside, inside.events[0], ("line", "symbol"))
    return [
        {"line": row.keys[0], "function": row.keys[1], "self_ns": row.self_value, "total_ns": row.total_value}
        for row in rows
        if str(row.keys[1]).startswith("bpf_prog_")
    ]


def _as_object(share: Share) -> dict[str, Any]:
    return {
        "name": share.name,
        "ids": share.ids,
        "sampled_ns": share.sampled_ns,
        "counted_ns": share.counted_ns,
        "elapsed_ns": share.elapsed_ns,
        "is_unseen": share.is_unseen,
    }


def _programs(shares: list[Share]) -> Iterator[str]:
    from stackhound.profile.escape import printable

    if not shares:
        yield "no BPF program ran"
        return
    yield click.style(f"{'sampled':>9} {'counted':>9}  program (ids)", bold=True)
    for share in shares:
        percents = (_percent(share.sampled_ns, share), _percent(share.counted_ns, share))
        ids = ", ".join(map(str, share.ids)) or "gone"
        yield printable(f"{percents[0]:>9} {percents[1]:>9}  {share.name} ({ids})")
    if unseen := [share.name for share in shares if share.is_unseen]:
        yield click.style(
            f"samples see too little of {printable(', '.join(unseen))}: run with interrupts off?", fg="yellow"
        )
    yield ""


def _percent(ns: float | None, share: Share) -> str:
    return "?" if ns is None else f"{100 * ns / share.elapsed_ns:.3f}%"


def _lines(lines: list[dict[str, Any]]) -> Iterator[str]:
    from stackhound.profile.escape import printable
    from stackhound.profile.units import format_value

    if not lines:
        return
    yield click.style(f"{'self':>9} {'total':>9}  line", bold=True)
    for one in lines[:LINES]:
        values = (format_value(one[key], "nanoseconds") for key in ("self_ns", "total_ns"))
        yield printable(f"{next(values):>9} {next(values):>9}  {one['line']}  {one['function']}")
    yield ""
