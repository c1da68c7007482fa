"""What each thread was doing: a dump's samples as objects, a process and a thread at a time.

Text in them comes from the processes: escape it wherever it is shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from stackhound.errors import UsageError
from stackhound.profile.columns import to_list
from stackhound.profile.completeness import KERNEL_THREAD
from stackhound.profile.metadata import read_int, read_text
from stackhound.profile.paths import read_paths
from stackhound.profile.schema import USER_ENDS, SampleFlag
from stackhound.profile.waits import find_system_call, waits_for_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stackhound.profile.profile import Profile

    PathReader = Callable[[int], tuple["ThreadFrame", ...]]

TABLE: Final = "thread_states"

#: How a thread's stack was not had: it ran each time that it was looked at.
NOT_TAKEN: Final = "it ran each time that it was looked at"


class ThreadFrame(NamedTuple):
    """One function of a stack.

    Attributes:
        name: the function; where it is not known the object's base name in brackets.
        kind: ``python``, ``user``, ``kernel``, ``jit`` or ``bpf``.
        object: path of the file that it is in.
        file: source file; empty when unknown.
        line: 0 when unknown.
        inlined: whether it was inlined into the next frame of the stack.
        reason: why it has no name; None when it has one.
    """

    name: str
    kind: str
    object: str
    file: str
    line: int
    inlined: bool
    reason: str | None


@dataclass(frozen=True)
class Thread:
    """A thread, at one moment.

    Attributes:
        ns_tid: its id in its own PID namespace.
        state: one of `schema.THREAD_STATES`.
        io_wait: whether it waited for a device.
        cpu: where it ran, or ran last.
        cpu_ns: its time on the CPU so far.
        boottime_ns: the moment, CLOCK_BOOTTIME; threads are looked at one after the other.
        system_call: in which it was, by its kernel stack.
        gil: whether it held Python's lock, waited for it, or did neither; None where that is not known.
        stack: how the walk of its native stack ended: one of `schema.USER_ENDS`, ``kernel thread`` or `NOT_TAKEN`.
        python: how that of Python's frames did; None when it runs no Python.
        frames: leaf first.
    """

    tid: int
    ns_tid: int
    comm: str
    state: str
    io_wait: bool
    cpu: int
    cpu_ns: int
    boottime_ns: int
    system_call: str | None
    gil: Literal["held", "waiting", "released"] | None
    stack: str
    python: Literal["complete", "cut", "guessed"] | None
    frames: tuple[ThreadFrame, ...]


@dataclass(frozen=True)
class Process:
    """A process and its threads, by their ids; ``python`` is the version of its interpreter."""

    pid: int
    ns_pid: int
    comm: str
    executable: str
    command_line: str
    container: str
    python: str | None
    threads: tuple[Thread, ...]


def read_threads(profile: Profile) -> list[Process]:
    """The processes of a dump, in the order of their ids; frames as `Profile.shown` shows them.

    Raises:
        UsageError: the profile is no dump.
    """
    if TABLE not in profile.tables:
        raise UsageError("this profile is no dump", "'stackhound dump' makes one")
    by_process: dict[int, list[Thread]] = {}
    processes = profile.numbers("threads", "process").tolist()
    for row, thread in _threads(profile):
        by_process.setdefault(processes[row], []).append(thread)
    found = [_process(profile, row, threads) for row, threads in by_process.items()]
    return sorted(found, key=lambda process: process.pid)


def unix_ns(profile: Profile, boottime_ns: int) -> int | None:
    """The Unix time of a moment; None where the profile does not say how its clock relates to it."""
    offset_ns = read_int(profile.metadata, "clock", "boot_to_unix_ns_start")
    return None if offset_ns is None else boottime_ns + offset_ns


def _process(profile: Profile, row: int, threads: list[Thread]) -> Process:
    pid = int(profile.numbers("processes", "pid")[row])
    comm, executable, command_line, container = (
        profile.texts("processes", name)[row] for name in ("comm", "executable", "command_line", "container")
    )
    return Process(
        pid=pid,
        ns_pid=int(profile.numbers("processes", "ns_pid")[row]),
        comm=comm,
        executable=executable,
        command_line=command_line,
        container=container,
        python=read_text(profile.metadata, "pythons", str(pid)) or None,
        threads=tuple(sorted(threads, key=lambda thread: (thread.tid != pid, thread.tid))),
    )


class _State(NamedTuple):
    """A row of the table ``thread_states``."""

    state: str
    io_wait: bool
    cpu_ns: int
    has_stack: bool


def _threads(profile: Profile) -> Iterator[tuple[int, Thread]]:
    """(row of the table ``threads``, what that thread did) of each sample that is a dump's, in their order."""
    shown = profile.shown
    whole_path, shown_path = _path_reader(profile), _path_reader(shown)
    names = ("id", "thread", "cpu", "boottime_ns", "flags", "stack")
    columns = [*(profile.numbers("samples", name) for name in names), shown.numbers("samples", "stack")]
    states = _states(profile)
    tids, ns_tids = (profile.numbers("threads", name).tolist() for name in ("tid", "ns_tid"))
    comms = profile.texts("threads", "comm")
    for sample, row, cpu, boottime_ns, flags, stack, shown_stack in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        if (known := states.get(sample)) is None:
            continue
        path = whole_path(stack)
        yield (
            row,
            Thread(
                tid=tids[row],
                ns_tid=ns_tids[row],
                comm=comms[row],
                state=known.state,
                io_wait=known.io_wait,
                cpu=cpu,
                cpu_ns=known.cpu_ns,
                boottime_ns=boottime_ns,
                system_call=find_system_call(path),
                gil=_gil(flags, path),
                stack=_end(flags) if known.has_stack else NOT_TAKEN,
                python=_python_end(flags),
                frames=shown_path(shown_stack),
            ),
        )


