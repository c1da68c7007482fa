"""A process that records itself, without the recording."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from stackhound import _native
from stackhound.transform.match import spread_to_children
from stackhound.transform.samples import keep_samples

if TYPE_CHECKING:
    from collections.abc import Collection

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

#: Python code whose time is the recording's: it starts, ends, and imports what follows.
RECORDER: Final = str(Path(__file__).parents[1] / "recording" / "recorder.py")


def without_recorder(profile: Profile, pid: int, tids: Collection[int] = ()) -> Profile:
    """Drop what stackhound did in a process that recorded: its threads, and the recording's start and end.

    What else the process does with stackhound stays: a thread of the recording is one that runs the native module
    without any Python function.

    Args:
        profile: where from.
        pid: the process that recorded.
        tids: threads of it that are the recording's, too, whatever they run.
    """
    of_process = profile.numbers("processes", "pid")[profile.numbers("threads", "process")] == pid
    of_recorder = np.isin(profile.numbers("threads", "tid"), list(tids))
    stack, thread = profile.numbers("samples", "stack"), profile.numbers("samples", "thread")
    drop = of_process[thread] & (_recording_stacks(profile)[stack] | of_recorder[thread])
    return profile.derive(keep_samples(profile, ~drop), "without-recorder")


def _recording_stacks(profile: Profile) -> Numbers:
    """Bool (n_stacks,): those through `RECORDER`, or through the native module and no Python function."""
    module = os.path.realpath(_native.__file__)  # as the kernel has it
    kinds, paths = profile.texts("objects", "kind"), profile.texts("objects", "path")
    objects = profile.numbers("locations", "object")
    is_python = _through(profile, np.array([kind == "python" for kind in kinds], bool)[objects])
    is_native = _through(profile, np.array([path == module for path in paths], bool)[objects])
    files = np.array([file == RECORDER for file in profile.texts("functions", "file")], bool)
    is_recorder = np.zeros(len(objects), bool)
    is_recorder[profile.numbers("lines", "location")[files[profile.numbers("lines", "function")]]] = True
    return _through(profile, is_recorder) | (is_native & ~is_python)


def _through(profile: Profile, locations: Numbers) -> Numbers:
    """Bool (n_stacks,): those with one of these locations, bool (n_locations,)."""
    parent, location = profile.numbers("stacks", "parent"), profile.numbers("stacks", "location")
    found = np.zeros(len(parent), bool)
    found[1:] = locations[location[1:]]
    return spread_to_children(parent, found)
