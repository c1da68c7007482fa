"""Processes and threads of a profile, found by what people call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.escape import printable
from stackhound.profile.portions import OFF_CPU, ON_CPU

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Profile

LISTED: Final = 8


def find_process(profile: Profile, asked: str) -> int:
    """The pid of the process that has this id or name; empty: of the busiest one that was sampled.

    Its name is its comm, or the last part of its executable's path. A process whose threads alone have that name is
    found by it, too.

    Raises:
        UsageError: there is none, or there are several.
    """
    if not asked:
        return _busiest(profile)
    pids = profile.numbers("processes", "pid")
    if asked.isascii() and asked.isdecimal():
        found = pids[pids == int(asked)]
    else:
        found = pids[_named(profile, asked)]
        if len(found) == 0:
            found = pids[profile.numbers("threads", "process")[_threads_named(profile, asked)]]
    return _only(sorted(set(found.tolist())), asked)


def threads_of(profile: Profile, pid: int) -> Numbers:
    """The threads of a process: bool (n_threads,)."""
    of_process: Numbers = (profile.numbers("processes", "pid") == pid)[profile.numbers("threads", "process")]
    return of_process


def _named(profile: Profile, name: str) -> Numbers:
    columns = zip(profile.texts("processes", "comm"), profile.texts("processes", "executable"), strict=True)
    return np.array([name in (comm, path.rpartition("/")[2]) for comm, path in columns], bool)


def _threads_named(profile: Profile, name: str) -> Numbers:
    return np.array([comm == name for comm in profile.texts("threads", "comm")], bool)


def _only(pids: list[int], asked: str) -> int:
    if len(pids) == 1:
        return pids[0]
    if pids:
        raise UsageError(f"{printable(asked)!r} is {len(pids)} processes: {_listed(pids)}", "give one of these ids")
    raise UsageError(f"this profile has no process {printable(asked)!r}", "'report --sort process' lists those it has")


def _listed(pids: Iterable[int]) -> str:
    shown = [str(pid) for pid in pids]
    more = len(shown) - LISTED
    return ", ".join(shown[:LISTED]) + (f" and {more} more" if more > 0 else "")


def _busiest(profile: Profile) -> int:
    """The process with the most time on the CPU; where that was not recorded, off it."""
    names = {event.name for event in profile.events}
    event = profile.event(ON_CPU if ON_CPU in names else OFF_CPU)
    samples = profile.samples_of(event)
    process = profile.numbers("threads", "process")[samples.thread]
    pids, index = np.unique(profile.numbers("processes", "pid")[process], return_inverse=True)
    if len(pids) == 0:
        raise UsageError(f"nothing was sampled of {event.name}", "give a process id")
    return int(pids[np.argmax(np.bincount(index, samples.value))])


def find_threads(profile: Profile, asked: str) -> Numbers:
    """The threads that are asked for: bool (n_threads,).

    Args:
        profile: whose threads.
        asked: the id of a process: all of its threads; that of another thread: it alone; the name of threads or of
            processes: all of these; empty: those of the busiest process.

    Raises:
        UsageError: there is none.
    """
    if not asked:
        return threads_of(profile, _busiest(profile))
    if asked.isascii() and asked.isdecimal():
        found = threads_of(profile, int(asked))
        if not found.any():
            found = profile.numbers("threads", "tid") == int(asked)
    else:
        found = _threads_named(profile, asked)
        if not found.any():
            found = _named(profile, asked)[profile.numbers("threads", "process")]
    if not found.any():
        raise UsageError(
            f"this profile has no thread {printable(asked)!r}", "'report --sort thread' lists those it has"
        )
    return found
