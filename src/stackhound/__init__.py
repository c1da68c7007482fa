"""stackhound: where a Linux machine's time goes.

Example:
    with stackhound.record() as recording:          # this process; pids=[1234]: another one
        work()
    profile = recording.profile                     # stackhound.load("x.hound") gives the same type
    profile.top(10)                                 # an Arrow table that also prints well
    polars.DataFrame(profile.table("samples"))      # any Arrow reader: polars, DuckDB, pandas
    profile.focus("json").export("flame.html")
    stackhound.dump([1234])                         # what each thread of a process does now, as such a profile
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from stackhound import errors
from stackhound.errors import FreeThreadedPython, StackhoundError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from stackhound.profile import Profile, load
    from stackhound.recording import Recorder, dump, record

__all__ = ["Profile", "Recorder", "StackhoundError", "dump", "errors", "load", "record"]

#: Where each name lives. They are imported at first use: numpy and Arrow would double the start of the command line.
_HOMES = {
    "Profile": "stackhound.profile",
    "load": "stackhound.profile",
    "Recorder": "stackhound.recording",
    "record": "stackhound.recording",
    "dump": "stackhound.recording",
}


if "t" in sys.abiflags:  # free-threaded
    from importlib.util import find_spec

    if find_spec("stackhound._native") is None:
        raise FreeThreadedPython(
            "this stackhound cannot be imported by a free-threaded Python, which loads no abi3 module",
            "install it in another Python and record from outside, 'stackhound record -- PROGRAM' or 'record -p PID'",
        )


def load_ipython_extension(shell: InteractiveShell) -> None:
    """``%load_ext stackhound``: see `stackhound.ipython`."""
    import_module("stackhound.ipython").load_ipython_extension(shell)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
