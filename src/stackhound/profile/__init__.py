"""A profile in memory: its tables, what pictures show of it, and the ``.hound`` file."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stackhound.profile.frames import Frames
    from stackhound.profile.hound import load, save
    from stackhound.profile.profile import Profile
    from stackhound.profile.rows import Event, Loss
    from stackhound.profile.top import TopTable
    from stackhound.profile.tree import CallTree

__all__ = ["CallTree", "Event", "Frames", "Loss", "Profile", "TopTable", "load", "save"]

#: Imported at first use, so that a recording can read the schema without waiting for numpy and Arrow.
_HOMES = {
    "CallTree": "tree",
    "Event": "rows",
    "Frames": "frames",
    "Loss": "rows",
    "Profile": "profile",
    "TopTable": "top",
    "load": "hound",
    "save": "hound",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