def _states(profile: Profile) -> dict[int, _State]:
    """By sample id."""
    flags = (to_list(profile.table(TABLE)[name]) for name in ("io_wait", "has_stack"))
    numbers = (profile.numbers(TABLE, name).tolist() for name in ("sample", "cpu_ns"))
    rows = zip(*numbers, profile.texts(TABLE, "state"), *flags, strict=True)
    return {
        sample: _State(state, bool(io_wait), cpu_ns, bool(has_stack))
        for sample, cpu_ns, state, io_wait, has_stack in rows
    }


def _path_reader(profile: Profile) -> PathReader:
    """A function from a stack to its frames, leaf first."""
    offsets, locations = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    shown = profile.frames_with_lines.reversed()
    paths = profile.texts("objects", "path")
    lines, inlined, objects = shown.line.tolist(), shown.inlined.tolist(), shown.object.tolist()
    frames = [
        ThreadFrame(name, kind, paths[at], file, line, is_inlined, reason)
        for name, kind, at, file, line, is_inlined, reason in zip(
            shown.name, shown.kind, objects, shown.file, lines, inlined, shown.reason, strict=True
        )
    ]
    starts, ids = shown.offsets.tolist(), shown.frames.tolist()

    @cache
    def path(stack: int) -> tuple[ThreadFrame, ...]:
        leaf_first = locations[offsets[stack] : offsets[stack + 1]][::-1].tolist()
        return tuple(frames[one] for at in leaf_first for one in ids[starts[at] : starts[at + 1]])

    return path


def _gil(flags: int, path: tuple[ThreadFrame, ...]) -> Literal["held", "waiting", "released"] | None:
    if not flags & SampleFlag.GIL_KNOWN:
        return None
    if flags & SampleFlag.GIL_HELD:
        return "held"
    return "waiting" if waits_for_lock(path) else "released"


def _end(flags: int) -> str:
    if flags & SampleFlag.KERNEL_THREAD:
        return KERNEL_THREAD
    end = (flags & SampleFlag.USER_END) >> SampleFlag.USER_END_SHIFT
    return USER_ENDS[end] if end < len(USER_ENDS) else USER_ENDS[0]


def _python_end(flags: int) -> Literal["complete", "cut", "guessed"] | None:
    if not flags & SampleFlag.PYTHON:
        return None
    if flags & SampleFlag.PYTHON_CUT:
        return "cut"
    return "guessed" if flags & SampleFlag.PYTHON_GUESSED else "complete"
