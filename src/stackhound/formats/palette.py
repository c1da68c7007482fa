"""The colours of the flame graphs, on white paper and on dark.

Text on every fill has a contrast of at least 4.5 (WCAG 2 AA), and fills of different meaning differ for people with
any of the three colour blindnesses: a test measures both.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple


class Colour(NamedTuple):
    """What a colour means, and its form on white paper and on dark."""

    label: str
    light: str
    dark: str


#: Fills by the kind of a frame, and whether it was inlined where that has a colour of its own.
FILLS: dict[str, Colour] = {
    "process": Colour("process", "#b7bcc5", "#80888f"),
    "user": Colour("native", "#f2a44e", "#dd8a2a"),
    "user inlined": Colour("native, inlined", "#fde3c4", "#a67d4f"),
    "kernel": Colour("kernel", "#87abee", "#92abf0"),
    "kernel inlined": Colour("kernel, inlined", "#cadffb", "#5587be"),
    "jit": Colour("JIT", "#c78fb0", "#d294aa"),
    "python": Colour("Python", "#85d79f", "#50dba5"),
    "task": Colour("asyncio task, awaiting", "#d9d36a", "#c9c34a"),
    "bpf": Colour("BPF", "#9b7ddb", "#a67ef0"),
    "waker": Colour("what woke the thread", "#35918b", "#61fefd"),
}
FILL_IDS = {key: index for index, key in enumerate(FILLS)}

INK = "#15171c"  # text on fills, and on white paper
PAPER = "#ffffff"  # of what is printed
QUIET = "#59636e"  # text of less weight on it
MATCH = Colour("found by the search", "#f25fa8", "#ff6fb5")
NARROW = Colour("too narrow to be drawn one by one", "#c9ced6", "#3c424c")

#: Shares of white mixed into a fill, so that neighbours of one meaning can be told apart.
SHADES = (0.0, 0.08, 0.16)


def fill_id(kind: str, inlined: bool) -> int:
    """The row of `FILLS` for a frame of ``kind``."""
    key = f"{kind} inlined" if inlined else kind
    return FILL_IDS[key if key in FILL_IDS else kind]


def shade_id(name: str) -> int:
    """The entry of `SHADES` for a name: the same in every picture."""
    return zlib.crc32(name.encode()) % len(SHADES)


def shades(fill: str) -> list[str]:
    """A fill in each of `SHADES`."""
    channels = [int(fill[at : at + 2], 16) for at in (1, 3, 5)]
    return ["#" + "".join(f"{round(one + (255 - one) * white):02x}" for one in channels) for white in SHADES]
