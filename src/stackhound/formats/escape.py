"""Names from a profiled process made harmless for text that people and line-based tools read.

A thread can call itself anything (``prctl(PR_SET_NAME)``), and so can a symbol or a path: terminal escapes,
newlines, marks that turn the direction of writing (CVE-2024-58251, CVE-2021-42574). What has no glyph is shown
as Python's ``repr`` would show it; everything else, all scripts included, stays as it is.
"""

from __future__ import annotations


def terminal(text: str) -> str:
    r"""Give ``text`` as one line that a terminal only prints.

    Escaped is what `str.isprintable` refuses: the controls C0 and C1, line and paragraph separators, format
    characters (all of bidi), surrogates, private and unassigned code points, every space but the plain one.

    Examples:
        >>> print(terminal("a\x1b[31mb\nc"))
        a\x1b[31mb\nc
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def folded(text: str) -> str:
    """Give ``text`` as one frame of a folded stack: as `terminal`, and without the separator ``;``."""
    return terminal(text).replace(";", r"\x3b")


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
