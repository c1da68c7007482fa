"""Who holds Python's global interpreter lock, and who waits for it: ``report --gil``.

       held  without     away  waiting       held    without       away    waiting  function   file
      60.0%    10.0%     5.0%    15.0%    60.0 ms    10.0 ms    5.00 ms    15.0 ms  app.work   /srv/app.py

A sample counts for its innermost Python function, with the native code that this called. ``held`` and ``without`` are
samples on the CPU of threads that run Python and whose interpreter tells. ``away`` and ``waiting`` are there when time
off the CPU was recorded, too: with the lock, so that nobody ran Python meanwhile, and for want of it. Shares are of
``held`` and ``without`` together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import numpy as np

from stackhound.errors import UsageError
from stackhound.profile.columns import number_keys
from stackhound.profile.escape import printable
from stackhound.profile.paths import read_paths
from stackhound.profile.schema import SampleFlag
from stackhound.profile.units import format_value
from stackhound.profile.waits import EVALUATION, LOCK_CALL, TAKES_LOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stackhound.profile import Event, Profile
    from stackhound.profile.columns import Numbers
    from stackhound.profile.profile import Samples

OFF_CPU: Final = "off-cpu"
NO_FUNCTION: Final = ("(no Python function)", "")


class Row(NamedTuple):
    """A function's values, in the event's unit."""

    function: str
    file: str
    held: int
    without: int
    away: int
    waiting: int


class LockReport(NamedTuple):
    """What is known of the lock.

    Attributes:
        event: of ``held`` and ``without``.
        rows: the largest ``held`` first.
        known, unknown: samples of threads that run Python, by whether their interpreter tells who has the lock.
        has_off_cpu: whether time off the CPU was recorded.
    """

    event: Event
    rows: list[Row]
    known: int
    unknown: int
    has_off_cpu: bool

    @property
    def whole(self) -> int:
        """All of ``held`` and ``without``."""
        return sum(row.held + row.without for row in self.rows)


def break_down_by_lock(profile: Profile, event: str | None) -> LockReport:
    """Sum the samples of an event by Python function and lock.

    Args:
        profile: what to sum.
        event: its name; None means the first that is not time off the CPU.

    Raises:
        UsageError: no such event, or it is time off the CPU, which belongs to every report.
    """
    chosen = _choose_event(profile, event)
    samples = profile.samples_of(chosen)
    has_python, known, held = _lock_of(samples)
    stacks = _Stacks(profile)
    columns = [_sum(stacks, samples, chosen_samples) for chosen_samples in (held, known & ~held)]
    off_cpu = [one for one in profile.events if one.name == OFF_CPU and one.unit == chosen.unit]
    columns += _sum_off_cpu(stacks, profile.samples_of(off_cpu[0])) if off_cpu else [[0] * len(stacks.functions)] * 2
    rows = [
        Row(*function, *values) for function, *values in zip(stacks.functions, *columns, strict=True) if any(values)
    ]
    rows.sort(key=lambda row: (-row.held, -row.away, -row.waiting, -row.without, row.function))
    count = samples.count.astype(np.int64)
    return LockReport(chosen, rows, int(count[known].sum()), int(count[has_python & ~known].sum()), bool(off_cpu))


def _choose_event(profile: Profile, name: str | None) -> Event:
    if name == OFF_CPU:
        raise UsageError("time off the CPU has columns of its own", "name another --event, or none")
    awake = [event.name for event in profile.events if event.name != OFF_CPU]
    return profile.event(name or (awake[0] if awake else None))


def _lock_of(samples: Samples) -> tuple[Numbers, Numbers, Numbers]:
    """Bool (n_samples,) each: the thread runs Python; its interpreter tells; the thread has the lock."""
    has_python = samples.flags & SampleFlag.PYTHON != 0
    known = has_python & (samples.flags & SampleFlag.GIL_KNOWN != 0)
    return has_python, known, known & (samples.flags & SampleFlag.GIL_HELD != 0)


class _Stacks:
    """What the lock's report asks of stacks.

    Attributes:
        functions: (name, file) of Python's functions; the last one stands for none.
        function: int64 (n_stacks,): the innermost one of each stack.
        waits: bool (n_stacks,): whether the lock was waited for in what that called.
    """

    def __init__(self, profile: Profile) -> None:
        parent, location = profile.numbers("stacks", "parent"), profile.numbers("stacks", "location")
        offsets, locations = read_paths(parent, location)
        offsets = offsets.astype(np.int64)
        kinds = np.array([kind == "python" for kind in profile.texts("objects", "kind")], bool)
        is_python = kinds[profile.numbers("locations", "object")]
        innermost = _last_true(offsets, is_python[locations])
        frames = profile.frames
        outer = frames.frames[frames.offsets[:-1]]
        found, number = number_keys((frames.name[one], frames.file[one]) for one in outer[is_python].tolist())
        self.functions = [*found, NO_FUNCTION]
        of_location = np.full(len(is_python), len(found), np.int64)
        of_location[is_python] = number
        self.function = np.full(len(parent), len(found), np.int64)
        self.function[innermost >= 0] = of_location[locations[innermost[innermost >= 0]]]
        self.waits = _last_true(offsets, _find_waits(profile, is_python, offsets, locations)) > innermost


def _find_waits(profile: Profile, is_python: Numbers, offsets: Numbers, locations: Numbers) -> Numbers:
    """Bool (n_elements,): which elements of paths, root → leaf, wait for the lock.

    By their names, or, as `stackhound.profile.waits` says, by who calls them. A Python function does where what
    executes it is not shown.
    """
    objects = profile.numbers("locations", "object")
    is_interpreter = np.isin(objects, objects[_located(profile, EVALUATION.__eq__)])
    is_called = np.zeros(len(locations), bool)
    is_called[1:] = (is_interpreter | is_python)[locations[:-1]]
    is_called[offsets[:-1][offsets[:-1] < offsets[1:]]] = False
    by_name = _located(profile, TAKES_LOCK.__contains__)[locations]
    by_caller = _located(profile, LOCK_CALL.fullmatch)[locations] & is_called
    found: Numbers = by_name | by_caller
    return found


def _located(profile: Profile, is_wanted: Callable[[str], object]) -> Numbers:
    """Bool (n_locations,): those with a function of such a name, inlined or not."""
    wanted = np.array([bool(is_wanted(name)) for name in profile.texts("functions", "name")], bool)
    lines = wanted[profile.numbers("lines", "function")]
    found = np.zeros(profile.table("locations").num_rows, bool)
    found[profile.numbers("lines", "location")[lines]] = True
    return found


def _last_true(offsets: Numbers, flags: Numbers) -> Numbers:
    """The position of the last true flag in each segment of a CSR array; −1 where there is none. int64 (n,)."""
    positions = np.concatenate(([-1], np.flatnonzero(flags)))
    last = positions[np.searchsorted(positions, offsets[1:]) - 1]
    return np.where(last >= offsets[:-1], last, -1)


def _sum(stacks: _Stacks, samples: Samples, chosen: Numbers) -> list[int]:
    """Values of the chosen samples, bool (n_samples,), of each function."""
    values = np.zeros(len(stacks.functions), np.uint64)
    np.add.at(values, stacks.function[samples.stack[chosen]], samples.value[chosen])
    found: list[int] = values.tolist()
    return found


def _sum_off_cpu(stacks: _Stacks, samples: Samples) -> list[list[int]]:
    """Of each function the time with the lock, and the time waiting for it."""
    has_python, _, held = _lock_of(samples)
    waits = has_python & ~held & stacks.waits[samples.stack]
    return [_sum(stacks, samples, held), _sum(stacks, samples, waits)]


def draw(report: LockReport, limit: int) -> Iterator[str]:
    """The lines to print: what is known, then a row a function."""
    yield from _describe(report)
    yield ""
    columns = ("held", "without", *(("away", "waiting") if report.has_off_cpu else ()))
    heads = [f"{name:>7}" for name in columns] + [f"{name:>9}" for name in columns]
    rows = report.rows[: limit or None]
    names = [printable(row.function) for row in rows]
    width = max(map(len, (*names, "function")))
    yield click.style(f"{'  '.join(heads)}  {'function':{width}}  file", bold=True)
    for row, name in zip(rows, names, strict=True):
        values = [getattr(row, column) for column in columns]
        cells = [f"{100 * value / max(1, report.whole):6.1f}%" for value in values]
        cells += [f"{format_value(value, report.event.unit):>9}" for value in values]
        yield f"{'  '.join(cells)}  {name:{width}}  {printable(row.file)}".rstrip()


def _describe(report: LockReport) -> Iterator[str]:
    samples = report.known + report.unknown
    if not samples:
        yield "no sample is of a thread that runs Python"
        return
    yield f"the lock's holder is known in {report.known:,} of {samples:,} samples of Python"
    if report.known:
        held = sum(row.held for row in report.rows)
        yield f"of their {format_value(report.whole, report.event.unit)} {100 * held / report.whole:.1f}% with the lock"
    if report.unknown:
        yield "not known: free-threaded builds, which have none, and versions that are not read"
    if not report.has_off_cpu:
        yield f"waiting for the lock is time off the CPU, which was not recorded (-e cpu,{OFF_CPU})"


def as_rows(report: LockReport, limit: int) -> list[dict[str, Any]]:
    """For programs: as `Row`, ``away`` and ``waiting`` None where time off the CPU was not recorded."""
    rows: Sequence[Row] = report.rows[: limit or None]
    return [row._asdict() | ({} if report.has_off_cpu else {"away": None, "waiting": None}) for row in rows]
