"""Events by the names that perf users know, and the numbers of ``struct perf_event_attr`` behind them.

    cpu                        time on the CPU: cycles where there are any, else cpu-clock (the core decides)
    off-cpu                    time off the CPU: asleep, waiting, or waiting for a turn
    block-io                   requests to block devices, and how long each took
    heap                       memory that programs allocate, and whether they give it back
    cycles, instructions, …    hardware
    L1-dcache-load-misses, …   cache: <cache>-<operation>s, <cache>-<operation>-misses
    r1a8                       raw: the CPU's own number, in hexadecimal
    page-faults, …             software
    sched:sched_switch         tracepoints
    cycles:u, cycles:k         any of them only in user space, only in the kernel
    all                        where time goes: those of `WHERE_TIME_GOES` that this machine has

Source of the numbers: include/uapi/linux/perf_event.h, which is ABI.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from stackhound.errors import UsageError

# perf_type_id; four are ours: of CPU_TIME the core picks cycles or cpu-clock, the others are no events of perf's.
CPU_TIME: Final = -1
OFF_CPU: Final = -2
BLOCK_IO: Final = -3
HEAP: Final = -4
HARDWARE: Final = 0
SOFTWARE: Final = 1
TRACEPOINT: Final = 2
CACHE: Final = 3
RAW: Final = 4

KINDS: Final = {
    CPU_TIME: "cpu",
    OFF_CPU: "off-cpu",
    BLOCK_IO: "block-io",
    HEAP: "heap",
    HARDWARE: "hardware",
    CACHE: "cache",
    RAW: "raw",
    SOFTWARE: "software",
    TRACEPOINT: "tracepoint",
}


class EventSource(NamedTuple):
    """What perf_event_open is asked for, and the unit of its count."""

    name: str
    type: int
    config: int
    unit: str = "count"
    exclude_kernel: bool = False
    exclude_user: bool = False
    tracepoint: str = ""  # ``category:name``; the core finds its number

    @property
    def kind(self) -> str:
        return KINDS[self.type]

    def native(self, mode: str, rate: int) -> dict[str, Any]:
        """The dict that `_native.Session` wants. ``rate``: Hz in ``frequency`` mode, else the period.

        A period of ``cpu`` is in nanoseconds, so cpu-clock has to count it.
        """
        by_clock = self.type == CPU_TIME and mode == "period"
        return {
            "name": self.name,
            "unit": self.unit,
            "type": SOFTWARE if by_clock else self.type,
            "config": self.config,
            "config1": 0,
            "config2": 0,
            "exclude_kernel": self.exclude_kernel,
            "exclude_user": self.exclude_user,
            "mode": mode,
            "rate": rate,
            "tracepoint": self.tracepoint,
        }


CPU: Final = EventSource("cpu", CPU_TIME, 0, "nanoseconds")
AWAY: Final = EventSource("off-cpu", OFF_CPU, 0, "nanoseconds")
REQUESTS: Final = EventSource("block-io", BLOCK_IO, 0, "nanoseconds")
ALLOCATIONS: Final = EventSource("heap", HEAP, 0, "bytes")

# enum perf_hw_id
_HARDWARE: Final = (
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branch-instructions",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
)

# enum perf_sw_ids; 9 (dummy) and 10 (bpf-output) count nothing
_SOFTWARE: Final = {
    "cpu-clock": 0,
    "task-clock": 1,
    "page-faults": 2,
    "context-switches": 3,
    "cpu-migrations": 4,
    "minor-faults": 5,
    "major-faults": 6,
    "alignment-faults": 7,
    "emulation-faults": 8,
    "cgroup-switches": 11,
}
_CLOCKS: Final = frozenset({"cpu-clock", "task-clock"})

# enum perf_hw_cache_id, and the operations that make sense for each (as in perf: tools/perf/util/evsel.c)
_CACHES: Final = {
    "L1-dcache": (0, "load store prefetch"),
    "L1-icache": (1, "load prefetch"),
    "LLC": (2, "load store prefetch"),
    "dTLB": (3, "load store prefetch"),
    "iTLB": (4, "load"),
    "branch": (5, "load"),
    "node": (6, "load store prefetch"),
}
_CACHE_OPERATIONS: Final = {"load": (0, "loads"), "store": (1, "stores"), "prefetch": (2, "prefetches")}

ALIASES: Final = {
    "cpu-cycles": "cycles",
    "branches": "branch-instructions",
    "idle-cycles-frontend": "stalled-cycles-frontend",
    "idle-cycles-backend": "stalled-cycles-backend",
    "faults": "page-faults",
    "cs": "context-switches",
    "migrations": "cpu-migrations",
}

ALL: Final = "all"
WHERE_TIME_GOES: Final = ("cpu", "off-cpu", "block-io", "major-faults", "minor-faults")

# Compiled where they are used: a recording of cpu waits for none of them.
_RAW_NAME: Final = r"r([0-9a-fA-F]{1,16})"
_MODIFIED_NAME: Final = r"(.+):([uk]{1,2})"
_TRACEPOINT_NAME: Final = r"[A-Za-z0-9_-]+:[A-Za-z0-9_-]+"


def _cache_sources() -> list[EventSource]:
    # config = cache | operation << 8 | result << 16 (result 0: access, 1: miss)
    sources = []
    for cache, (cache_id, operations) in _CACHES.items():
        for operation in operations.split():
            operation_id, plural = _CACHE_OPERATIONS[operation]
            config = cache_id | operation_id << 8
            sources.append(EventSource(f"{cache}-{plural}", CACHE, config))
            sources.append(EventSource(f"{cache}-{operation}-misses", CACHE, config | 1 << 16))
    return sources


def _named_sources() -> list[EventSource]:
    hardware = [EventSource(name, HARDWARE, number) for number, name in enumerate(_HARDWARE)]
    software = [
        EventSource(name, SOFTWARE, number, "nanoseconds" if name in _CLOCKS else "count")
        for name, number in _SOFTWARE.items()
    ]
    return [CPU, AWAY, REQUESTS, ALLOCATIONS, *hardware, *_cache_sources(), *software]


#: Every event that has a name of its own; raw events and tracepoints come on top.
NAMED: Final = {source.name: source for source in _named_sources()}


def find_event(name: str) -> EventSource:
    """The event called ``name``, with perf's modifiers ``:u`` and ``:k``.

    Raises:
        UsageError: nothing is called that; the remedy names what comes near.
        EventUnavailable: a tracepoint, and tracefs cannot be read.
    """
    modified = re.fullmatch(_MODIFIED_NAME, name)
    source = _find_plain(modified[1] if modified else name)
    if modified is None:
        return source
    return source._replace(
        name=f"{source.name}:{modified[2]}",
        exclude_kernel="k" not in modified[2],
        exclude_user="u" not in modified[2],
    )


def _find_plain(name: str) -> EventSource:
    named = NAMED.get(ALIASES.get(name, name))
    if named is not None:
        return named
    if raw := re.fullmatch(_RAW_NAME, name):
        return EventSource(name, RAW, int(raw[1], 16))
    if re.fullmatch(_TRACEPOINT_NAME, name):
        from stackhound.recording.tracepoints import check_tracepoint

        check_tracepoint(name)
        return EventSource(name, TRACEPOINT, 0, tracepoint=name)
    from stackhound.recording.near import near_matches

    raise UsageError(f"there is no event {name!r}", near_matches(name, (*NAMED, *ALIASES, ALL)))
