"""A trace for Perfetto (ui.perfetto.dev and trace_processor): tracks of processes and threads over time.

    clocks                          CLOCK_BOOTTIME, and what time of day that was
    interned data                   names, files, frames with lines, stacks, each once            interned.py
    tracks                          a process, its threads, its curves                            tracks.py
    perf samples                    ``cpu``: flame graphs of whatever time and threads are selected   events.py
    slices and instants             ``off-cpu``, ``block-io``, faults, all else, with their stacks    events.py
    counters                        CPUs in use, faults and bytes a second                        counters.py

Each is a packet (`packets.py`) in the wire format of protobuf (`protobuf.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

from stackhound.errors import EmptyProfile, UsageError
from stackhound.formats.perfetto import packets
from stackhound.formats.perfetto.counters import write_counters
from stackhound.formats.perfetto.events import write_events, write_samples
from stackhound.formats.perfetto.interned import Interned, intern_stacks
from stackhound.formats.perfetto.tracks import Tracks
from stackhound.profile.columns import distinct
from stackhound.profile.metadata import read_int

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile import Event, Profile

__all__ = ["write"]

#: What becomes samples; all other events become slices and instants.
SAMPLED: Final = "cpu"


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write all events, or one.

    Raises:
        EmptyProfile: there is nothing to show.
        UsageError: no such event, the profile is inverted or weighs something else than what was sampled, or its
            samples were combined and have no times.
    """
    if profile.inverted:
        raise UsageError("Perfetto turns stacks around itself", "export the profile without --inverted")
    if profile.is_reweighed:
        raise UsageError("Perfetto shows times", "export the profile without --by")
    if profile.is_aggregated:
        raise UsageError("samples of this profile were combined, and have no times", "record without --aggregate")
    if event is not None:
        profile = profile.filter(events=[profile.event(event).name])
    if profile.table("samples").num_rows == 0:
        raise EmptyProfile("this profile has no samples to show", "record again, or choose another event")
    out.writelines(_trace(profile))


def _trace(profile: Profile) -> Iterator[bytes]:
    """The packets. What they name by number stands in front of them."""
    interned, tracks = Interned(), Tracks(profile)
    stacks = distinct(profile.numbers("samples", "stack"))
    intern_stacks(profile, interned, stacks[stacks > 0])
    body = [packet for one in profile.events for packet in _event(profile, one, tracks, interned)]
    unix_offset_ns = read_int(profile.metadata, "clock", "boot_to_unix_ns_start")
    start_ns = profile.start_boottime_ns
    yield packets.first_packet(start_ns, None if unix_offset_ns is None else start_ns + unix_offset_ns)
    yield from interned.chunks()
    yield from tracks.written()
    yield from body


def _event(profile: Profile, event: Event, tracks: Tracks, interned: Interned) -> Iterator[bytes]:
    if event.name == SAMPLED:
        yield from write_samples(profile, event, tracks)
    else:
        yield from write_events(profile, event, tracks, interned)
    yield from write_counters(profile, event, tracks)
