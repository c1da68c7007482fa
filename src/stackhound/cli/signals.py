"""Signals while something is recorded: held back, and taken one at a time by whoever waits.

A handler would only run between two calls into the core, and could not tell who sent the signal. COMMAND must get
what a terminal sends exactly once: a terminal sends to the whole foreground group, ``kill`` to us alone.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.recording.launch import Command


@contextmanager
def held_signals() -> Iterator[Signals]:
    """Hold back what would end us. Threads that are started in the block never see these signals."""
    held = {signal.SIGINT, signal.SIGTERM, signal.SIGCHLD}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        held.add(signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield Signals(held)
    finally:
        while signal.sigtimedwait(held, 0):  # a second, impatient Ctrl-C must not spoil what is written by now
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Signals:
    """The signals held by `held_signals`."""

    def __init__(self, held: set[signal.Signals]) -> None:
        self._held = held

    def wait(self, timeout_s: float, command: Command | None) -> bool:
        """Wait for one; also COMMAND's end cuts the wait short. True when we were asked to end.

        COMMAND gets the signal too, unless a terminal has already sent it there.
        """
        taken = signal.sigtimedwait(self._held, max(0.0, timeout_s))
        if taken is None or taken.si_signo == signal.SIGCHLD:
            return False
        if command is not None and taken.si_code <= 0:  # SI_USER and its like; a terminal's is SI_KERNEL, 0x80
            command.send_signal(taken.si_signo)
        return True
