"""stackhound: where a Linux machine's time goes.

Example:
    with stackhound.record(pids=[1234], frequency_hz=99) as recording:
        work()
    profile = recording.profile                     # stackhound.load("x.hound") gives the same type
    profile.top(10)                                 # an Arrow table that also prints well
    polars.DataFrame(profile.table("samples"))      # any Arrow reader: polars, DuckDB, pandas
    profile.focus("json").export("flame.html")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from stackhound import errors
from stackhound.errors import StackhoundError

if TYPE_CHECKING:
    from stackhound.profile import Profile, load
    from stackhound.recording import Recorder, record

__all__ = ["Profile", "Recorder", "StackhoundError", "errors", "load", "record"]

#: Where each name lives. They are imported at first use: numpy and Arrow would double the start of the command line.
_HOMES = {
    "Profile": "stackhound.profile",
    "load": "stackhound.profile",
    "Recorder": "stackhound.recording",
    "record": "stackhound.recording",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
