"""Texts, files, frames and stacks, each written once and named by number from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackhound.formats.perfetto import packets
from stackhound.profile.columns import distinct
from stackhound.profile.escape import printable
from stackhound.profile.paths import read_paths, select_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

#: A packet of them is about so large: readers hold a packet in memory as a whole.
CHUNK_BYTES: Final = 1 << 20
#: A C++ name can be a megabyte long. Of a longer one the beginning is shown.
LONGEST_TEXT: Final = 2000


class Interned:
    """What was interned so far. Numbers begin with 1: 0 stands for nothing."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, str], int] = {}
        self._counts: dict[int, int] = {}
        self._entries: list[bytes] = []

    def number(self, table: int, text: str) -> int:
        """The number of a text of the profile in a table of `packets`; it is escaped."""
        known = self._ids.get((table, text))
        return known or self._add(table, text, printable(text, LONGEST_TEXT).encode())

    def number_or_none(self, table: int, text: str) -> int:
        """The same; 0 for the empty text."""
        return self.number(table, text) if text else 0

    def build_id(self, digits: str) -> int:
        """The number of a build-id in hexadecimal digits; 0 for anything else."""
        if known := self._ids.get((packets.BUILD_IDS, digits)):
            return known
        try:
            raw = bytes.fromhex(digits)
        except ValueError:  # a damaged file may hold any text
            return 0
        return self._add(packets.BUILD_IDS, digits, raw) if raw else 0

    def add(self, entry: bytes) -> None:
        """Add what has a number of its own."""
        self._entries.append(entry)

    def chunks(self) -> Iterator[bytes]:
        """The packets of everything that was added."""
        waiting: list[bytes] = []
        size = 0
        for entry in self._entries:
            waiting.append(entry)
            size += len(entry)
            if size >= CHUNK_BYTES:
                yield packets.interned_packet(b"".join(waiting))
                waiting, size = [], 0
        if waiting:
            yield packets.interned_packet(b"".join(waiting))

    def _add(self, table: int, text: str, value: bytes) -> int:
        iid = self._counts.get(table, 0) + 1
        self._counts[table] = self._ids[table, text] = iid
        self._entries.append(packets.interned_bytes(table, iid, value))
        return iid


def intern_stacks(profile: Profile, interned: Interned, stacks: Numbers) -> None:
    """Add these stacks, rows of the table ``stacks`` without the empty one; their numbers are those of the rows."""
    tree = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    offsets, locations = select_paths(*tree, stacks)
    references = _intern_frames(profile, interned, distinct(locations))
    bounds = zip(stacks.tolist(), offsets.tolist(), offsets[1:].tolist(), strict=False)
    for stack, start, end in bounds:
        path = b"".join([references[location] for location in locations[start:end].tolist()])
        interned.add(packets.interned_callstack(stack, path))


def _intern_frames(profile: Profile, interned: Interned, locations: Numbers) -> dict[int, bytes]:
    """What stacks refer to each of these locations by: a frame a function, outermost first."""
    frames = profile.frames_with_lines
    offsets, ids = frames.offsets.tolist(), frames.frames.tolist()
    addresses = profile.numbers("locations", "address").tolist()
    objects = profile.numbers("locations", "object").tolist()
    lines = frames.line.tolist()
    files = _Files(profile, interned)
    references = {}
    count = 0
    for location in locations.tolist():
        parts = []
        for frame in ids[offsets[location] : offsets[location + 1]]:
            count += 1
            entry = packets.interned_frame(
                count,
                interned.number(packets.FUNCTION_NAMES, frames.name[frame]),
                files.number(objects[location]),
                addresses[location],
                interned.number_or_none(packets.SOURCE_PATHS, frames.file[frame]),
                lines[frame],
                packets.FRAME_KINDS.get(frames.kind[frame], 0),
            )
            interned.add(entry)
            parts.append(packets.frame_reference(count))
        references[location] = b"".join(parts)
    return references


class _Files:
    """The objects that frames are in, by their rows, each added when it is asked for."""

    def __init__(self, profile: Profile, interned: Interned) -> None:
        self._paths, self._build_ids = (profile.texts("objects", name) for name in ("path", "build_id"))
        self._interned = interned
        self._known: set[int] = set()

    def number(self, row: int) -> int:
        """The number of a file."""
        if row not in self._known:
            self._known.add(row)
            path = self._interned.number(packets.MAPPING_PATHS, self._paths[row])
            self._interned.add(packets.interned_mapping(row + 1, self._interned.build_id(self._build_ids[row]), path))
        return row + 1
