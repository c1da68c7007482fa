"""What all tests share: the tools that make setup installed are on PATH, and `ebpf` tests need privileges."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

# Under nohup SIGHUP is ignored, and would be by the recorders that tests send it to; a handler is not inherited.
signal.signal(signal.SIGHUP, lambda *_: None)

os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

NEEDS_ROOT = "loads BPF programs: needs root (make test uses sudo where it asks for no password)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("ebpf"):
            item.add_marker(pytest.mark.skip(reason=NEEDS_ROOT))
