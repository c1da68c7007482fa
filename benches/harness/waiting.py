"""Waiting for something to become so, not for a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 30
STEP_S = 0.005


def wait_until(what: str, is_so: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + patience_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience_s} s for {what}")
        time.sleep(STEP_S)
