"""What is missing in a profile, object by object: the roots of stacks, names of frames; and what mends it next time."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound.errors import EmptyProfile, UsageError
from stackhound.profile.units import format_samples
from stackhound.profile.walks import WHOLE, walks_by_object
from stackhound.recording.doctor import Finding
from stackhound.recording.runtimes import remedy_for

if TYPE_CHECKING:
    from stackhound.profile import Profile
    from stackhound.profile.walks import ObjectWalks

#: What is so rare needs no remedy.
NEGLIGIBLE_PERCENT: Final = 1.0

BEGINNING: Final = "record for longer, or from the start with 'record -- COMMAND'"
REBUILD: Final = "build it with -fasynchronous-unwind-tables, or with -fno-omit-frame-pointer"
#: By how a stack ended, of `schema.USER_ENDS`.
END_REMEDIES: Final = {
    "mappings not known yet": BEGINNING,
    "table not there yet": BEGINNING,
    "no rule": REBUILD,
    "outside code": REBUILD,
    "unsupported rule": REBUILD,
}
#: By why a frame has no name.
MISS_REMEDIES: Final = {
    "no symbol table": "install its debug symbols, or record with --debuginfod",
    "not in the symbol table": "install its debug symbols, or record with --debuginfod",
    "kernel addresses are hidden (kernel.kptr_restrict)": "sudo sysctl kernel.kptr_restrict=1",
    "process gone before its mappings were seen": BEGINNING,
}


@dataclass(frozen=True)
class WalkFinding(Finding):
    """One object of a profile, in observations of all events."""

    samples: int = 0  # whose stack went through it
    complete: int = 0  # of these, those that reached their root
    broken: dict[str, int] = field(default_factory=dict)  # the others by why they broke, here or farther out
    broken_here: dict[str, int] = field(default_factory=dict)  # those among them that broke in this object
    frames: int = 0
    misses: dict[str, int] = field(default_factory=dict)  # frames without a name, by the reason


def examine_profile(profile: Profile) -> list[WalkFinding]:
    """Look at every object that some stack went through, the most used first.

    Raises:
        EmptyProfile: there is no sample.
        UsageError: the stacks are inverted.
    """
    if profile.inverted:
        raise UsageError("the stacks of this profile are inverted", "give the profile that it was made of")
    found = walks_by_object(profile)
    if not found:
        raise EmptyProfile("there is no sample in this profile", "record for longer, or filter less")
    paths, kinds = profile.texts("objects", "path"), profile.texts("objects", "kind")
    return [_examine(walks, paths[walks.object], kinds[walks.object], profile) for walks in found]


def _examine(walks: ObjectWalks, path: str, kind: str, profile: Profile) -> WalkFinding:
    problems: dict[str, str] = {}  # what is wrong, and its remedy
    broken_here = sum(walks.broken_here.values())
    if _percent(broken_here, walks.samples) >= NEGLIGIBLE_PERCENT:
        end = max(walks.broken_here, key=lambda end: walks.broken_here[end])
        problems[f"{_share(broken_here, walks.samples)} broke here: {_counts(walks.broken_here)}"] = (
            _made_code_remedy(profile, path) if kind == "jit" else END_REMEDIES.get(end, "")
        )
    unnamed = walks.misses.total()
    if _percent(unnamed, walks.frames) >= NEGLIGIBLE_PERCENT:
        reason = walks.misses.most_common(1)[0][0]
        problems[f"{_share(unnamed, walks.frames)} of its frames have no name: {_counts(walks.misses)}"] = (
            _made_code_remedy(profile, path) if kind == "jit" else MISS_REMEDIES.get(reason, "")
        )
    whole = f"{format_samples(walks.samples)}, {_share(walks.complete, walks.samples)} of their stacks complete"
    return WalkFinding(
        path,
        "degraded" if problems else "ok",
        "; ".join([whole, *problems]),
        "; ".join(dict.fromkeys(filter(None, problems.values()))),
        walks.samples,
        walks.complete,
        {end: count for end, count in walks.ends.items() if end not in WHOLE},
        walks.broken_here,
        walks.frames,
        dict(walks.misses),
    )


def _made_code_remedy(profile: Profile, path: str) -> str:
    """By the runtime of the process whose code it is, which the object's name tells."""
    found = re.search(r" (\d+)@\d+\]$", path)
    pid = int(found[1]) if found else None
    of_process = (profile.numbers("processes", "pid") == pid).nonzero()[0].tolist()
    executables, mapped = profile.texts("processes", "executable"), profile.texts("mappings", "path")
    mappings = np.isin(profile.numbers("mappings", "process"), of_process).nonzero()[0].tolist()
    files = [*(executables[row] for row in of_process), *(mapped[row] for row in mappings)]
    return remedy_for(files, "PID" if pid is None else pid)


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / max(whole, 1)


def _share(part: int, whole: int) -> str:
    return f"{_percent(part, whole):.1f}%"


def _counts(by_reason: dict[str, int]) -> str:
    ordered = sorted(by_reason.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{reason} {count:,}" for reason, count in ordered)
