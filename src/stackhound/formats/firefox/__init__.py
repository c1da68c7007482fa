"""The Firefox Profiler's processed profile, version 70, for profiler.firefox.com and copies of it.

    {"meta": {"interval": 10.1, "categories": […], "markerSchema": […], …},             metadata.py
     "libs": [{"name": "libc.so.6", "breakpadId": "…", "codeId": "…", …}, …],           libraries.py
     "shared": {"stringArray": ["main", …],                                             strings.py
                "stackTable": {"frame": […], "prefixOffset": […], "length": 3},         stacks.py
                "frameTable": …, "funcTable": …, "nativeSymbols": …, "resourceTable": …, "sources": …},
     "threads": [{"name": "nginx", "pid": "7", "tid": 7,                                threads.py
                  "samples": {"stack": […], "time": […], "weight": […], …},             samples.py
                  "markers": {"data": [{"type": "page-faults", "cause": …}, …], …}}, …],  markers.py
     "counters": [{"name": "CPU", "pid": "7", "samples": {"time": […], "count": […]}}, …]}  counters.py

Times are ms since the recording began; tables are columns of equal length. Samples are those of ``cpu``, with those of
``off-cpu`` woven in; what else was recorded, and each ``off-cpu`` sample once more with its reason, are markers with
their stacks. Names are printable before they are written: the front-end shows them, and JSON escapes the rest.

Source: docs-developer/CHANGELOG-formats.md and src/types/profile.ts of firefox-devtools/profiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import orjson

from stackhound.errors import EmptyProfile, UsageError
from stackhound.formats.firefox.counters import build_counters
from stackhound.formats.firefox.identities import identify
from stackhound.formats.firefox.libraries import build_libraries
from stackhound.formats.firefox.markers import build_markers
from stackhound.formats.firefox.metadata import build_meta
from stackhound.formats.firefox.samples import build_samples
from stackhound.formats.firefox.stacks import build_stacks
from stackhound.formats.firefox.strings import Strings
from stackhound.formats.firefox.threads import build_threads

if TYPE_CHECKING:
    from stackhound.profile import Profile

__all__ = ["build", "write"]


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write all events, or one, whose samples are then the samples.

    Raises:
        EmptyProfile: there is nothing to show.
        UsageError: no such event, or the profile is inverted or weighs something else than what was sampled.
    """
    out.write(orjson.dumps(build(profile, event), option=orjson.OPT_SERIALIZE_NUMPY))


def build(profile: Profile, event: str | None = None) -> dict[str, Any]:
    """The document that `write` writes, with columns as numpy arrays and lists."""
    if profile.inverted:
        raise UsageError("the Firefox Profiler turns stacks around itself", "export the profile without --inverted")
    if profile.is_reweighed:
        raise UsageError("the Firefox Profiler shows times", "export the profile without --by")
    if event is not None:
        profile = profile.filter(events=[profile.event(event).name]).compact()
    if profile.table("samples").num_rows == 0:
        raise EmptyProfile("this profile has no samples to show", "record again, or choose another event")
    strings = Strings()
    libraries = build_libraries(profile)
    stacks = build_stacks(profile, libraries, strings)
    identities = identify(profile)
    samples = build_samples(profile, identities.of_thread)
    markers = build_markers(profile, identities.of_thread, samples.events, stacks.node, strings)
    threads = build_threads(profile, identities, samples, markers, stacks.node)
    return {
        "meta": build_meta(profile, samples, markers.schemas),
        "libs": libraries.rows,
        "shared": {**stacks.tables, "stringArray": strings.texts},
        "threads": threads.rows,
        "counters": build_counters(profile, identities, threads.first_of_process),
    }
