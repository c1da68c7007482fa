"""Markers: what happened besides the samples, with the stack that it happened in.

    {"type": "block-io", "cause": {"time": 12.5, "stack": 7}, "value": 81000, "device": 3, "bytes": 4096}

One kind of marker an event. What an event says in a table of its own are more fields; `SIDE_TABLES` lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import orjson

from stackhound.formats.firefox.columns import NS_PER_MS, has_numbers, milliseconds, table
from stackhound.formats.firefox.samples import ends_ns, event_rows, starts_ns
from stackhound.profile.columns import is_text, to_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from stackhound.formats.firefox.strings import Strings
    from stackhound.profile import Event, Profile
    from stackhound.profile.columns import Numbers

#: ``MarkerPhase``
INSTANT: Final = 0
INTERVAL: Final = 1
#: How the front-end writes an event's value.
VALUE_FORMATS: Final = {"nanoseconds": "nanoseconds", "bytes": "bytes"}
#: Functions of the stack that woke a thread, in a marker's text.
WAKER_FRAMES: Final = 16


class Field(NamedTuple):
    """What a side table says of a sample.

    Attributes:
        column: of the side table, and the field's key.
        label: for people.
        format: the front-end's name of how to write it (``MarkerFormatType``).
        kind: what the column holds: a key of `_VALUES`.
    """

    column: str
    label: str
    format: str
    kind: str

    @property
    def nothing(self) -> set[int | None]:
        """What says nothing in the column."""
        return {None, 0} if self.kind == "measured" else {None}


class Side(NamedTuple):
    """A side table of an event.

    Attributes:
        table: its name.
        chart_label: what the front-end writes on the bars in the marker chart; empty: the side tables before this say.
        fields: what of it is shown.
        prefix: of the fields' keys, where the columns' names say too little without the table's.
    """

    table: str
    chart_label: str
    fields: tuple[Field, ...]
    prefix: str = ""


_FAULT: Final = Side(
    "faults",
    "{marker.data.object}",
    (
        Field("object", "File", "unique-string", "object"),
        Field("offset", "Offset", "hexadecimal", "number"),
        Field("ns", "Latency", "duration", "measured"),
    ),
)
SIDE_TABLES: Final[dict[str, tuple[Side, ...]]] = {
    "off-cpu": (
        Side(
            "off_cpu",
            "{marker.data.reason}",
            (
                Field("state", "State", "unique-string", "text"),
                Field("reason", "Reason", "unique-string", "text"),
                Field("queued_ns", "Ready, without a CPU", "duration", "time"),
            ),
        ),
        Side(
            "wakers",
            "",
            (Field("thread", "Woken by", "unique-string", "thread"), Field("stack", "From", "unique-string", "stack")),
            prefix="waker_",
        ),
    ),
    "block-io": (
        Side(
            "block_io",
            "{marker.data.operation} {marker.data.bytes}",
            (
                Field("device", "Device", "unique-string", "text"),
                Field("operation", "Operation", "unique-string", "text"),
                Field("bytes", "Size", "bytes", "number"),
                Field("queue_ns", "In the queue", "duration", "time"),
                Field("device_ns", "On the device", "duration", "time"),
            ),
        ),
    ),
    "major-faults": (_FAULT,),
    "minor-faults": (_FAULT,),
}
NO_MARKERS: Final = table(name=[], startTime=[], endTime=[], phase=[], category=[], data=[])


@dataclass(frozen=True, eq=False)
class Markers:
    """The markers of all threads.

    Attributes:
        schemas: ``meta.markerSchema``: one an event.
        of_thread: the format's table, by the number of `Identities`.
    """

    schemas: list[dict[str, Any]]
    of_thread: dict[int, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Markers of one event or of several.

    Attributes:
        thread: numbers of `Identities`.
        start_ns, end_ns: since the recording began.
        name: in the table of strings.
        data: JSON.
    """

    thread: Numbers
    start_ns: Numbers
    end_ns: Numbers
    name: Numbers
    data: list[str]


def build_markers(
    profile: Profile, of_thread: Numbers, sampled: list[Event], node: Numbers, strings: Strings
) -> Markers:
    """Markers of all events that became no samples, and of ``off-cpu``, whose reasons samples do not tell.

    Args:
        profile: what was recorded.
        of_thread: see `Identities`.
        sampled: the events that became samples.
        node: see `Stacks`.
        strings: where texts go.
    """
    events = [event for event in profile.events if event not in sampled or event.name == "off-cpu"]
    parts = [_rows(profile, event, of_thread, node, strings) for event in events]
    return Markers([_schema(profile, event) for event in events], _tables(parts) if parts else {})


def _tables(parts: list[_Rows]) -> dict[int, dict[str, Any]]:
    thread, start_ns, end_ns, name = (
        np.concatenate([getattr(part, column) for part in parts]) for column in ("thread", "start_ns", "end_ns", "name")
    )
    data = [one for part in parts for one in part.data]
    if len(thread) == 0:
        return {}
    order = np.lexsort((start_ns, thread))
    numbers, starts = np.unique(thread[order], return_index=True)
    tables = {}
    for number, rows in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
        texts = ",".join([data[row] for row in rows.tolist()])
        tables[number] = table(
            name=np.ascontiguousarray(name[rows]),
            startTime=milliseconds(start_ns[rows]),
            endTime=milliseconds(end_ns[rows]),
            phase=np.where(end_ns[rows] > start_ns[rows], INTERVAL, INSTANT),
            category=np.zeros(len(rows), np.int64),
            data=orjson.Fragment(f"[{texts}]"),
        )
    return tables


