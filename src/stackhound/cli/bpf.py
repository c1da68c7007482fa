"""``stackhound bpf``: the machine's eBPF programs, each subcommand imported when it is asked for."""

from __future__ import annotations

from typing import Final

import click

from stackhound.cli.subcommands import Subcommands

SUBCOMMANDS: Final = {
    "list": "List the programs that are loaded.",
    "show": "Show one program with its maps.",
    "top": "Show what each program costs right now.",
    "profile": "Show where programs spend their time, to the source line.",
    "verify": "Say whether the kernel takes a program, and what that takes.",
    "bench": "Measure what one run of a program takes.",
}
EXAMPLES: Final = (
    ("what is loaded, and by whom", "sudo stackhound bpf list"),
    ("one program: code, maps, where it is attached", "sudo stackhound bpf show 42"),
    ("which program takes how much of the CPUs", "sudo stackhound bpf top"),
)


@click.group(cls=Subcommands, subcommands=SUBCOMMANDS, start="bpf_", examples=EXAMPLES)
def command() -> None:
    """Measure eBPF programs, whoever loaded them."""
