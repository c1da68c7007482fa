"""Samples as events: off-cpu, block-io and faults as slices with their stack and what else is known of them.

thread   ├── futex ──┤  ├ disk ┤        off-cpu: never two at once, one sleeps or one does not
block-io     ├── read ──┤               as many tracks as there are requests at once
               ├── read ──┤
faults       │ │   ├─┤         slices where their time was measured, else instants
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.formats.firefox.columns import has_numbers
from stackhound.formats.firefox.markers import fields_of, sides_of
from stackhound.formats.firefox.samples import durations_ns
from stackhound.formats.perfetto import packets
from stackhound.profile.brief_stacks import ARROW, BriefStacks
from stackhound.profile.columns import to_list
from stackhound.profile.schema import SampleFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stackhound.formats.firefox.markers import Field
    from stackhound.formats.perfetto.interned import Interned
    from stackhound.formats.perfetto.tracks import Tracks
    from stackhound.profile import Event, Profile
    from stackhound.profile.columns import Numbers

#: The column that an event's slices are named by; else they have the event's name. A thread that was preempted waited
#: for nothing.
NAMES: Final = {"off-cpu": ("off_cpu", "reason"), "block-io": ("block_io", "operation")}
PREEMPTED: Final = "preempted"
#: What no thread does twice at a time: drawn on its own track.
ON_THREAD: Final = "off-cpu"


class _Rows:
    """Samples of one event, by thread and then by time."""

    def __init__(self, profile: Profile, event: Event) -> None:
        rows = np.flatnonzero(profile.numbers("samples", "event") == event.id)
        end_ns = profile.numbers("samples", "boottime_ns")[rows].astype(np.int64)
        start_ns = np.maximum(end_ns - durations_ns(profile, rows), 0)
        thread = profile.numbers("samples", "thread")[rows]
        order = np.lexsort((end_ns, start_ns, thread))
        self.rows = rows[order]
        self.thread: list[int] = thread[order].tolist()
        self.start_ns: list[int] = start_ns[order].tolist()
        self.end_ns: list[int] = end_ns[order].tolist()
        self.ids, self.stack, self.value, self.cpu, self.flags, self.count = (
            profile.numbers("samples", name)[self.rows].tolist()
            for name in ("id", "stack", "value", "cpu", "flags", "count")
        )


def write_samples(profile: Profile, event: Event, tracks: Tracks) -> Iterator[bytes]:
    """Samples of time on the CPU."""
    rows = _Rows(profile, event)
    columns = (packets.times(np.array(rows.end_ns)), rows.cpu, rows.thread, rows.stack, rows.flags)
    for time, cpu, thread, stack, flags in zip(*columns, strict=True):
        tracks.thread(thread)
        mode = packets.KERNEL_MODE if flags & SampleFlag.IN_KERNEL else packets.USER_MODE
        yield packets.perf_sample(time, cpu, tracks.pids[thread], tracks.tids[thread], mode, stack)


def write_events(profile: Profile, event: Event, tracks: Tracks, interned: Interned) -> Iterator[bytes]:
    """What happened, or lasted."""
    rows = _Rows(profile, event)
    place = _on_threads if event.name == ON_THREAD else _in_lanes
    track, starts_ns = place(rows, tracks, event.name)
    ends_ns = np.maximum(starts_ns, np.array(rows.end_ns, np.int64))
    columns = (
        track.tolist(),
        packets.times(starts_ns),
        packets.times(ends_ns),
        (starts_ns < ends_ns).tolist(),
        _contents(profile, event, rows, interned),
    )
    for track, start, end, lasted, content in zip(*columns, strict=True):
        yield (
            packets.slice_packets(start, end, track, content) if lasted else packets.instant_packet(end, track, content)
        )


def _on_threads(rows: _Rows, tracks: Tracks, _: str) -> tuple[Numbers, Numbers]:
    """Each event's track, its thread's own, and where it begins: not before the one in front of it has ended."""
    threads, index = np.unique(np.array(rows.thread, np.int64), return_inverse=True)
    track = np.array([tracks.thread(thread) for thread in threads.tolist()], np.int64)[index]
    starts_ns, ends_ns = np.array(rows.start_ns, np.int64), np.array(rows.end_ns, np.int64)
    order = np.lexsort((ends_ns, starts_ns, track))
    for own in np.split(order, np.flatnonzero(np.diff(track[order])) + 1):
        until_ns = np.maximum.accumulate(ends_ns[own])
        starts_ns[own[1:]] = np.maximum(starts_ns[own[1:]], until_ns[:-1])
    return track, starts_ns


def _in_lanes(rows: _Rows, tracks: Tracks, name: str) -> tuple[Numbers, Numbers]:
    """Each event's track below its thread's, on which none begins before the one in front of it has ended."""
    until_ns: dict[int, list[int]] = {}
    found = []
    for thread, start_ns, end_ns in zip(rows.thread, rows.start_ns, rows.end_ns, strict=True):
        lanes = until_ns.setdefault(tracks.thread(thread), [])
        lane = next((lane for lane, until in enumerate(lanes) if until <= start_ns), len(lanes))
        lanes[lane : lane + 1] = [end_ns]
        found.append(tracks.below_thread(thread, name, lane))
    return np.array(found, np.int64), np.array(rows.start_ns, np.int64)


def _contents(profile: Profile, event: Event, rows: _Rows, interned: Interned) -> list[bytes]:
    """What is said of each event."""
    category = interned.number(packets.CATEGORIES, event.name)
    keys = list(zip(_names(profile, event, rows, interned), rows.stack, strict=True))
    known = {(name, stack): packets.event_content(name, category, stack) for name, stack in set(keys)}
    said = zip(keys, *_arguments(profile, event, rows, interned), strict=True)
    return [b"".join((known[key], *arguments)) for key, *arguments in said]


def _names(profile: Profile, event: Event, rows: _Rows, interned: Interned) -> list[int]:
    """The number of each event's name."""
    own = interned.number(packets.EVENT_NAMES, event.name)
    table, column = NAMES.get(event.name, ("", ""))
    if not has_numbers(profile, table, "sample") or column not in profile.table(table).column_names:
        return [own] * len(rows.ids)
    texts = profile.texts(table, column)
    if event.name == ON_THREAD:
        states = zip(texts, profile.texts(table, "state"), strict=True)
        texts = [state if state == PREEMPTED else text for text, state in states]
    named = zip(profile.numbers(table, "sample").tolist(), texts, strict=True)
    known = {sample: interned.number(packets.EVENT_NAMES, text) for sample, text in named if text}
    return [known.get(sample, own) for sample in rows.ids]


