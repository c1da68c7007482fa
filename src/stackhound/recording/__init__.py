"""Asking for a recording: options, events by name, COMMAND, the doctor; a look at threads."""

from __future__ import annotations

from stackhound.recording.options import RecordOptions
from stackhound.recording.recorder import Recorder, Status, record
from stackhound.recording.threads import dump

__all__ = ["RecordOptions", "Recorder", "Status", "dump", "record"]
