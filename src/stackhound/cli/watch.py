"""Waiting for the end of a recording, and saying meanwhile how it goes."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from stackhound.recording.summary import status_line

if TYPE_CHECKING:
    from stackhound.cli.signals import Signals
    from stackhound.recording import Recorder
    from stackhound.recording.launch import Command

#: How often the targets are looked at: 4 × ~20 µs a second = 0.01% of a CPU. Signals are seen at once.
POLL_S: Final = 0.25
#: The live line changes every second look: twice a second.
LOOKS_A_LINE: Final = 2

CLEAR_LINE: Final = "\r\x1b[K"
HINT: Final = " · Ctrl-C ends it"  # where there is room


def wait_for_end(recorder: Recorder, signals: Signals, duration_s: float | None, command: Command | None) -> None:
    """Wait for a signal, COMMAND's end, the targets' end, or the end of the time."""
    deadline_s = time.monotonic() + duration_s if duration_s else float("inf")
    live = LiveLine(recorder, command)
    while (left_s := deadline_s - time.monotonic()) > 0:
        if signals.wait(min(POLL_S, left_s), command):
            break
        if command is not None and command.exit_status() is not None:
            break
        if recorder.wait(0) != "timeout":
            break
        live.show()
    live.clear()


def wait_for_command(command: Command, signals: Signals) -> int:
    """Wait for COMMAND, which may outlive the recording, and give its status."""
    while (status := command.exit_status()) is None:
        signals.wait(POLL_S, command)
    return status


class LiveLine:
    """The line on stderr, while it is a terminal and no COMMAND writes there, too."""

    def __init__(self, recorder: Recorder, command: Command | None) -> None:
        self._recorder = recorder
        self._shown = sys.stderr.isatty() and command is None
        self._looks = 0

    def show(self) -> None:
        """Write it, at every second call."""
        self._looks += 1
        if self._shown and self._looks % LOOKS_A_LINE == 0:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns - 1
            text = status_line(self._recorder.status())
            hint = HINT if len(text) + len(HINT) <= columns else ""
            click.echo(f"{CLEAR_LINE}{text[:columns]}{hint}", err=True, nl=False, color=True)

    def clear(self) -> None:
        """Take it away."""
        if self._shown:
            click.echo(CLEAR_LINE, err=True, nl=False, color=True)
