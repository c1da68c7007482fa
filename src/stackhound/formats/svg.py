"""A flame graph to print or to embed: a static SVG, root on top, no script.

    <svg viewBox="0 0 1200 640" …>
      <title>cpu on web1</title>
      <text>cpu on web1</text> <text>Duration 10.0 s …</text> <text>■ native 81.4% …</text>
      <svg x="24.00" y="122" width="1151.50" height="16">     one a frame: a window that cuts its label
        <title>main …</title>                                 what a pointer shows: source, object, total, self
        <rect …/><text …>main</text>                          the whole name, to be searched and copied
      </svg>
      …
      <text>1,234 frames narrower than 0.3 px are left out …</text>
    </svg>

What comes from a profiled process was made printable by `picture` and `facts`; here it is escaped for XML.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO
from xml.sax.saxutils import escape

import numpy as np

from stackhound.formats.palette import FILLS, INK, PAPER, QUIET, shades
from stackhound.formats.picture import Faces, Picture, lay_out
from stackhound.profile.escape import printable
from stackhound.profile.facts import facts, title
from stackhound.profile.units import format_share, format_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

# All in px of the drawing, which scales.
WIDTH = 1200
MARGIN = 24
DRAWN = 0.3  # a narrower frame is left out: a dot at 300 dpi
NAMED = 2  # a narrower frame has no label
LABELLED = 22  # a narrower frame has an invisible label, for the search
LINE = 18  # of text above and below the frames
CHARACTER = 6.4  # width of an average character in those lines
LONGEST_LINE = int((WIDTH - 2 * MARGIN) / CHARACTER)  # characters
GAP = 4  # characters, between two facts and in one
LONGEST_HEADING = LONGEST_LINE // 2  # its letters are larger
TALLEST_ROW = 17
SHORTEST_ROW = 7
TALL = 4800  # where the rows would be taller together they are made shorter, down to SHORTEST_ROW

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write one event as an SVG flame graph.

    Raises:
        EmptyProfile: the event has no sample.
        UsageError: no such event, or several and None was given.
    """
    picture = lay_out(profile, event)
    heading = printable(title(profile, picture.event), LONGEST_HEADING)
    above = [*_wrapped(facts(profile, picture.event)), _legend(picture)]
    grid = _Grid.of(picture, top=2 * MARGIN + LINE * (len(above) + 1))
    out.writelines(f"{line}\n".encode() for line in _document(picture, grid, heading, above))


@dataclass(frozen=True)
class _Grid:
    """Where frames go.

    Attributes:
        nodes: those that are wide enough to be drawn.
        scale: px a unit of value.
        top: of the root, px.
        row: px from one row to the next.
        bottom: of the deepest row, px.
    """

    nodes: Numbers
    scale: float
    top: int
    row: float
    bottom: float

    @classmethod
    def of(cls, picture: Picture, top: int) -> _Grid:
        scale = (WIDTH - 2 * MARGIN) / int(picture.total_value[0])
        nodes = np.flatnonzero(picture.total_value * scale >= DRAWN)
        rows = int(picture.depth[nodes].max()) + 1
        row = float(np.clip(TALL / rows, SHORTEST_ROW, TALLEST_ROW))
        return cls(nodes, scale, top, row, bottom=top + rows * row)


def _document(picture: Picture, grid: _Grid, heading: str, above: list[str]) -> Iterator[str]:
    height = round(grid.bottom + LINE + MARGIN)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" font-family="{FONT}" font-size="12" fill="{INK}">'
    )
    yield f"<title>{escape(heading)}</title>"
    yield f'<rect width="{WIDTH}" height="{height}" fill="{PAPER}"/>'
    yield f'<text x="{MARGIN}" y="{MARGIN + LINE}" font-size="20" font-weight="600">{escape(heading)}</text>'
    for number, line in enumerate(above, 2):
        yield f'<text x="{MARGIN}" y="{MARGIN + LINE * number + 8}">{line}</text>'
    yield f'<g font-size="{min(11, grid.row - 4):.1f}">'
    yield from _frames(picture, grid)
    yield "</g>"
    yield f'<text x="{MARGIN}" y="{grid.bottom + LINE:.0f}" fill="{QUIET}">{escape(_left_out(picture, grid))}</text>'
    yield "</svg>"


