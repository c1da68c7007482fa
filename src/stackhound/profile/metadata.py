"""What a profile says about its recording: ``meta.json`` in the ``.hound`` file.

Every key may be missing: another version wrote the file, or a test built the profile. Unknown keys are kept.
Text may come from profiled programs (command lines): escape it wherever it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class Tool(TypedDict, total=False):
    """Who recorded."""

    name: str
    version: str


class Host(TypedDict, total=False):
    """Where."""

    name: str
    kernel: str  # uname -r
    architecture: str  # uname -m
    cpus: int  # possible ones
    cpus_online: int


class Clock(TypedDict, total=False):
    """Times in the tables are CLOCK_BOOTTIME; Unix time is that plus an offset, which slews and jumps."""

    boot_to_unix_ns_start: int
    boot_to_unix_ns_end: int
    start_boottime_ns: int
    end_boottime_ns: int


class Frequency(TypedDict, total=False):
    """How often samples were asked for and came."""

    asked_hz: float
    achieved_hz: float | None
    max_sample_rate_before: int  # kernel.perf_event_max_sample_rate, which the kernel lowers under load
    max_sample_rate_after: int
    throttled: bool  # whether the kernel lowered that rate meanwhile; single events held back are in the losses


class Cost(TypedDict, total=False):
    """What the measuring itself took."""

    bpf_runs: int
    bpf_ns: int
    bpf_ns_per_run: float
    interrupt_ns_per_sample: float  # calibrated, not measured in this recording
    collector_cpu_ns: int
    resident_bytes: int
    unwind_bytes: int  # of the kernel's memory, for unwind tables
    python_processes: int  # whose Python frames could be read
    python_attach_ns: int  # what finding their interpreters took, all together
    elapsed_ns: int


class Metadata(TypedDict, total=False):
    """``meta.json``."""

    format_version: int
    created_unix_ns: int
    tool: Tool
    host: Host
    command_line: list[str] | str
    options: dict[str, Any]
    clock: Clock
    frequency: Frequency
    cost: Cost
    counters: dict[str, Any]  # as in bpf/abi.h; ``user_ends`` is a list, by the numbers of schema.USER_ENDS
    triggers: list[str]  # what fired, by event: ``cycles``, ``cpu-clock``
    pythons: dict[str, str]  # of a dump: by pid, the version of its CPython
    notes: list[str]
    transforms: list[str]  # what was done to the profile after recording, in order
    sampled_units: dict[str, str]  # of events whose samples weigh something else now, by name
    inverted: bool  # stacks run leaf → root, and so do the lines of a location
    merged: list[Metadata]  # the metadata of the profiles that this one was merged from


#: Numbers from a damaged file must not make sums overflow: 2⁶² ns are 146 years.
MAX_NUMBER = 2**62


def read_int(metadata: Mapping[str, Any], section: str, key: str) -> int | None:
    """``metadata[section][key]`` where it is a natural number; None where anything else, or nothing, is there."""
    value = _read(metadata, section, key)
    return value if isinstance(value, int) and 0 <= value < MAX_NUMBER else None


def read_amount(metadata: Mapping[str, Any], section: str, key: str) -> float:
    """``metadata[section][key]`` where it is a number that is not negative; 0 where anything else, or nothing, is."""
    value = _read(metadata, section, key)
    return value if isinstance(value, (int, float)) and 0 <= value < MAX_NUMBER else 0


def read_text(metadata: Mapping[str, Any], section: str, key: str) -> str:
    """``metadata[section][key]`` where it is text; empty where anything else, or nothing, is there."""
    value = _read(metadata, section, key)
    return value if isinstance(value, str) else ""


def _read(metadata: Mapping[str, Any], section: str, key: str) -> object:
    found = metadata.get(section)
    return found.get(key) if isinstance(found, Mapping) else None
