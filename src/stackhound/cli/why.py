"""Where the wall time of a process went: ``report --why``.

    app (4242): 3 threads, 30.0 s of wall time in 10.0 s
    41.2% waiting for locks, 30.1% running its own code, 12.0% waiting for the disk
    99.3% accounted for; not known: 0.7%, 210 ms

      share       time  where
      41.2%     12.4 s  locks: futex 12.1 s, kernel lock 300 ms
                8.10 s    futex_wait_queue ← pthread_cond_wait ← Queue::pop ← worker

The stacks are in a few words (`BriefStacks`); where the terminal is too narrow the middle is left out.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

import click

from stackhound.profile.brief_stacks import ARROW
from stackhound.profile.escape import printable
from stackhound.profile.facts import cost_and_loss
from stackhound.profile.portions import OFF_CPU, ON_CPU, PLACES
from stackhound.profile.units import format_value
from stackhound.profile.wall_time import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stackhound.profile import Profile
    from stackhound.profile.brief_stacks import BriefStack
    from stackhound.profile.wall_time import PlaceTime, WallTime

#: Stacks of each place, and places in the sentence.
TOP: Final = 3
TIME_END: Final = 18  # column
MIN_WIDTH: Final = 20  # of a stack
#: A pipe has no width: as wide as people's terminals.
WIDTH: Final = 100

#: What an event that is missing would have told.
TELLS: Final = {ON_CPU: "time on the CPU", OFF_CPU: "time off the CPU"}


#: What was counted, by its event.
CALLED: Final = {
    "major-faults": "major page faults",
    "minor-faults": "minor page faults",
    "page-faults": "page faults",
    REQUESTS: "requests to disks",
}


def draw(profile: Profile, time: WallTime) -> Iterator[str]:
    """The lines to print."""
    width = shutil.get_terminal_size((WIDTH, 0)).columns
    yield _title(profile, time)
    yield _sentence(time)
    yield _remainder(time)
    yield from say_missing(time.missing)
    if time.counts:
        yield ", ".join(f"{count:,} {CALLED.get(name, name)}" for name, count in time.counts.items())
    yield ""
    yield click.style(f"{'share':>7}  {'time':>9}  where", bold=True)
    for one in time.places:
        yield from _draw_place(one, max(1, time.wall_ns), width)
    yield ""
    yield cost_and_loss(profile)


def say_missing(events: Iterable[str]) -> Iterator[str]:
    """What the events that were not recorded would have told."""
    for event in events:
        yield click.style(f"{TELLS[event]} was not recorded: 'stackhound record -e cpu,off-cpu' has both", fg="yellow")


def _title(profile: Profile, time: WallTime) -> str:
    name = click.style(f"{printable(time.comm)} ({time.pid})", bold=True)
    threads = f"{time.threads:,} thread{'' if time.threads == 1 else 's'}"
    return f"{name}: {threads}, {_time(time.wall_ns)} of wall time in {_time(profile.duration_ns)}"


def _sentence(time: WallTime) -> str:
    wall_ns = max(1, time.wall_ns)
    most = [f"{_share(one.value_ns, wall_ns)} {one.place.doing}" for one in time.places[:TOP]]
    return ", ".join(most)


def _remainder(time: WallTime) -> str:
    """How much of the wall time is explained."""
    wall_ns = max(1, time.wall_ns)
    known = f"{_share(time.known_ns, wall_ns)} of it accounted for"
    if time.known_ns > time.wall_ns:
        return f"{known}: more than all, since times on the CPU are sampled"
    return f"{known}; not known: {_share(time.unknown_ns, wall_ns)}, {_time(time.unknown_ns)}"


def _draw_place(one: PlaceTime, wall_ns: int, width: int) -> Iterator[str]:
    share = f"{100 * one.value_ns / wall_ns:6.1f}%"
    yield click.style(f"{share}  {_time(one.value_ns):>9}  {one.place.name}{_reasons(one)}", bold=True)
    for stack, value_ns in one.stacks:
        yield f"{_time(value_ns):>{TIME_END}}    {_fit(stack, max(MIN_WIDTH, width - TIME_END - 4))}"


def _fit(stack: BriefStack, width: int) -> str:
    """The stack in one line: the longest of its forms that there is room for, or the beginning of the shortest."""
    forms = [printable(form) for form in _forms(stack)]
    return next((form for form in forms if len(form) <= width), printable(forms[-1], width))


def _forms(stack: BriefStack) -> Iterator[str]:
    """Ever shorter ones: without native functions between the leaf and Python, then without Python's outer ones.

    The innermost Python function stays, or where there is none the outermost native one.
    """
    leaf, native = ((stack.kernel,), stack.native) if stack.kernel else (stack.native[:1], stack.native[1:])
    yield ARROW.join(stack.frames)
    for start in range(1, len(native) + bool(stack.python)):
        yield ARROW.join((*leaf, "…", *native[start:], *stack.python))
    for count in range(len(stack.python) - 1, 0, -1):
        yield ARROW.join((*leaf, *(("…",) if native else ()), *stack.python[:count]))


def _reasons(one: PlaceTime) -> str:
    """What the place is made of, where its name does not say it."""
    names = [name for name, _ in one.reasons]
    if names == [one.place.name] or (len(names) == 1 and one.place.name in {"user code", "kernel"}):
        return ""
    if len(names) == 1:
        return f": {printable(names[0])}"
    return ": " + ", ".join(f"{printable(name)} {_time(value_ns)}" for name, value_ns in one.reasons)


def _share(part_ns: int, wall_ns: int) -> str:
    return f"{100 * part_ns / wall_ns:.1f}%"


def _time(value_ns: int) -> str:
    return format_value(value_ns, "nanoseconds")


def as_document(profile: Profile, time: WallTime) -> dict[str, Any]:
    """For programs. ``places`` has all of them, the largest first; times are in nanoseconds."""
    found = {one.place: one for one in time.places}
    rest = [place for place in PLACES if place not in found]
    return {
        "pid": time.pid,
        "comm": time.comm,
        "command_line": time.command_line,
        "threads": time.threads,
        "duration_ns": profile.duration_ns,
        "wall_ns": time.wall_ns,
        "known_ns": time.known_ns,
        "unknown_ns": time.unknown_ns,
        "missing": list(time.missing),
        "counts": time.counts,
        "losses": {loss.cause: loss.count for loss in profile.losses},
        "places": [_row(one) for one in time.places] + [{**EMPTY, "place": place.name} for place in rest],
    }


EMPTY: Final[dict[str, Any]] = {"place": "", "ns": 0, "reasons": {}, "stacks": []}


def _row(one: PlaceTime) -> dict[str, Any]:
    stacks = [{"ns": value_ns, "frames": list(stack.frames)} for stack, value_ns in one.stacks]
    return {"place": one.place.name, "ns": one.value_ns, "reasons": dict(one.reasons), "stacks": stacks}
