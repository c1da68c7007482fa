"""Where events are drawn: a track a process, below it one a thread, and below that what may overlap.

A pid that was used again is one process, and a thread that renamed itself is one: readers tell them by their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stackhound.formats.perfetto import packets
from stackhound.profile.escape import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile import Profile


class Tracks:
    """The tracks of a trace, by their numbers. Each one that is asked for is written."""

    def __init__(self, profile: Profile) -> None:
        processes = profile.numbers("threads", "process")
        self._profile = profile
        self.pids: list[int] = profile.numbers("processes", "pid")[processes].tolist()
        self.tids: list[int] = profile.numbers("threads", "tid").tolist()
        self._comms = dict(zip(zip(self.pids, self.tids, strict=True), profile.texts("threads", "comm"), strict=True))
        self._rows = {pid: row for row, pid in enumerate(profile.numbers("processes", "pid").tolist())}
        self._uuids: dict[tuple[object, ...], int] = {}
        self._packets: list[bytes] = []

    def process(self, pid: int) -> int:
        """The track of a process."""
        key = ("process", pid)
        if key not in self._uuids:
            row = self._rows[pid]
            name, command_line = (
                printable(self._profile.texts("processes", column)[row]) for column in ("comm", "command_line")
            )
            start_ns = int(self._profile.numbers("processes", "start_boottime_ns")[row])
            self._packets.append(packets.process_track(self._new(key), pid, name, command_line, start_ns))
        return self._uuids[key]

    def thread(self, row: int) -> int:
        """The track of a row of the table ``threads``."""
        pid, tid = self.pids[row], self.tids[row]
        key = ("thread", pid, tid)
        if key not in self._uuids:
            parent = self.process(pid)
            name = printable(self._comms[pid, tid])
            self._packets.append(packets.thread_track(self._new(key), parent, pid, tid, name))
        return self._uuids[key]

    def below_thread(self, row: int, name: str, lane: int) -> int:
        """One more track of a thread; several lanes where things overlap."""
        parent = self.thread(row)
        key = ("below", parent, name, lane)
        if key not in self._uuids:
            self._packets.append(packets.named_track(self._new(key), parent, printable(name)))
        return self._uuids[key]

    def counter(self, pid: int, name: str, unit: str) -> int:
        """A curve of a process."""
        parent = self.process(pid)
        key = ("counter", parent, name)
        if key not in self._uuids:
            self._packets.append(packets.counter_track(self._new(key), parent, printable(name), unit))
        return self._uuids[key]

    def written(self) -> Iterator[bytes]:
        """The packets that describe them, parents first."""
        yield from self._packets

    def _new(self, key: tuple[object, ...]) -> int:
        self._uuids[key] = len(self._uuids) + 1
        return self._uuids[key]
