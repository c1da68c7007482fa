"""``stackhound doctor``: a line for each thing that a recording depends on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.verbosity import verbose_option
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from stackhound.recording.doctor import Finding, State

EXAMPLES: Final = (
    ("what root may do here", "sudo stackhound doctor"),
    ("only what is not as it should be", "sudo stackhound doctor | grep -v '^ok'"),
    ("for a script", "sudo stackhound doctor --json"),
)

COLORS: Final[dict[State, str]] = {"ok": "green", "degraded": "yellow", "missing": "red"}


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="A JSON array of {subject, state, detail, remedy}.")
@verbose_option
def command(as_json: bool) -> None:
    """Say what this kernel, these capabilities and these limits allow, and how to mend the rest.

    Nothing is changed. Each line is ok, degraded (it works, with less) or missing, and ends with the remedy. Run it
    as you would record: the answer for root is another one.
    """
    from stackhound.recording.doctor import examine
    from stackhound.recording.machine import Machine

    findings = examine(Machine())
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
        return
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        click.echo(_format(finding, width))
    states = Counter(finding.state for finding in findings)
    click.echo(", ".join(f"{states[state]} {state}" for state in COLORS))


def _format(finding: Finding, width: int) -> str:
    state = click.style(f"{finding.state:8}", fg=COLORS[finding.state])
    remedy = f" → {finding.remedy}" if finding.remedy else ""
    return f"{state}  {finding.subject:{width}}  {printable(finding.detail + remedy)}"
