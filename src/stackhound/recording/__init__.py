"""Asking for a recording: options, events by name, COMMAND, the doctor."""

from __future__ import annotations

from stackhound.recording.options import RecordOptions
from stackhound.recording.recorder import Recorder, Status, record

__all__ = ["RecordOptions", "Recorder", "Status", "record"]
