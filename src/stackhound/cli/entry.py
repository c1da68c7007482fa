"""The command ``stackhound``: the command line as a process of its own, which starts and ends quickly."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import Final, NoReturn

#: A start makes about 50,000 objects and no garbage; Python's own 700 have it look for some all the while (5 ms).
OBJECTS_BETWEEN_COLLECTIONS: Final = 100_000

INTERRUPTED: Final = 130  # 128 + SIGINT


def run() -> NoReturn:
    """Be the command: `stackhound.cli.main.main`, and leave without taking Python and numpy apart (20 ms)."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        from stackhound.cli.main import main

        status = main()
    except KeyboardInterrupt:  # while it was imported
        status = INTERRUPTED
    with suppress(OSError):  # what `main` could not write either, and said so
        sys.stdout.flush()
    os._exit(status)
