"""``stackhound bench``: continuous benchmarking, each subcommand imported when it is asked for."""

from __future__ import annotations

from typing import Final

import click

from stackhound.cli.subcommands import Subcommands

SUBCOMMANDS: Final = {
    "run": "Run the benchmarks that a file declares.",
    "compare": "Compare two builds, commands or files with results.",
    "gate": "Compare, and exit with 3 where there is a regression.",
    "history": "Keep results in a file, and show them over time.",
    "check": "Hold results against the history, and exit with 3 where they are out of bounds.",
}
EXAMPLES: Final = (
    ("what bench.toml declares, into a file", "stackhound bench run bench.toml -o new.json"),
    ("what another harness measured, for Bencher", "stackhound bench run target/criterion --bmf -o -"),
    ("two builds, in turns, until the answer is clear", "stackhound bench compare --config bench.toml ../main ."),
    ("an exit status for CI", "stackhound bench gate --config bench.toml ../main ."),
)


@click.group(cls=Subcommands, subcommands=SUBCOMMANDS, start="bench_", examples=EXAMPLES)
def command() -> None:
    """Measure programs again and again, and stop regressions before they ship."""
