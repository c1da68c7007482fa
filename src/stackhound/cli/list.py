"""``stackhound list``: events by kind, and what is missing here."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.pager import show
from stackhound.cli.verbosity import verbose_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stackhound.recording.catalogue import Listed

EXAMPLES: Final = (
    ("what this machine has, tracepoints by category", "sudo stackhound list"),
    ("events with 'fault' in their names", "sudo stackhound list fault"),
    ("one kind", "sudo stackhound list software"),
    ("one category of tracepoints", "sudo stackhound list sched:"),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("text", metavar="[FILTER]", default="")
@click.option("--json", "as_json", is_flag=True, help="A JSON array of {name, kind, unit, missing}.")
@verbose_option
def command(text: str, as_json: bool) -> None:
    """List the events that 'record -e' takes; with FILTER, those with it in their name or kind.

    What this machine lacks stands there, too, with the reason. An event takes perf's modifiers :u and :k.
    """
    from stackhound.recording.catalogue import list_events

    found = [event for event in list_events() if text in event.name or text == event.kind]
    if as_json:
        click.echo(json.dumps([asdict(event) for event in found], indent=1))
    else:
        show(list(_format(found, by_category=not text)) or [f"no event has {text!r} in its name"])


def _format(events: Iterable[Listed], *, by_category: bool) -> Iterator[str]:
    for kind, of_kind in groupby(events, key=lambda event: event.kind):
        yield click.style(kind, bold=True)
        group = list(of_kind)
        if kind == "tracepoint" and by_category:
            yield from _categories([event for event in group if not event.missing])
        else:
            yield from (f"  {event.name:32}{event.unit}" for event in group if not event.missing)
        yield from _missing(group)


def _categories(tracepoints: Sequence[Listed]) -> Iterator[str]:
    for category, names in groupby(event.name.partition(":")[0] for event in tracepoints):
        yield f"  {f'{category}:…':32}{sum(1 for _ in names)}"
    if tracepoints:
        yield "  'stackhound list CATEGORY:' shows the events of one"


def _missing(events: Sequence[Listed]) -> Iterator[str]:
    """What is not there, one line a reason."""
    reasons: dict[str, list[str]] = {}
    for event in events:
        if event.missing:
            reasons.setdefault(event.missing, []).append(event.name)
    for reason, names in reasons.items():
        said = "none" if len(names) == len(events) else f"not {', '.join(names)}"
        yield click.style(f"  {said}: {reason}", dim=True)
