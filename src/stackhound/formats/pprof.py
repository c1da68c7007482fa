"""pprof: a gzipped protobuf (perftools.profiles.Profile) for ``go tool pprof`` and whatever else reads it.

    sample_type  [samples/count, cpu/nanoseconds]     for other events their own name and unit
                 [alloc_objects/count, alloc_space/bytes, inuse_objects/count, inuse_space/bytes]     for ``heap``
    sample       locations leaf first, its values, labels comm and thread (strings), pid and tid (numbers)
    location     its mapping, address, and lines: innermost inlined function first
    mapping      file name and build id; the kernel's is [kernel.kallsyms]_stext
    comment      what the recording says of itself, a line each (`pprof -comments`)

`crates/core` encodes; one event a file, as the format has one period.
"""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, BinaryIO

from stackhound import _native
from stackhound.errors import UsageError
from stackhound.profile.facts import facts, title
from stackhound.profile.metadata import read_int

if TYPE_CHECKING:
    from stackhound.profile import Event, Profile

#: gzip's own default. Level 9, which Python's would be, took twice as long for 0.3% less (200 k stacks).
COMPRESSION_LEVEL = 6


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write one event.

    Raises:
        UsageError: no such event, or several and None was given; or the profile is inverted.
    """
    if profile.inverted:
        raise UsageError("pprof's stacks run from the root to the leaf", "export the profile without --inverted")
    chosen = profile.event(event)
    encoded = _native.encode_pprof(dict(profile.tables), chosen.id, _options(profile, chosen))
    with gzip.GzipFile(filename="", mode="wb", compresslevel=COMPRESSION_LEVEL, fileobj=out, mtime=0) as packed:
        packed.write(encoded)


def _options(profile: Profile, event: Event) -> dict[str, object]:
    start_ns, unix_offset_ns = (
        read_int(profile.metadata, "clock", key) for key in ("start_boottime_ns", "boot_to_unix_ns_start")
    )
    return {
        "time_unix_ns": 0 if start_ns is None or unix_offset_ns is None else start_ns + unix_offset_ns,
        "duration_ns": profile.duration_ns,
        "period": 1_000_000_000 // event.rate if event.mode == "frequency" and event.rate else event.rate,
        "comments": [title(profile, event), *(f"{label}: {text}" for label, text in facts(profile, event))],
    }