# --- Arguments --------------------------------------------------------------------------------------------------------


def _arguments(profile: Profile, event: Event, rows: _Rows, interned: Interned) -> list[list[bytes]]:
    """The arguments of each event, a column each: its value, of how many it is, and what its side tables have."""
    value, count = (interned.number(packets.ARGUMENT_NAMES, name) for name in (_value_name(event), "count"))
    columns = [
        packets.integer_arguments(value, np.array(rows.value, np.uint64)),
        packets.integer_arguments(count, np.array(rows.count, np.uint64)),
    ]
    for side in sides_of(profile, event):
        samples = profile.numbers(side.table, "sample").tolist()
        for field in fields_of(profile, side):
            name = interned.number(packets.ARGUMENT_NAMES, side.prefix + field.column)
            cells = to_list(profile.table(side.table)[field.column])
            of_sample = dict(zip(samples, _shown(profile, field, name, cells, interned), strict=True))
            columns.append([of_sample.get(sample, b"") for sample in rows.ids])
    return columns


def _value_name(event: Event) -> str:
    return "value_ns" if event.unit == "nanoseconds" else "value"


def _shown(profile: Profile, field: Field, name: int, cells: list[int | str | None], interned: Interned) -> list[bytes]:
    """An argument of each cell; none where there is nothing, or what no table has."""
    read = _reader(profile, field)
    known: dict[int | str | None, bytes] = dict.fromkeys(field.nothing, b"")
    for cell in set(cells) - field.nothing:
        if isinstance(cell, int) and read is None:
            known[cell] = packets.integer_arguments(name, np.array([cell], np.uint64))[0]
        else:
            text = read(cell) if isinstance(cell, int) and read else str(cell)
            known[cell] = packets.text_argument(name, interned.number(packets.ARGUMENT_VALUES, text)) if text else b""
    return [known[cell] for cell in cells]


def _reader(profile: Profile, field: Field) -> Callable[[int], str] | None:
    """A function to what the numbers of a column stand for, if they are rows of a table; empty for what it has not."""
    if field.kind == "stack":
        stacks, count = BriefStacks(profile), profile.table("stacks").num_rows
        return lambda row: ARROW.join(stacks.brief(row).frames) if 0 < row < count else ""
    if field.kind == "thread":
        names = zip(profile.texts("threads", "comm"), profile.numbers("threads", "tid").tolist(), strict=True)
        texts = [f"{comm} ({tid})" for comm, tid in names]
    elif field.kind == "object":
        texts = profile.texts("objects", "path")
    else:
        return None
    return lambda row: texts[row] if row < len(texts) else ""
