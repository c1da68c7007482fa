"""What the front-end is told of the recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stackhound.formats.firefox import categories
from stackhound.formats.firefox.columns import NS_PER_MS
from stackhound.profile.escape import printable
from stackhound.profile.facts import facts, title
from stackhound.profile.metadata import read_int, read_text

if TYPE_CHECKING:
    from stackhound.formats.firefox.samples import SampleRows
    from stackhound.profile import Profile

#: ``PROCESSED_PROFILE_VERSION``: the layout that this package writes. Later front-ends bring it up to theirs.
PROCESSED_VERSION: Final = 70
#: ``GECKO_PROFILE_VERSION`` of the same front-end, which nothing reads of a processed profile.
GECKO_VERSION: Final = 36


def build_meta(profile: Profile, samples: SampleRows, schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """``meta``."""
    known = profile.metadata
    tool = f"{read_text(known, 'tool', 'name') or 'stackhound'} {read_text(known, 'tool', 'version')}".strip()
    start_ns, unix_ns = (read_int(known, "clock", key) for key in ("start_boottime_ns", "boot_to_unix_ns_start"))
    return {
        "version": GECKO_VERSION,
        "preprocessedProfileVersion": PROCESSED_VERSION,
        "product": title(profile, samples.events[0]),
        "importedFrom": printable(tool),
        "interval": samples.interval_ns / NS_PER_MS,
        "startTime": 0 if start_ns is None or unix_ns is None else (start_ns + unix_ns) / NS_PER_MS,
        "profilingStartTime": 0,
        "profilingEndTime": profile.duration_ns / NS_PER_MS,
        "processType": 0,
        "stackwalk": 1,
        "debug": False,
        "symbolicated": True,
        "oscpu": printable(f"Linux {read_text(known, 'host', 'kernel')}".strip()),
        "platform": "Linux",
        "logicalCPUs": read_int(known, "host", "cpus_online") or 0,
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"},
        "categories": categories.as_rows(),
        "markerSchema": schemas,
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
        "extra": [{"label": "Recording", "entries": _facts(profile, samples)}],
    }


def _facts(profile: Profile, samples: SampleRows) -> list[dict[str, str]]:
    return [{"label": label, "format": "string", "value": text} for label, text in facts(profile, samples.events[0])]
