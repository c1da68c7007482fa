"""Names from a profiled process made harmless for text that people and line-based tools read.

A thread can call itself anything (``prctl(PR_SET_NAME)``), and so can a symbol or a path: terminal escapes,
newlines, marks that turn the direction of writing (CVE-2024-58251, CVE-2021-42574).
"""

from __future__ import annotations

import json

from stackhound.profile.escape import printable as terminal

__all__ = ["as_json", "folded", "terminal"]


def folded(text: str) -> str:
    r"""Give ``text`` as one frame of a folded stack: as `terminal` does, and ``;``, the separator, as ``\x3b``."""
    return terminal(text).replace(";", r"\x3b")


def as_json(value: object) -> str:
    """Give ``value`` as JSON on one line of printable ASCII, whatever text is in it."""
    return json.dumps(value, separators=(",", ":")).replace("\x7f", r"\u007f")
