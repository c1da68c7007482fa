"""The threads of a dump, to read and as JSON.

    Process 4242: python3 app.py --port 80
    CPython 3.11.2, 3 threads

    Thread 4242 (python3): running on CPU 1, holds the GIL, 12.3 s of CPU time
        app.parse  /srv/app.py:40
        app.main  /srv/app.py:12
        main  (python3.11)

    2 threads, 4250, 4251 (worker): sleeping, waits for a lock or a condition (futex)
        futex_do_wait  (kernel)
        …

Frames are leaf first. Where a source line is not known the object stands in its place, and the reason where there is
no name. docs/dump.md describes the JSON.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import click

from stackhound.formats import escape
from stackhound.profile.completeness import COMPLETE, WITHOUT_STACK
from stackhound.profile.escape import printable
from stackhound.profile.facts import notes
from stackhound.profile.threads import NOT_TAKEN, read_threads, unix_ns
from stackhound.profile.units import format_value
from stackhound.profile.waits import WAITS_FOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.profile import Profile
    from stackhound.profile.threads import Process, Thread, ThreadFrame

#: Of the JSON. It counts up when a field changes its meaning or goes; new ones may come.
JSON_VERSION: Final = 1
#: Ids that are named of a group; the others are counted.
NAMED_THREADS: Final = 8
MAX_COMMAND_LINE: Final = 300
#: What the kernel's own text is called in profiles, as perf calls it.
KERNEL: Final = "[kernel.kallsyms]"

COLORS: Final = {"python": "green", "kernel": "yellow", "jit": "cyan", "bpf": "magenta"}
STATES: Final = {
    "runnable": "waits for a CPU",
    "uninterruptible": "sleeping, not to be interrupted",
    "stopped": "stopped by a signal",
    "traced": "stopped by a debugger",
    "ended": "has ended",
}
LOCK: Final = {"held": "holds the GIL", "waiting": "waits for the GIL"}
SLEEPS: Final = frozenset({"sleeping", "uninterruptible"})
#: Ends of stacks that nothing is to be said of.
WHOLE: Final = WITHOUT_STACK | {COMPLETE}


def draw(profile: Profile, *, grouped: bool = False) -> Iterator[str]:
    """The lines to print.

    Args:
        profile: a dump.
        grouped: show threads of a process together whose stacks are the same and who wait for the same.
    """
    for number, process in enumerate(read_threads(profile)):
        if number:
            yield ""
        yield from _draw_process(process)
        for threads in _groups(process.threads) if grouped else ((thread,) for thread in process.threads):
            yield ""
            yield from _draw_threads(threads)
    for note in notes(profile):
        yield ""
        yield click.style(note, fg="yellow")


def as_json(profile: Profile) -> str:
    """A dump as one JSON object on one line, all ASCII by JSON's escapes."""
    processes = [
        {**_fields(process), "threads": [_thread_fields(profile, thread) for thread in process.threads]}
        for process in read_threads(profile)
    ]
    known = {"version": JSON_VERSION, "processes": processes, "notes": notes(profile)}
    return escape.as_json(known)


def _fields(process: Process) -> dict[str, Any]:
    return {name: value for name, value in vars(process).items() if name != "threads"}


def _thread_fields(profile: Profile, thread: Thread) -> dict[str, Any]:
    known = {**vars(thread), "waits_for": _waits_for(thread), "time_unix_ns": unix_ns(profile, thread.boottime_ns)}
    known["frames"] = [frame._asdict() for frame in thread.frames]
    return known


def _draw_process(process: Process) -> Iterator[str]:
    name = process.command_line or process.executable or f"[{process.comm}]"
    yield click.style(f"Process {process.pid}: {printable(name, MAX_COMMAND_LINE)}", bold=True)
    count = len(process.threads)
    known = (
        f"CPython {printable(process.python)}" if process.python else "",
        f"{count:,} thread{'' if count == 1 else 's'}",
        f"container {printable(process.container[:12])}" if process.container else "",
    )
    yield ", ".join(part for part in known if part)


def _groups(threads: Sequence[Thread]) -> Iterator[Sequence[Thread]]:
    """Threads alike, the largest group first; of two as large, the one with the lowest id."""
    by_likeness: dict[tuple[object, ...], list[Thread]] = {}
    for thread in threads:
        by_likeness.setdefault((thread.frames, thread.stack, _describe(thread)), []).append(thread)
    yield from sorted(by_likeness.values(), key=lambda alike: -len(alike))


def _draw_threads(threads: Sequence[Thread]) -> Iterator[str]:
    """One thread, or some alike."""
    first = threads[0]
    cpu = f"{format_value(sum(thread.cpu_ns for thread in threads), 'nanoseconds')} of CPU time"
    what = ", ".join((*_describe(first), cpu))
    yield f"{click.style(_names(threads), bold=True)}: {what}"
    yield from (f"    {_draw_frame(frame)}" for frame in first.frames)
    yield from (click.style(f"    ({said})", dim=True) for said in _lacks(first))


def _names(threads: Sequence[Thread]) -> str:
    named = [
        f"{', '.join(str(thread.tid) for thread in alike)} ({printable(comm)})"
        for comm, alike in groupby(threads[:NAMED_THREADS], key=lambda thread: thread.comm)
    ]
    if len(threads) == 1:
        return f"Thread {named[0]}"
    more = len(threads) - NAMED_THREADS
    return f"{len(threads):,} threads, {', '.join(named)}{f' and {more:,} more' if more > 0 else ''}"


def _describe(thread: Thread) -> tuple[str, ...]:
    """What it does: parts of a sentence."""
    state = (
        f"running on CPU {thread.cpu}"
        if thread.state == "running"
        else STATES.get(thread.state, printable(thread.state))
    )
    waits_for = _waits_for(thread)
    call = f"in {thread.system_call}" if thread.system_call and thread.system_call != "page fault" else ""
    if waits_for:
        call = f"waits for {waits_for}" + (f" ({thread.system_call})" if call else "")
    lock = "" if waits_for else LOCK.get(thread.gil or "", "")
    known = (state, call, "waits for a device" if thread.io_wait else "", lock)
    return tuple(part for part in known if part)


def _waits_for(thread: Thread) -> str | None:
    """What ends its sleep, in words."""
    if thread.state not in SLEEPS:
        return None
    if thread.gil == "waiting":
        return "the GIL"
    return WAITS_FOR.get(thread.system_call or "")


def _draw_frame(frame: ThreadFrame) -> str:
    name = click.style(printable(frame.name), fg=COLORS.get(frame.kind))
    return f"{name}{' [inlined]' if frame.inlined else ''}  {click.style(_place(frame), dim=True)}"


def _place(frame: ThreadFrame) -> str:
    if frame.reason is not None:
        return f"({printable(frame.reason)})"
    if frame.file:
        return printable(frame.file) + (f":{frame.line}" if frame.line else "")
    if frame.object == KERNEL:
        return "(kernel)"
    return f"({printable(frame.object.rpartition('/')[2].strip('[]'))})"


def _lacks(thread: Thread) -> Iterator[str]:
    """Why the stack is not whole."""
    if thread.stack == NOT_TAKEN:
        yield f"no stack: {NOT_TAKEN}"
    elif thread.stack not in WHOLE:
        yield f"callers are missing: {thread.stack}"
    if thread.python == "cut":
        yield "Python functions are missing: there are too many, or they could not be read"
    elif thread.python == "guessed":
        yield "Python functions may stand at the wrong place among the native ones"