def _rows(profile: Profile, event: Event, of_thread: Numbers, node: Numbers, strings: Strings) -> _Rows:
    rows = event_rows(profile, event)
    start_ns = starts_ns(profile, rows)
    columns = (
        (start_ns / NS_PER_MS).tolist(),
        node[profile.numbers("samples", "stack")[rows]].tolist(),
        profile.numbers("samples", "value")[rows].tolist(),
        _side_texts(profile, event, rows, strings),
    )
    kind = orjson.dumps(event.name).decode()
    data = [
        f'{{"type":{kind},{_cause(time_ms, stack)}"value":{value}{side}}}'
        for time_ms, stack, value, side in zip(*columns, strict=True)
    ]
    thread = of_thread[profile.numbers("samples", "thread")[rows]].astype(np.int64)
    name = np.full(len(rows), strings.intern(event.name), np.int64)
    return _Rows(thread, start_ns, ends_ns(profile, rows), name, data)


def _cause(time_ms: float, stack: int) -> str:
    return f'"cause":{{"time":{time_ms},"stack":{stack}}},' if stack >= 0 else ""


def _schema(profile: Profile, event: Event) -> dict[str, Any]:
    sides = sides_of(profile, event)
    fields = [{"key": "value", "label": "Value", "format": VALUE_FORMATS.get(event.unit, "integer")}]
    fields += [
        {"key": side.prefix + field.column, "label": field.label, "format": field.format}
        for side in sides
        for field in fields_of(profile, side)
    ]
    labels = {"chartLabel": sides[0].chart_label, "tableLabel": sides[0].chart_label} if sides else {}
    overview = [] if event.name == "off-cpu" else ["timeline-overview"]  # its sleeps are among the samples already
    return {
        "name": event.name,
        "tooltipLabel": event.name,
        **labels,
        "display": ["marker-chart", "marker-table", *overview],
        "fields": fields,
    }


# --- What side tables say ---------------------------------------------------------------------------------------------


def sides_of(profile: Profile, event: Event) -> list[Side]:
    """Those of the event's side tables that are there."""
    return [side for side in SIDE_TABLES.get(event.name, ()) if has_numbers(profile, side.table, "sample")]


def _side_texts(profile: Profile, event: Event, rows: Numbers, strings: Strings) -> list[str]:
    """More fields of each sample, as JSON that goes on with a comma; empty where nothing is said."""
    texts = [""] * len(rows)
    for side in sides_of(profile, event):
        by_sample = _texts_by_sample(profile, side, strings)
        numbers = profile.numbers("samples", "id")[rows].tolist()
        texts = [text + by_sample.get(number, "") for text, number in zip(texts, numbers, strict=True)]
    return texts


def _texts_by_sample(profile: Profile, side: Side, strings: Strings) -> dict[int, str]:
    columns = [_field_texts(profile, side, field, strings) for field in fields_of(profile, side)]
    texts = ["".join(parts) for parts in zip(*columns, strict=True)]
    return dict(zip(profile.numbers(side.table, "sample").tolist(), texts, strict=False))


def fields_of(profile: Profile, side: Side) -> list[Field]:
    """The fields that a side table has, as far as they are what they should be."""
    schema = profile.table(side.table).schema

    def is_sound(field: Field) -> bool:
        if field.kind == "text":
            return field.column in schema.names and is_text(schema.field(field.column).type)
        return has_numbers(profile, side.table, field.column)

    return [field for field in side.fields if is_sound(field)]


def _field_texts(profile: Profile, side: Side, field: Field, strings: Strings) -> list[str]:
    values = to_list(profile.table(side.table)[field.column])
    show = _VALUES[field.kind](profile, strings)
    rows = profile.table(_REFERENCES[field.kind]).num_rows if field.kind in _REFERENCES else None
    said = set(values) - field.nothing
    known = {value: show(value) for value in said if rows is None or value < rows}
    return [f',"{side.prefix}{field.column}":{known[value]}' if value in known else "" for value in values]


def _show_text(_: Profile, strings: Strings) -> Callable[[str], int]:
    return strings.intern


def _show_number(_: Profile, __: Strings) -> Callable[[int], int]:
    return lambda number: number


def _show_time(_: Profile, __: Strings) -> Callable[[int], float]:
    return lambda time_ns: time_ns / NS_PER_MS


def _show_thread(profile: Profile, strings: Strings) -> Callable[[int], int]:
    comms, tids = profile.texts("threads", "comm"), profile.numbers("threads", "tid")
    return lambda row: strings.intern(f"{comms[row]} ({tids[row]})")


def _show_object(profile: Profile, strings: Strings) -> Callable[[int], int]:
    paths = profile.texts("objects", "path")
    return lambda row: strings.intern(paths[row])


def _show_stack(profile: Profile, strings: Strings) -> Callable[[int], int]:
    """Its functions in one line, from what ran to its callers."""
    parents, locations = (profile.numbers("stacks", name).tolist() for name in ("parent", "location"))
    frames = profile.frames.reversed()

    def show(stack: int) -> int:
        names: list[str] = []
        while stack and len(names) < WAKER_FRAMES:
            at = locations[stack]
            names += [frames.name[one] for one in frames.frames[frames.offsets[at] : frames.offsets[at + 1]].tolist()]
            stack = parents[stack]
        return strings.intern(" ← ".join(names[:WAKER_FRAMES]))

    return show


_VALUES: Final[dict[str, Callable[[Profile, Strings], Callable[[Any], float]]]] = {
    "text": _show_text,
    "number": _show_number,
    "time": _show_time,
    "measured": _show_time,  # if it was
    "thread": _show_thread,
    "object": _show_object,
    "stack": _show_stack,
}
#: Tables that kinds of columns hold row numbers of.
_REFERENCES: Final = {"thread": "threads", "object": "objects", "stack": "stacks"}
