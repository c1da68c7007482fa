"""A differential flame graph: what is, as wide as it is now, red where it has grown and blue where it has shrunk.

The page is that of `html`, with colours of its own and with what each frame was worth before. What is gone has no
frame; how much that was, stands above the picture.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, Final

import numpy as np

from stackhound.formats.html import colours, encode_faces, encode_nodes, scales, write_page
from stackhound.formats.palette import Colour
from stackhound.formats.picture import arrange
from stackhound.profile.escape import printable
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stackhound.formats.picture import Faces, Picture
    from stackhound.profile.columns import Numbers
    from stackhound.transform.diff import Difference

#: Shares of the whole; a change between two of them has the colour between them.
STEPS: Final = (-0.1, -0.02, -0.005, 0.005, 0.02, 0.1)
#: From the strongest blue to the strongest red, in the order of ``STEPS``; alike on both papers.
FILLS: Final = tuple(
    Colour(label, colour, colour)
    for label, colour in (
        ("less by more than 10% of all", "#5b9fe8"),
        ("less by 2 to 10% of all", "#9cc6f2"),
        ("less by 0.5 to 2% of all", "#d3e5f9"),
        ("as before", "#e6e4df"),
        ("more by 0.5 to 2% of all", "#fbdad2"),
        ("more by 2 to 10% of all", "#f5ad9c"),
        ("more by more than 10% of all", "#ee7963"),
    )
)


def write(found: Difference, out: BinaryIO, title: str) -> None:
    """Write a difference as a page to explore.

    Raises:
        EmptyProfile: nothing was sampled after.
    """
    picture = arrange(found.profile, found.after)
    before = found.before.total_value[picture.node]
    face, faces = _recolour(picture, _fills(before, picture.total_value))
    content = {
        "title": printable(title),
        "facts": _facts(found, picture),
        "scales": scales(picture.event.unit),
        **colours(FILLS),
        **encode_faces(faces),
        "nodes": encode_nodes(picture, face, before=before),
    }
    write_page(content, out)


def _fills(before: Numbers, after: Numbers) -> Numbers:
    """By node the fill that its change has: (n_nodes,)."""
    whole = max(int(before[0]), int(after[0]))
    change = (after.astype(np.float64) - before.astype(np.float64)) / whole
    fills: Numbers = np.searchsorted(np.array(STEPS), change, side="right")
    return fills


def _recolour(picture: Picture, fills: Numbers) -> tuple[Numbers, Faces]:
    """By node a face with its own fill, and these faces."""
    pairs, face = np.unique(np.stack((picture.face, fills)), axis=1, return_inverse=True)
    old, fill = pairs.tolist()
    known = picture.faces

    def of(texts: Sequence[str]) -> list[str]:
        return [texts[index] for index in old]

    texts = {name: of(getattr(known, name)) for name in ("name", "object", "source", "reason")}
    return face.reshape(-1).astype(np.uint32), replace(known, fill=fill, shade=[0] * len(old), **texts)


def _facts(found: Difference, picture: Picture) -> list[tuple[str, str]]:
    unit = picture.event.unit
    before, after = int(found.before.total_value[0]), int(found.after.total_value[0])
    gone = int(found.before.self_value[found.after.total_value == 0].sum())
    change = f"{100 * (after - before) / before:+.1f}%" if before else "there was none"
    return [
        ("Event", f"{picture.event.name} ({unit})"),
        ("Before", format_value(before, unit)),
        ("After", f"{format_value(after, unit)}, {change}"),
        ("Gone", format_value(gone, unit)),
    ]
