"""speedscope's own JSON.

    {"$schema": "https://www.speedscope.app/file-format-schema.json", "exporter": "stackhound 0.1.0", "name": "…",
     "shared": {"frames": [{"name": "main", "file": "/src/main.c"}, …]},
     "profiles": [{"type": "sampled", "name": "nginx (pid 7, tid 7)", "unit": "nanoseconds", "startValue": 0,
                   "endValue": 30303030, "samples": [[0, 1, 2], …], "weights": [10101010, …]}, …]}

For each event a profile of all threads, their comms as the first frame, then one of each thread, the heaviest first.
A thread's samples are in order of time, a stack that was met several times in a row once. A sample is indices of
frames, root first. A frame is a function of a file, so that its time stands in one place, not on each of its lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from stackhound.formats.escape import as_json
from stackhound.formats.weights import join_paths, location_texts, weigh_stacks
from stackhound.profile.metadata import read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stackhound.profile import Event, Profile
    from stackhound.profile.columns import Numbers

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
#: The format's names of units; a count has none.
UNITS = {"nanoseconds": "nanoseconds", "bytes": "bytes"}


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write the samples of one event, or of all.

    Raises:
        UsageError: no such event.
    """
    chosen = profile.events if event is None else [profile.event(event)]
    frames: dict[tuple[str, str], int] = {}
    locations = _location_texts(profile, frames)
    comms = {comm: frames.setdefault((comm, ""), len(frames)) for comm in profile.texts("threads", "comm")}
    shared = {"frames": [{"name": name, "file": file} if file else {"name": name} for name, file in frames]}
    out.write(f'{as_json(_head(profile))[:-1]},"shared":{as_json(shared)},"profiles":['.encode("ascii"))
    separator = b""
    for one in chosen:
        for text in (_all_threads(profile, one, locations, comms), *_each_thread(profile, one, locations)):
            out.write(separator + text.encode("ascii"))
            separator = b","
    out.write(b"]}\n")


def _head(profile: Profile) -> dict[str, str]:
    metadata = profile.metadata
    exporter = f"{read_text(metadata, 'tool', 'name') or 'stackhound'} {read_text(metadata, 'tool', 'version')}".strip()
    return {"$schema": SCHEMA, "exporter": exporter, "name": read_text(metadata, "host", "name") or exporter}


def _location_texts(profile: Profile, ids: dict[tuple[str, str], int]) -> list[str]:
    """The frames at each location as ``1,2,``; each new (name, file) is added to ``ids``."""
    frames = profile.frames
    keys = zip(frames.name, frames.file, strict=True)
    return location_texts(frames, [f"{ids.setdefault(key, len(ids))}," for key in keys])


def _all_threads(profile: Profile, event: Event, locations: list[str], comms: dict[str, int]) -> str:
    weights = weigh_stacks(profile, event)
    first = [comms[comm] for comm in weights.comms]
    paths = join_paths(profile, weights.stack, locations)
    samples = (f"[{first[comm]},{path}"[:-1] + "]" for comm, path in zip(weights.comm.tolist(), paths, strict=True))
    return _profile(event, "all threads", samples, weights.value)


def _each_thread(profile: Profile, event: Event, locations: list[str]) -> Iterator[str]:
    thread, stack, value = _runs(profile, event)
    used, index = np.unique(stack, return_inverse=True)
    paths = [f"[{path[:-1]}]" for path in join_paths(profile, used, locations)]
    starts = np.flatnonzero(np.diff(thread, prepend=-1))
    ends = np.append(starts[1:], len(thread))
    totals = np.add.reduceat(value, starts) if len(starts) else value
    for one in np.argsort(-totals.astype(np.int64), kind="stable").tolist():
        rows = slice(starts[one], ends[one])
        samples = [paths[path] for path in index[rows].tolist()]
        yield _profile(event, _thread_name(profile, int(thread[starts[one]])), samples, value[rows])


def _runs(profile: Profile, event: Event) -> tuple[Numbers, Numbers, Numbers]:
    """Thread, stack and value of each run of equal stacks, thread by thread in order of time."""
    samples = profile.samples_of(event)
    order = np.argsort(samples.thread, kind="stable")
    thread, stack = samples.thread[order].astype(np.int64), samples.stack[order].astype(np.int64)
    starts = np.flatnonzero((np.diff(thread, prepend=-1) != 0) | (np.diff(stack, prepend=-1) != 0))
    value = samples.value[order]
    return thread[starts], stack[starts], np.add.reduceat(value, starts) if len(starts) else value


def _thread_name(profile: Profile, thread: int) -> str:
    pid = profile.numbers("processes", "pid")[profile.numbers("threads", "process")[thread]]
    return f"{profile.texts('threads', 'comm')[thread]} (pid {pid}, tid {profile.numbers('threads', 'tid')[thread]})"


def _profile(event: Event, name: str, samples: Iterable[str], weights: Numbers) -> str:
    head = {
        "type": "sampled",
        "name": f"{event.name}: {name}",
        "unit": UNITS.get(event.unit, "none"),
        "startValue": 0,
        "endValue": int(weights.sum()),
    }
    return f'{as_json(head)[:-1]},"samples":[{",".join(samples)}],"weights":[{",".join(map(str, weights.tolist()))}]}}'
