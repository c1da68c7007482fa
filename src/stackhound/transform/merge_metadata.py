"""What a merged profile says about its recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stackhound.profile.metadata import read_int
from stackhound.profile.schema import FORMAT_VERSION, OPTIONAL_TABLES, TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackhound.profile import Profile

#: Recordings of one boot differ in their offset to Unix time only by what was corrected in between.
SAME_BOOT_NS = 1_000_000_000
#: Of ``cost``: what adds up.
SUMS = ("bpf_runs", "bpf_ns", "collector_cpu_ns", "elapsed_ns")


def boot_shifts_ns(profiles: Sequence[Profile]) -> list[int]:
    """What to add to each profile's times: 0 for the oldest boot, and where no offset to Unix time is known."""
    offsets = [_boot_offset_ns(profile) for profile in profiles]
    oldest = min((offset for offset in offsets if offset is not None), default=0)
    shifts = [0 if offset is None else offset - oldest for offset in offsets]
    return [shift if shift >= SAME_BOOT_NS else 0 for shift in shifts]


def merge_metadata(profiles: Sequence[Profile], shifts_ns: Sequence[int]) -> dict[str, Any]:
    """What all profiles say alike; counters and costs added up; and under ``merged`` what each one said."""
    said = [dict(profile.metadata) for profile in profiles]
    alike = {key: value for key, value in said[0].items() if all(one.get(key) == value for one in said)}
    cost = _add_up(said, "cost")
    return {
        **alike,
        "format_version": FORMAT_VERSION,
        "clock": _merge_clocks(profiles, shifts_ns),
        "cost": {key: cost[key] for key in SUMS if key in cost},
        "counters": _add_up(said, "counters"),
        "notes": _merge_notes(profiles, said),
        "transforms": [f"merge of {len(profiles)} profiles"],
        "merged": said,
    }


def _boot_offset_ns(profile: Profile) -> int | None:
    return read_int(profile.metadata, "clock", "boot_to_unix_ns_start")


def _add_up(said: Sequence[dict[str, Any]], section: str) -> dict[str, int]:
    """The sums of all whole numbers of a section."""
    keys = dict.fromkeys(key for one in said for key in one.get(section) or {})
    return {key: sum(read_int(one, section, key) or 0 for one in said) for key in keys}


def _merge_clocks(profiles: Sequence[Profile], shifts_ns: Sequence[int]) -> dict[str, int]:
    """From the first start to the last end, on the clock of the oldest boot."""
    offsets = [offset for profile in profiles if (offset := _boot_offset_ns(profile)) is not None]
    moved = list(zip(profiles, shifts_ns, strict=True))
    times = {
        "start_boottime_ns": min(profile.start_boottime_ns + shift for profile, shift in moved),
        "end_boottime_ns": max(profile.start_boottime_ns + profile.duration_ns + shift for profile, shift in moved),
    }
    return times | ({"boot_to_unix_ns_start": min(offsets), "boot_to_unix_ns_end": min(offsets)} if offsets else {})


def _merge_notes(profiles: Sequence[Profile], said: Sequence[dict[str, Any]]) -> list[str]:
    notes = [note for one in said for note in one.get("notes") or []]
    known = TABLES.keys() | OPTIONAL_TABLES.keys()
    left_out = {name for profile in profiles for name in (profile.tables.keys() - known) | profile.attachments.keys()}
    notes += [f"left out of the merge: {name}" for name in sorted(left_out)]
    return list(dict.fromkeys(notes))
