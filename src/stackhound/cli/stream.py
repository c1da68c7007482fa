"""``stackhound stream``: each sample as it happens, with its names."""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import click

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.parameters import debug_dirs_option, flag, frequency_option, pids_option, software_option
from stackhound.cli.signals import Signals, held_signals
from stackhound.cli.verbosity import INFO, WARN, verbose_option, verbosity_of
from stackhound.cli.watch import describe_status
from stackhound.recording.options import RecordOptions
from stackhound.recording.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

    from stackhound.formats.stream import StreamWriter, Style

DEFAULT_HZ: Final = 50
#: How long a sample waits at most before it is printed: 20 looks a second cost 20 × ~0.2 ms = 0.4% of a CPU.
TAKE_INTERVAL_S: Final = 0.05

EXAMPLES: Final = (
    ("every sample of the machine", "sudo stackhound stream"),
    ("of one process, its frames numbered", "sudo stackhound stream -p 1234 --style index"),
    ("folded lines into a flame graph", "sudo stackhound stream -E -f 99 | head -1000 | flamegraph.pl > flame.svg"),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@frequency_option(DEFAULT_HZ)
@pids_option
@software_option
@click.option("-E", "--fold-extend", "folded", is_flag=True, help="A folded line a sample: comm;root;…;leaf 1.")
@click.option("--style", type=click.Choice(["default", "index"]), default="default", help="Of the frames.")
@flag("--native-internals", help="Show the interpreter's own functions between Python's.")
@debug_dirs_option
@click.pass_context
@verbose_option
def command(
    context: click.Context,
    /,
    frequency_hz: int | None,
    pids: tuple[int, ...],
    software_only: bool,
    folded: bool,
    style: Style,
    native_internals: bool,
    debug_dirs: tuple[Path, ...],
) -> None:
    """Print each sample as it happens: kernel and user stack, with names, lines and inlined functions.

    It goes on until Ctrl-C, or until every process of -p has ended.
    """
    options = RecordOptions(
        pids=pids,
        frequency_hz=DEFAULT_HZ if frequency_hz is None else frequency_hz,
        software_only=software_only,
        debug_dirs=debug_dirs,
        raw_addresses=True,
        drain_interval_ms=round(TAKE_INTERVAL_S * 1000),
        log_level=verbosity_of(context).level,
    )
    with held_signals() as signals, closing(Recorder(options)) as recorder:
        recorder.start()
        # After the start: numpy and Arrow would delay the first sample.
        from stackhound.formats.stream import StreamWriter
        from stackhound.transform.interpreter import find_shown_places

        find_shown = None if native_internals else find_shown_places
        writer = StreamWriter(sys.stdout, "folded" if folded else style, _unix_offset_ns(), find_shown)
        _print_samples(recorder, writer, signals)
        _tell(recorder, verbosity_of(context).level)


def _print_samples(recorder: Recorder, writer: StreamWriter, signals: Signals) -> None:
    running = True
    while running:
        running = not signals.wait(TAKE_INTERVAL_S, None) and recorder.wait(0) == "timeout"
        writer.write(recorder.take())


def _tell(recorder: Recorder, level: int) -> None:
    """Say on stderr what was lost (a warning), or all that it took (info)."""
    if level < WARN:
        return
    status = recorder.status()
    if status.lost or level >= INFO:
        click.echo(describe_status(status), err=True)


def _unix_offset_ns() -> int:
    """Unix time − CLOCK_BOOTTIME."""
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