def _frames(picture: Picture, grid: _Grid) -> Iterator[str]:
    unit, whole = picture.event.unit, int(picture.total_value[0])
    looks = _looks(picture.faces)
    columns = (picture.face, picture.start, picture.depth, picture.total_value, picture.self_value)
    for face, start, depth, total, own in zip(*(column[grid.nodes].tolist() for column in columns), strict=True):
        name, note, fill = looks[face]
        width = total * grid.scale
        shares = f"total {_share(total, whole, unit)}&#10;self {_share(own, whole, unit)}"
        yield (
            f'<svg x="{MARGIN + start * grid.scale:.2f}" y="{grid.top + depth * grid.row:.2f}" '
            f'width="{width:.2f}" height="{grid.row:.2f}"><title>{name}&#10;{note}{shares}</title>'
            f'<rect width="{_gapped(width):.2f}" height="{grid.row - 1:.2f}" fill="{fill}"/>'
            f"{_label(name, width, grid.row)}</svg>"
        )


def _label(name: str, width: float, row: float) -> str:
    if width < NAMED:
        return ""
    hidden = "" if width >= LABELLED else ' fill-opacity="0"'
    return f'<text x="4" y="{row * 0.7:.1f}"{hidden}>{name}</text>'


def _gapped(width: float) -> float:
    """What a frame fills of its width, so that it can be told from its right neighbour."""
    return width - (0.7 if width > 4 else 0.3 if width > 1 else 0)


def _looks(faces: Faces) -> list[tuple[str, str, str]]:
    """(name, note, fill) of each face, escaped."""
    fills = [(fill.label, shades(fill.light)) for fill in FILLS.values()]
    looks = []
    for number, name in enumerate(faces.name):
        label, by_shade = fills[faces.fill[number]]
        origin = f"{label} · {faces.object[number]}" if faces.object[number] else label
        note = [faces.source[number], origin, faces.reason[number] and f"no name: {faces.reason[number]}"]
        escaped = "".join(f"{escape(line)}&#10;" for line in note if line)
        looks.append((escape(name), escaped, by_shade[faces.shade[number]]))
    return looks


def _share(value: int, whole: int, unit: str) -> str:
    return escape(f"{format_value(value, unit)} ({format_share(value, whole)})")


def _legend(picture: Picture) -> str:
    """The fills that there are, each with its share of self value."""
    fill_of_node = np.array(picture.faces.fill)[picture.face]
    sums = np.bincount(fill_of_node, picture.self_value, len(FILLS)).tolist()
    entries = [
        f'fill="{fill.light}">■</tspan> {fill.label} {escape(format_share(own, sum(sums)))}'
        for fill, own in zip(FILLS.values(), sums, strict=True)
        if own
    ]
    return "<tspan " + f'<tspan dx="{LINE}" '.join(entries)


def _wrapped(known: list[tuple[str, str]]) -> list[str]:
    """The facts as lines of text that fit the width; one that is longer than a line is cut."""
    lines: list[list[str]] = []
    room = 0
    for label, fact in known:
        text = printable(fact, LONGEST_LINE - len(label))
        length = len(label) + len(text) + GAP
        if length > room:
            lines.append([])
            room = LONGEST_LINE + GAP
        room -= length
        gap = f' dx="{LINE}"' if lines[-1] else ""
        lines[-1].append(f'<tspan{gap} fill="{QUIET}">{escape(label)}</tspan> {escape(text)}')
    return ["".join(line) for line in lines]


def _left_out(picture: Picture, grid: _Grid) -> str:
    """How much is too narrow: what the drawn frames' children are worth beyond those that are drawn."""
    count = len(picture.depth) - len(grid.nodes)
    total, own = picture.total_value[grid.nodes], picture.self_value[grid.nodes]
    value = int((total - own).sum() - total[1:].sum())
    if not count:
        return f"All {len(grid.nodes):,} frames are drawn"
    return (
        f"{count:,} frames narrower than {DRAWN} px are left out: {format_value(value, picture.event.unit)}, "
        f"{format_share(value, int(total[0]))} of the total, which the frames above them include"
    )
