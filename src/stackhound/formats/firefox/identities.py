"""Which threads and processes there are: one that renamed itself is one still, and a pid given again is another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stackhound.profile.columns import number_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers


@dataclass(frozen=True, eq=False)
class Identities:
    """Threads, numbered anew.

    Attributes:
        of_thread: uint32: the number of each row of the table ``threads``.
        process: of each number, its row of the table ``processes``.
        tid: of each number.
        comm: of each number: the last one that it had.
        pids: of each row of ``processes``, told apart: ``7``, and ``7.1`` for the next program of that pid.
    """

    of_thread: Numbers
    process: list[int]
    tid: list[int]
    comm: list[str]
    pids: list[str]

    def __len__(self) -> int:
        return len(self.tid)


def identify(profile: Profile) -> Identities:
    """The threads of a profile."""
    processes, tids = (profile.numbers("threads", name).tolist() for name in ("process", "tid"))
    keys, of_thread = number_keys(zip(processes, tids, strict=True))
    comms = dict(zip(of_thread.tolist(), profile.texts("threads", "comm"), strict=True))
    return Identities(
        of_thread=of_thread,
        process=[process for process, _ in keys],
        tid=[tid for _, tid in keys],
        comm=[comms[number] for number in range(len(keys))],
        pids=_distinct(profile.numbers("processes", "pid").tolist()),
    )


def _distinct(pids: Iterable[int]) -> list[str]:
    seen: dict[int, int] = {}
    names = []
    for pid in pids:
        before = seen.get(pid, 0)
        seen[pid] = before + 1
        names.append(f"{pid}.{before}" if before else str(pid))
    return names
