"""Waiting for the end of a recording, and saying meanwhile how it goes."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stackhound.cli.signals import Signals
    from stackhound.recording import Recorder
    from stackhound.recording.launch import Command
    from stackhound.recording.recorder import Status

#: How often the targets are looked at. A look wakes Python with cold caches: 150–200 µs on a busy machine, 0.02% of a
#: CPU at one a second, and as much again for the line. Signals and COMMAND's end are seen at once.
LOOK_INTERVAL_S: Final = 1.0
#: The same where there is neither a line to write nor a target that may end: only a recording that broke off.
RARE_LOOK_INTERVAL_S: Final = 10.0

CLEAR_LINE: Final = "\r\x1b[K"
HINT: Final = " · Ctrl-C ends it"  # where there is room


def wait_for_end(recorder: Recorder, signals: Signals, duration_s: float | None, command: Command | None) -> None:
    """Wait for a signal, COMMAND's end, the targets' end, or the end of the time."""
    deadline_s = time.monotonic() + duration_s if duration_s else float("inf")
    shows = sys.stderr.isatty() and command is None  # a COMMAND may write there, too
    interval_s = LOOK_INTERVAL_S if shows or recorder.options.pids else RARE_LOOK_INTERVAL_S
    while (left_s := deadline_s - time.monotonic()) > 0:
        if signals.wait(min(interval_s, left_s), command):
            break
        if command is not None and command.exit_status() is not None:
            break
        if recorder.wait(0) != "timeout":
            break
        if shows:
            _show(_status_line(recorder))
    if shows:
        _show("")


def wait_for_command(command: Command, signals: Signals) -> int:
    """Wait for COMMAND, which may outlive the recording, and give its status."""
    while (status := command.exit_status()) is None:
        signals.wait(LOOK_INTERVAL_S, command)
    return status


def stderr_columns() -> int | None:
    """The width of the terminal on stderr; None where there is none, or it does not say."""
    return os.get_terminal_size(sys.stderr.fileno()).columns or None if sys.stderr.isatty() else None


def describe_status(status: Status) -> str:
    """How a recording goes: samples, losses, cost."""
    from stackhound.profile.units import format_collector_cost, format_sample_cost, format_samples

    parts = [f"{status.elapsed_ns / 1e9:.0f} s", format_samples(status.samples), f"{status.lost:,} lost"]
    if status.bpf_runs:
        parts.append(format_sample_cost(status.bpf_ns / status.bpf_runs))
    if status.elapsed_ns:
        parts.append(format_collector_cost(status.collector_cpu_ns, status.elapsed_ns, status.resident_bytes))
    return " · ".join(parts)


def _status_line(recorder: Recorder) -> str:
    """The same in one line of the terminal."""
    text = describe_status(recorder.status())
    columns = stderr_columns()
    if columns is None or len(text) + len(HINT) < columns:
        return text + HINT
    return text[: columns - 1]


def _show(line: str) -> None:
    """Put it in the place of the one before."""
    sys.stderr.write(f"{CLEAR_LINE}{line}")
    sys.stderr.flush()
