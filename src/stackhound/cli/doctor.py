"""``stackhound doctor``: a line for each thing that a recording, complete stacks and names depend on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import pids_option
from stackhound.cli.verbosity import verbose_option
from stackhound.errors import UsageError
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackhound.recording.doctor import Finding, State

EXAMPLES: Final = (
    ("what root may do here", "sudo stackhound doctor"),
    ("only what is not as it should be", "sudo stackhound doctor | grep -v '^ok'"),
    ("what a process offers of its code", "sudo stackhound doctor -p 1234"),
    ("why stacks of a profile are incomplete", "stackhound doctor stackhound.hound"),
    ("for a script", "sudo stackhound doctor --json"),
)

COLORS: Final[dict[State, str]] = {"ok": "green", "degraded": "yellow", "missing": "red"}


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("profile_path", metavar="[PROFILE]", required=False, type=click.Path(path_type=Path))
@pids_option
@click.option("--json", "as_json", is_flag=True, help="A JSON array of {subject, state, detail, remedy, …}.")
@verbose_option
def command(profile_path: Path | None, pids: tuple[int, ...], as_json: bool) -> None:
    """Say what this kernel, these capabilities and these limits allow, and how to mend the rest.

    With -p: how each file that the process runs unwinds, and what names it. With a PROFILE: through which files its
    stacks went, how many were complete, and why the others broke.

    Nothing is changed. Each line is ok, degraded (it works, with less) or missing, and ends with the remedy. Run it
    as you would record: the answer for root is another one.
    """
    if profile_path and pids:
        raise UsageError("a profile and -p were given", "ask for one after the other")
    findings = _examine(profile_path, pids)
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
        return
    width = max(len(_subject(finding)) for finding in findings)
    for finding in findings:
        click.echo(_format(finding, width))
    states = Counter(finding.state for finding in findings)
    click.echo(", ".join(f"{states[state]} {state}" for state in COLORS))


def _examine(profile_path: Path | None, pids: tuple[int, ...]) -> Sequence[Finding]:
    if profile_path:
        from stackhound.profile import load
        from stackhound.recording.profile_doctor import examine_profile

        return examine_profile(load(profile_path))
    if pids:
        from stackhound.recording.process_doctor import examine_process

        return [finding for pid in pids for finding in examine_process(pid)]
    from stackhound.recording.doctor import examine
    from stackhound.recording.machine import Machine

    return examine(Machine())


def _subject(finding: Finding) -> str:
    return printable(finding.subject)


def _format(finding: Finding, width: int) -> str:
    state = click.style(f"{finding.state:8}", fg=COLORS[finding.state])
    remedy = f" → {finding.remedy}" if finding.remedy else ""
    return f"{state}  {_subject(finding):{width}}  {printable(finding.detail + remedy)}"
