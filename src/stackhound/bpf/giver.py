"""Calls one Python function for what a program is measured with: ``python giver.py MODULE:FUNCTION FILE``.

In a Python of its own: each side of a comparison has its own module of that name. FILE gets JSON, bytes as hexadecimal:
{"bytes": "ffff…"} of bytes, {"maps": {"answers": [["00000000", "2a000000"], …]}} of a dictionary.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    sys.path[0] = str(Path.cwd())  # as python -m has it
    name, output = sys.argv[1:]
    Path(output).write_text(json.dumps(describe(call(name))))


def call(name: str) -> object:
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found()  # type: ignore[operator]  # calling it tells


def describe(given: object) -> dict[str, object]:
    """What it gave, as JSON takes it.

    Raises:
        TypeError: it is neither bytes, nor a dictionary of lists of pairs of bytes.
    """
    if isinstance(given, (bytes, bytearray)):
        return {"bytes": given.hex()}
    if not isinstance(given, dict):
        raise TypeError(f"it returned a value of type {type(given).__name__}, neither bytes nor a dictionary of maps")
    return {
        "maps": {str(name): [(as_hex(key), as_hex(value)) for key, value in pairs] for name, pairs in given.items()}
    }


def as_hex(part: object) -> str:
    if not isinstance(part, (bytes, bytearray)):
        raise TypeError(f"a key or a value has the type {type(part).__name__}, not bytes")
    return part.hex()


if __name__ == "__main__":
    main()
