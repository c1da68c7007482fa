"""The lines of ``stackhound stream``: each sample as it happens, in one of three styles.

``default``, for people:

    [1763718192.000000042] COMM: curl (pid=4242) @ CPU 3
    Kernel:
    0xffffffff8164e7d0: vfs_read @ 0xffffffff8164e7c0+0x10
    Userspace:
    0x005581d02c1139: main @ 0x5581d02c1120+0x19 /src/main.c:12:5
                      parse @ /src/parse.h:40:9 [inlined]
    0x0072e2a97f4be0: <no-symbol> (no symbol table)

``index``, its frames numbered as the kernel's own reports have them:

    COMM: curl (pid=4242) @ CPU 3
    No Kernel Stack
    Userspace:
      0 [<00005581d02c1139>] main+0x19 /src/main.c:12
            parse /src/parse.h:40

``folded``, to pipe; a line a sample:

    curl;_start;main;parse_[i];vfs_read_[k] 1

The first two are leaf first, with a blank line after each sample. Inlined functions stand below the address that
holds them, the caller above the called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO

from stackhound.formats import escape, folded
from stackhound.profile.frames import miss_label
from stackhound.profile.schema import KERNEL_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from arro3.core import Table

Style = Literal["default", "index", "folded"]
FindShown = Callable[[Sequence[tuple[int, str, "str | None"]]], list[bool]]

#: Frames whose text is kept: 65,536 × ~150 bytes = 10 MB.
CACHED_FRAMES = 65_536
#: Folded stacks whose text is kept: 4,096 × ~1 KB = 4 MB.
CACHED_STACKS = 4_096


class Line(NamedTuple):
    """One function at a location, as printed."""

    name: str
    source: str  # " /src/main.c:12", as far as known
    column: str  # ":5", or empty


class Location(NamedTuple):
    """What a location prints."""

    kernel: bool
    offset: int  # of its address in the function that has it
    lines: list[Line]  # that function first, then those inlined into it; empty for a miss
    reason: str
    folded: str
    place: tuple[int, str, str | None]  # object, its kind, and the name of that function


class Sample(NamedTuple):
    boottime_ns: int
    cpu: int
    comm: str
    pid: int
    stack: int
    addresses: list[int]  # leaf first


class StreamWriter:
    """Writes samples in the order of their rows, and flushes after each.

    Args:
        out: where the lines go.
        style: ``default``, ``index`` or ``folded``.
        unix_offset_ns: Unix time − CLOCK_BOOTTIME.
        find_shown: which places of a path root → leaf are written: (object, its kind, name or None) each; None: all.
    """

    def __init__(
        self, out: TextIO, style: Style = "default", unix_offset_ns: int = 0, find_shown: FindShown | None = None
    ) -> None:
        self._out = out
        self._find_shown = find_shown
        self._format = {"default": self._default, "index": self._index, "folded": self._folded}[style]
        self._unix_offset_ns = unix_offset_ns
        self._names = _Names()
        self._default_frame = lru_cache(CACHED_FRAMES)(self._format_default_frame)
        self._index_frame = lru_cache(CACHED_FRAMES)(self._format_index_frame)
        self._folded_stack = lru_cache(CACHED_STACKS)(self._fold)
        self._shown = lru_cache(CACHED_STACKS)(self._choose_shown)

    def write(self, tables: Mapping[str, Table]) -> None:
        """Write every row of ``samples``.

        Args:
            tables: of each table the rows that are new since the last call, as `_native.Session.take` gives them.

        Raises:
            BrokenPipeError: the reader has gone.
        """
        self._names.add(tables)
        for sample in self._names.samples(tables):
            self._out.write(self._format(sample))
            self._out.flush()

    def _default(self, sample: Sample) -> str:
        seconds, nanoseconds = divmod(sample.boottime_ns + self._unix_offset_ns, 1_000_000_000)
        kernel, user = ([self._default_frame(*call) for call in half] for half in self._halves(sample))
        return f"[{seconds}.{nanoseconds:09}] {_header(sample)}{_body(kernel, user)}"

    def _index(self, sample: Sample) -> str:
        kernel, user = (
            [f"{number:3} {self._index_frame(*call)}" for number, call in enumerate(half)]
            for half in self._halves(sample)
        )
        return f"{_header(sample)}{_body(kernel, user)}"

    def _folded(self, sample: Sample) -> str:
        return f"{escape.folded(sample.comm)}{self._folded_stack(sample.stack)} 1\n"

    def _halves(self, sample: Sample) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
        """Kernel and user frames, leaf first, each (address, adjustment, location).

        The first address of a half is where the CPU was; each other one is a return address, one more than the
        address of its location.
        """
        kernel: list[tuple[int, int, int]] = []
        user: list[tuple[int, int, int]] = []
        in_half = {True: 0, False: 0}
        shown = self._shown(sample.stack)
        for address, location, is_shown in zip(sample.addresses, self._names.path(sample.stack), shown, strict=True):
            in_kernel = self._names.locations[location].kernel
            if is_shown:
                (kernel if in_kernel else user).append((address, min(in_half[in_kernel], 1), location))
            in_half[in_kernel] += 1
        return kernel, user

    def _choose_shown(self, stack: int) -> list[bool]:
        """Which locations of a stack are written, leaf first."""
        path = [self._names.locations[location].place for location in self._names.path(stack)]
        return [True] * len(path) if self._find_shown is None else self._find_shown(path[::-1])[::-1]

    def _format_default_frame(self, address: int, adjustment: int, location: int) -> str:
        _, offset, lines, reason, *_ = self._names.locations[location]
        if not lines:
            return f"{address:#016x}: <no-symbol> ({reason})\n"
        offset += adjustment
        name, source, column = lines[0]
        inlined = [f"{'':18}{_inlined(line)} [inlined]\n" for line in lines[1:]]
        return f"{address:#016x}: {name} @ {address - offset:#x}+{offset:#x}{source}{column}\n{''.join(inlined)}"

    def _format_index_frame(self, address: int, adjustment: int, location: int) -> str:
        _, offset, lines, reason, *_ = self._names.locations[location]
        if not lines:
            return f"[<{address:016x}>] <no-symbol> ({reason})\n"
        inlined = [f"{'':8}{line.name}{line.source}\n" for line in lines[1:]]
        return f"[<{address:016x}>] {lines[0].name}+{offset + adjustment:#x}{lines[0].source}\n{''.join(inlined)}"

    def _fold(self, stack: int) -> str:
        path = compress(self._names.path(stack), self._shown(stack))
        frames = [self._names.locations[location].folded for location in path]
        return "".join(f";{frame}" for frame in reversed(frames))


class _Names:
    """Everything that was told so far of stacks, locations and threads. An id is a row number."""

    def __init__(self) -> None:
        self.locations: list[Location] = []
        self._stacks: list[tuple[int, int]] = []  # parent, location
        self._threads: list[tuple[str, int]] = []  # comm, pid
        self._pids: list[int] = []
        self._objects: list[tuple[str, str]] = []  # kind, path
        self._functions: list[tuple[str, str, int]] = []  # name, file, start

    def add(self, tables: Mapping[str, Table]) -> None:
        self._pids += [pid for (pid,) in _rows(tables, "processes", "pid")]
        self._threads += [
            (escape.terminal(comm), self._pids[process])
            for comm, process in _rows(tables, "threads", "comm", "process")
        ]
        self._objects += _rows(tables, "objects", "kind", "path")
        self._functions += _rows(tables, "functions", "name", "file", "address")
        self._add_locations(tables)
        self._stacks += _rows(tables, "stacks", "parent", "location")

    def samples(self, tables: Mapping[str, Table]) -> Iterator[Sample]:
        addresses = dict(_rows(tables, "addresses", "sample", "addresses"))
        columns = ("id", "boottime_ns", "cpu", "thread", "stack")
        for number, boottime_ns, cpu, thread, stack in _rows(tables, "samples", *columns):
            comm, pid = self._threads[thread]
            yield Sample(boottime_ns, cpu, comm, pid, stack, addresses.get(number, []))

    def path(self, stack: int) -> Iterator[int]:
        """The locations of a stack, leaf first."""
        while stack:
            stack, location = self._stacks[stack]
            yield location

    def _add_locations(self, tables: Mapping[str, Table]) -> None:
        lines: dict[int, list[tuple[int, ...]]] = {}
        for location, *line in _rows(tables, "lines", "location", "depth", "function", "line", "column"):
            lines.setdefault(location, []).append(tuple(line))
        for number, object_id, address, reason in _rows(tables, "locations", "id", "object", "address", "reason"):
            outermost_first = sorted(lines.get(number, ()), reverse=True)
            self.locations.append(self._location(object_id, address, reason, outermost_first))

    def _location(self, object_id: int, address: int, reason: str | None, lines: list[tuple[int, ...]]) -> Location:
        kind, path = self._objects[object_id]
        functions = [self._functions[function] for _, function, _, _ in lines]
        names = [name for name, _, _ in functions] or [miss_label(path)]
        return Location(
            kernel=kind in KERNEL_KINDS,
            offset=address - functions[0][2] if functions else 0,
            lines=[
                _line(name, file, line, column)
                for (name, file, _), (_, _, line, column) in zip(functions, lines, strict=True)
            ],
            reason=escape.terminal(reason or ""),
            place=(object_id, kind, functions[0][0] if functions else None),
            folded=";".join(folded.frame(name, kind, inlined=depth > 0) for depth, name in enumerate(names)),
        )


def _line(name: str, file: str, line: int, column: int) -> Line:
    source = f" {escape.terminal(file)}" if file else ""
    if not file or not line:
        return Line(escape.terminal(name), source, "")
    return Line(escape.terminal(name), f"{source}:{line}", f":{column}" if column else "")


def _inlined(line: Line) -> str:
    return f"{line.name} @{line.source}{line.column}" if line.source else line.name


def _header(sample: Sample) -> str:
    return f"COMM: {sample.comm} (pid={sample.pid}) @ CPU {sample.cpu}\n"


def _body(kernel: list[str], user: list[str]) -> str:
    return f"{_section('Kernel', kernel)}{_section('Userspace', user)}\n"


def _section(title: str, frames: list[str]) -> str:
    return f"{title}:\n{''.join(frames)}" if frames else f"No {title} Stack\n"


def _rows(tables: Mapping[str, Table], table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    if table not in tables:
        return iter(())
    return zip(*(tables[table][column].to_pylist() for column in columns), strict=True)
