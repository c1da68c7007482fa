"""The messages of a trace, each as its bytes. Numbers are those of the fields in Perfetto's own definitions.

    Trace        { repeated TracePacket packet = 1; }
    TracePacket  { timestamp, trusted_packet_sequence_id, sequence_flags, and one of
                   clock_snapshot, track_descriptor, track_event, perf_sample; interned_data goes with any }

Source: protos/perfetto/trace/trace_packet.proto of google/perfetto, and what it imports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stackhound.formats.perfetto.protobuf import delimited, delimited_integers, double, integer, integers, text

if TYPE_CHECKING:
    from stackhound.profile.columns import Numbers

#: All packets are of one writer, whose interned data they share.
SEQUENCE: Final = 1
_STATE_CLEARED: Final = 1  # TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
_NEEDS_STATE: Final = 2  # TracePacket.SEQ_NEEDS_INCREMENTAL_STATE

_SLICE_BEGIN: Final = 1  # TrackEvent.Type
_SLICE_END: Final = 2
_INSTANT: Final = 3
_COUNTER: Final = 4

_BEGIN: Final = integer(9, _SLICE_BEGIN)
_END: Final = integer(9, _SLICE_END)
_AT_ONCE: Final = integer(9, _INSTANT)

BOOTTIME: Final = 6  # BuiltinClock
REALTIME: Final = 1

#: Tables of ``InternedData``, by their fields.
CATEGORIES: Final = 1
EVENT_NAMES: Final = 2
ARGUMENT_NAMES: Final = 3
FUNCTION_NAMES: Final = 5
BUILD_IDS: Final = 16
MAPPING_PATHS: Final = 17
SOURCE_PATHS: Final = 18
ARGUMENT_VALUES: Final = 29

KERNEL_MODE: Final = 1  # Profiling.CpuMode
USER_MODE: Final = 2

#: Frame.Kind, by the kind of a frame in a picture.
FRAME_KINDS: Final = {"user": 1, "kernel": 2, "bpf": 2, "python": 3, "task": 3, "jit": 4}


_FIRST_END: Final = integer(10, SEQUENCE) + integer(13, _STATE_CLEARED)
_OTHERS_END: Final = integer(10, SEQUENCE) + integer(13, _NEEDS_STATE)


def _packet(content: bytes, end: bytes = _OTHERS_END) -> bytes:
    return delimited(1, content + end)


def first_packet(start_ns: int, unix_ns: int | None) -> bytes:
    """The beginning of the trace, and of the interned data, with what the clocks said then."""
    clocks = [(BOOTTIME, start_ns)] + ([] if unix_ns is None else [(REALTIME, unix_ns)])
    snapshot = b"".join(delimited(1, integer(1, clock) + integer(2, time_ns)) for clock, time_ns in clocks)
    return _packet(integer(8, start_ns) + delimited(6, snapshot + integer(2, BOOTTIME)), _FIRST_END)


def interned_packet(entries: bytes) -> bytes:
    """Texts, frames and stacks that other packets name by their numbers."""
    return _packet(delimited(12, entries))


def interned_bytes(table: int, iid: int, value: bytes) -> bytes:
    """A text of ``InternedData``, or a build-id, in one of its tables."""
    return delimited(table, integer(1, iid) + delimited(2, value))


def interned_mapping(iid: int, build_id: int, path: int) -> bytes:
    """A file; its build-id and its path are numbers of texts, 0 for none."""
    return delimited(19, integer(1, iid) + (integer(2, build_id) if build_id else b"") + integer(7, path))


def interned_frame(iid: int, function: int, mapping: int, address: int, source: int, line: int, kind: int) -> bytes:
    """A function at an address of a file; ``source`` and ``line`` are 0 where they are not known."""
    where = (integer(5, source) if source else b"") + (integer(6, line) if line else b"")
    content = integer(1, iid) + integer(2, function) + integer(3, mapping) + integer(4, address) + where
    return delimited(6, content + integer(7, kind))


def interned_callstack(iid: int, frames: bytes) -> bytes:
    """A stack; its frames are those of `frame_reference`, root first."""
    return delimited(7, integer(1, iid) + frames)


def frame_reference(frame: int) -> bytes:
    """A frame of a stack."""
    return integer(2, frame)


def process_track(uuid: int, pid: int, name: str, command_line: str, start_ns: int) -> bytes:
    """A process, which its threads are grouped by."""
    process = integer(1, pid) + (text(2, command_line) if command_line else b"") + text(6, name)
    started = integer(7, start_ns) if start_ns else b""
    return _packet(delimited(60, integer(1, uuid) + delimited(3, process + started)))


def thread_track(uuid: int, parent: int, pid: int, tid: int, name: str) -> bytes:
    """A thread of a process."""
    thread = integer(1, pid) + integer(2, tid) + text(5, name)
    return _packet(delimited(60, integer(1, uuid) + integer(5, parent) + delimited(4, thread)))


def named_track(uuid: int, parent: int, name: str) -> bytes:
    """A track below another one."""
    return _packet(delimited(60, integer(1, uuid) + text(2, name) + integer(5, parent)))


def counter_track(uuid: int, parent: int, name: str, unit: str) -> bytes:
    """A curve below another track."""
    return _packet(delimited(60, integer(1, uuid) + text(2, name) + integer(5, parent) + delimited(8, text(6, unit))))


def times(times_ns: Numbers) -> list[bytes]:
    """When packets are, which the functions below are given."""
    return integers(8, times_ns)


def counter_value(time: bytes, track: int, value: float) -> bytes:
    """What a curve is from then on."""
    return _packet(time + delimited(11, integer(9, _COUNTER) + integer(11, track) + double(44, value)))


def slice_packets(start: bytes, end: bytes, track: int, content: bytes) -> bytes:
    """Something that lasted; ``content`` is what `event_content` gives."""
    where = integer(11, track)
    return _packet(start + delimited(11, _BEGIN + where + content)) + _packet(end + delimited(11, _END + where))


def instant_packet(time: bytes, track: int, content: bytes) -> bytes:
    """Something that happened."""
    return _packet(time + delimited(11, _AT_ONCE + integer(11, track) + content))


def event_content(name: int, category: int, callstack: int) -> bytes:
    """What an event is: its name, category and stack by their numbers (no stack: 0). Arguments may follow."""
    return integer(10, name) + integer(3, category) + (integer(56, callstack) if callstack else b"")


def integer_arguments(name: int, values: Numbers) -> list[bytes]:
    """Arguments that are natural numbers; the name is the number of a text."""
    return delimited_integers(4, integer(1, name), 3, values)


def text_argument(name: int, value: int) -> bytes:
    """An argument that is a text; both are numbers of texts."""
    return delimited(4, integer(1, name) + integer(17, value))


def perf_sample(time: bytes, cpu: int, pid: int, tid: int, mode: int, callstack: int) -> bytes:
    """A stack at a moment on the CPU."""
    stack = integer(4, callstack) if callstack else b""
    sample = integer(1, cpu) + integer(2, pid) + integer(3, tid) + integer(5, mode) + stack
    return _packet(time + delimited(66, sample))
