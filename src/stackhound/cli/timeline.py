"""What threads did when, as strips: ``report --timeline``.

    U user code  K kernel  r ready  s sleeping  D disk  F page faults  ? not known

    worker (4250)
    UUUUUUUUUKKKKssssssssssssssrrDDDDDDDDDDDDDUUUU
    0 s        1 s        2 s        3 s
    40.0% sleep 2.00 s, 30.0% user code 1.50 s, 20.0% disk 1.00 s

A cell shows what the thread did most of its time.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import numpy as np

from stackhound.cli.why import say_missing
from stackhound.profile.escape import printable
from stackhound.profile.facts import cost_and_loss
from stackhound.profile.portions import ON_THE_CPU, find_missing
from stackhound.profile.timeline import STATES
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers
    from stackhound.profile.timeline import Timeline

#: A pipe has no width.
WIDTH: Final = 100
#: Reasons below a strip.
TOP: Final = 5


class Look(NamedTuple):
    """How a state looks. The letters are enough where there are no colours."""

    letter: str
    color: str | None
    meaning: str


LOOKS: Final = {
    "user": Look("U", "green", "user code"),
    "kernel": Look("K", "yellow", "kernel"),
    "runnable": Look("r", "magenta", "ready"),
    "sleeping": Look("s", "blue", "sleeping"),
    "disk": Look("D", "red", "disk"),
    "faulting": Look("F", "cyan", "page faults"),
    "unknown": Look("?", None, "not known"),
}
#: Before a thread began, and after its end.
GONE: Final = " "
#: Between marks of the axis.
TICK_COLUMNS: Final = 10
#: What marks are multiples of: these, and their thousands.
STEPS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)


def draw(profile: Profile, timelines: Sequence[Timeline], limit: int) -> Iterator[str]:
    """The lines to print, of so many threads at most; 0 is all."""
    width = shutil.get_terminal_size((WIDTH, 0)).columns
    edges_ns = np.linspace(0, max(1, profile.duration_ns), width + 1)
    yield "  ".join(f"{_paint(look, 1)} {look.meaning}" for look in LOOKS.values())
    yield from say_missing(find_missing(profile))
    for timeline in timelines[: limit or None]:
        yield ""
        yield click.style(f"{printable(timeline.comm)} ({timeline.tid})", bold=True)
        yield _strip(timeline.cells(edges_ns))
        yield click.style(_axis(profile.duration_ns, width), dim=True)
        yield _reasons(timeline, width)
    if 0 < limit < len(timelines):
        yield f"\n{len(timelines) - limit:,} more: -n 0 shows all threads"
    yield ""
    yield cost_and_loss(profile)


def _paint(look: Look, cells: int) -> str:
    return click.style(look.letter * cells, fg="black" if look.color else None, bg=look.color)


def _strip(cells: Numbers) -> str:
    """A run of equal cells at a time, so that colours take little."""
    starts = np.flatnonzero(np.diff(cells, prepend=-2))
    lengths = np.diff(np.append(starts, len(cells)))
    runs = zip(cells[starts].tolist(), lengths.tolist(), strict=True)
    return "".join(GONE * length if cell < 0 else _paint(LOOKS[STATES[cell]], length) for cell, length in runs)


def _axis(duration_ns: int, width: int) -> str:
    """Marks at round times: each stands where its time begins."""
    step_ns = _step_ns(duration_ns * TICK_COLUMNS // width)
    line = ""
    for time_ns in range(0, max(1, duration_ns), step_ns):
        mark = _mark(time_ns, max(1, duration_ns))
        column = time_ns * width // max(1, duration_ns)
        if column + len(mark) <= width:
            line = f"{line:{column}}{mark}"
    return line


def _step_ns(least_ns: int) -> int:
    """The least round time that is not less."""
    unit_ns = 1
    while True:
        for step in STEPS:
            if step * unit_ns >= least_ns:
                return step * unit_ns
        unit_ns *= 1000


#: Largest first: a strip's marks have the one unit that its length has. Minutes would not go with decimals.
_UNITS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns"))


def _mark(time_ns: int, duration_ns: int) -> str:
    size, name = next(unit for unit in _UNITS if duration_ns >= unit[0])
    return f"{time_ns / size:g} {name}"


def _reasons(timeline: Timeline, width: int) -> str:
    """Those with the most time: as many as there is room for, but one at least."""
    whole = max(1, int(timeline.bounds_ns[-1] - timeline.bounds_ns[0]))
    line = ""
    for (state, reason), value_ns in _largest_first(timeline)[:TOP]:
        share, time = f"{100 * value_ns / whole:.1f}%", format_value(value_ns, "nanoseconds")
        longer = f"{line}{', ' if line else ''}{share} {_name(state, reason)} {time}"
        if line and len(longer) > width:
            break
        line = longer
    return line


def _name(state: str, reason: str) -> str:
    """The reason; of time on the CPU, or ready for one, the state."""
    if reason == ON_THE_CPU:
        return LOOKS[state].meaning
    return f"ready ({printable(reason)})" if state == "runnable" else printable(reason)


def as_documents(timelines: Sequence[Timeline]) -> list[dict[str, Any]]:
    """For programs: every spell of each thread, in nanoseconds since the recording began."""
    return [
        {
            "pid": one.pid,
            "tid": one.tid,
            "comm": one.comm,
            "totals": [{"state": state, "reason": reason, "ns": ns} for (state, reason), ns in _largest_first(one)],
            "spells": [spell._asdict() for spell in one.spells],
        }
        for one in timelines
    ]


def _largest_first(timeline: Timeline) -> list[tuple[tuple[str, str], int]]:
    return sorted(timeline.totals.items(), key=lambda one: (-one[1], one[0]))
