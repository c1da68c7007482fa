"""``stackhound bpf verify``: whether the kernel takes the programs of an object file, and what that takes it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.bpf.verify import Refusal, Verdict

EXAMPLES: Final = (
    ("does this kernel take them, and how hard is it?", "sudo stackhound bpf verify app.bpf.o"),
    ("the verifier's own words, too", "sudo stackhound bpf verify app.bpf.o --program parse --log"),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("path", metavar="OBJECT", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--program", "programs", multiple=True, metavar="NAME", help="Only this one; repeatable.")
@click.option("--log", "with_log", is_flag=True, help="With the verifier's own words.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array, an object a program.")
@click.pass_context
@verbose_option
def command(
    context: click.Context, /, path: Path, programs: tuple[str, ...], with_log: bool, as_json: bool, **_: object
) -> None:
    """Load each program of OBJECT by itself, and unload it: what the verifier had to do, or why it refuses.

    Exits with 1 when one is refused.
    """
    from stackhound.bpf.verify import verify

    verdicts = verify(path, programs, in_words=with_log)
    if as_json:
        left_out = () if with_log else ("log",)
        rows = [{key: value for key, value in asdict(one).items() if key not in left_out} for one in verdicts]
        click.echo(json.dumps(rows, indent=1))
    else:
        for verdict in verdicts:
            click.echo("\n".join(_format(verdict, with_log)))
    if any(verdict.refusal for verdict in verdicts):
        context.exit(1)


def _format(verdict: Verdict, with_log: bool) -> Iterator[str]:
    from stackhound.profile.escape import printable

    figures = verdict.figures
    if verdict.refusal:
        yield click.style(printable(f"{verdict.program}: refused"), fg="red", bold=True)
        yield from _explain(verdict.refusal)
    elif figures:
        stack = " + ".join(map(str, figures.stack_bytes)) or "0"
        yield click.style(printable(f"{verdict.program}: accepted"), bold=True)
        yield f"  {figures.instructions:,} instructions on all paths, of {figures.limit:,}"
        yield f"  {figures.total_states:,} states, {figures.peak_states:,} at most at once; stack {stack} bytes"
    else:
        yield printable(f"{verdict.program}: accepted")
    if with_log:
        yield from (f"  | {printable(line)}" for line in verdict.log.splitlines())


def _explain(refusal: Refusal) -> Iterator[str]:
    from stackhound.profile.escape import printable

    yield f"  {printable(refusal.message)}"
    if refusal.source:
        place = f"{refusal.file}:{refusal.line}: " if refusal.file else ""
        yield f"  at {printable(place + refusal.source)}"
    if refusal.instruction:
        yield f"  instruction {printable(refusal.instruction)}"
    if refusal.registers:
        yield f"  registers before it: {printable(refusal.registers)}"
