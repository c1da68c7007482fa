"""JSON lines: what is known of the recording on the first line, then each sample on its own, in order of time.

    {"stackhound":{"metadata":{…},"events":[{…}],"losses":[{…}]}}
    {"event":"cpu","time_unix_ns":1763718192000000042,"boottime_ns":42,"duration_ns":0,"cpu":3,
     "pid":4242,"tid":4242,"comm":"curl","value":10101010,"count":1,"frames":[
       {"name":"parse","file":"/src/parse.h","line":40,"column":9,"object":"/usr/bin/curl","kind":"elf",
        "address":4409,"inlined":true},
       {"object":"/usr/lib/libc.so.6","kind":"elf","address":123,"reason":"no symbol table"}]}

Each object is on one line. Frames are leaf first, and say only what is known: ``name`` or ``reason`` always,
``inlined`` when true. ``address`` is in the object's own space, ``value`` in the event's unit; ``time_unix_ns`` is
missing where the recording does not say how its clock relates to Unix time. All text is ASCII by JSON's escapes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from stackhound.formats.escape import as_json
from stackhound.profile.metadata import read_int
from stackhound.profile.paths import read_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

#: Stacks whose text is kept: 4,096 × ~3 KB = 12 MB. The hot stacks of a busy machine are fewer.
CACHED_STACKS = 4_096
#: Samples turned into Python objects at a time: 65,536 × 8 columns × 32 bytes = 17 MB.
BATCH_ROWS = 65_536
COLUMNS = ("event", "thread", "boottime_ns", "duration_ns", "cpu", "value", "count", "stack")


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write the samples of one event, or of all.

    Raises:
        UsageError: no such event.
    """
    chosen = profile.events if event is None else [profile.event(event)]
    rows = np.flatnonzero(np.isin(profile.numbers("samples", "event"), [one.id for one in chosen]))
    out.write(_header(profile))
    events = {one.id: as_json(one.name) for one in profile.events}
    threads, frames = _thread_texts(profile), _stack_formatter(profile)
    unix_offset_ns = read_int(profile.metadata, "clock", "boot_to_unix_ns_start")
    for kind, thread, time_ns, duration_ns, cpu, value, count, stack in _samples(profile, rows):
        unix = "" if unix_offset_ns is None else f'"time_unix_ns":{time_ns + unix_offset_ns},'
        out.write(
            f'{{"event":{events[kind]},{unix}"boottime_ns":{time_ns},"duration_ns":{duration_ns},"cpu":{cpu},'
            f'{threads[thread]},"value":{value},"count":{count},"frames":[{frames(stack)}]}}\n'.encode("ascii")
        )


def _header(profile: Profile) -> bytes:
    known = {
        "metadata": profile.metadata,
        "events": [vars(event) for event in profile.events],
        "losses": [loss._asdict() for loss in profile.losses],
    }
    return f"{as_json({'stackhound': known})}\n".encode("ascii")


def _samples(profile: Profile, rows: Numbers) -> Iterator[tuple[int, ...]]:
    columns = [profile.numbers("samples", name) for name in COLUMNS]
    for start in range(0, len(rows), BATCH_ROWS):
        batch = rows[start : start + BATCH_ROWS]
        yield from zip(*(column[batch].tolist() for column in columns), strict=True)


def _stack_formatter(profile: Profile) -> Callable[[int], str]:
    """A function from a stack to the text of its frames; it keeps the texts used last."""
    offsets, locations = read_paths(profile.numbers("stacks", "parent"), profile.numbers("stacks", "location"))
    texts = _location_texts(profile)

    @lru_cache(CACHED_STACKS)
    def format_stack(stack: int) -> str:
        path = locations[offsets[stack] : offsets[stack + 1]][::-1]
        return ",".join([texts[location] for location in path.tolist()])

    return format_stack


def _location_texts(profile: Profile) -> list[str]:
    """The frames at each location: innermost first, or as an inverted profile has them."""
    places = _place_texts(profile)
    frames: list[list[str]] = [[] for _ in places]
    for location, function, inlined in _function_texts(profile):
        frames[location].append(f"{{{function}{places[location]}{inlined}}}")
    return [
        ",".join(found) or f'{{{place},"reason":{as_json(reason)}}}'
        for found, place, reason in zip(frames, places, profile.texts("locations", "reason"), strict=True)
    ]


def _place_texts(profile: Profile) -> list[str]:
    """Object and address of each location."""
    objects = [
        f'"object":{as_json(path)},"kind":{as_json(kind)}'
        for path, kind in zip(profile.texts("objects", "path"), profile.texts("objects", "kind"), strict=True)
    ]
    columns = (profile.numbers("locations", name).tolist() for name in ("object", "address"))
    return [f'{objects[index]},"address":{address}' for index, address in zip(*columns, strict=True)]


def _function_texts(profile: Profile) -> Iterator[tuple[int, str, str]]:
    """(location, its function and source line, the mark of an inlined one) of each line, in the order to be read."""
    location, depth = profile.numbers("lines", "location"), profile.numbers("lines", "depth").astype(np.int32)
    order = np.lexsort((-depth if profile.inverted else depth, location))
    outermost = np.zeros(profile.table("locations").num_rows, np.int32)
    np.maximum.at(outermost, location, depth)
    inlined = np.where(depth < outermost[location], ',"inlined":true', "")
    functions = [
        f'"name":{as_json(name)},' + (f'"file":{as_json(file)},' if file else "")
        for name, file in zip(profile.texts("functions", "name"), profile.texts("functions", "file"), strict=True)
    ]
    columns = (location, *(profile.numbers("lines", name) for name in ("function", "line", "column")), inlined)
    for at, function, line, column, mark in zip(*(column[order].tolist() for column in columns), strict=True):
        position = (f'"line":{line},' if line else "") + (f'"column":{column},' if column else "")
        yield at, functions[function] + position, mark


def _thread_texts(profile: Profile) -> list[str]:
    pids = profile.numbers("processes", "pid")[profile.numbers("threads", "process")].tolist()
    tids, comms = profile.numbers("threads", "tid").tolist(), profile.texts("threads", "comm")
    return [f'"pid":{pid},"tid":{tid},"comm":{as_json(comm)}' for pid, tid, comm in zip(pids, tids, comms, strict=True)]
