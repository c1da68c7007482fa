"""A flame graph to explore: one HTML file that opens offline and asks nothing of any network.

    <meta http-equiv="Content-Security-Policy" …>   only this file's own script and style, by their hashes
    <style>…</style>                                assets/flame.css
    <script type="application/json" id="profile">   what is shown:
      {"title": "cpu on web1", "facts": [["Duration", "10.0 s"], …], "scales": [[3600000000000, "h"], …],
       "fills": ["process", "native", …], "ink": "#15171c", "dark": {…},
       "light": {"fills": [["#b7bcc5", one a shade], …], "match": "#f25fa8", "narrow": "#a3aab4"},
       "strings": ["", "main", …],                        each text once; below they are row numbers
       "faces": {"name": […], "fill": […], "shade": […], "object": […], "source": […], "reason": […]},
       "nodes": {"count": 3, "depth": "AAEC", "face": "AgAB", "self": "AAAB"}}   with "before": a total to compare with
    <script>…</script>                              assets/*.js

Nodes are in preorder with siblings by falling total, which is all that a layout needs. Their columns are varints
(LEB128) in base64: a node of a usual profile takes 6 to 8 bytes. All nodes are there; what is too narrow to see is
skipped while drawing, and appears when its parent is zoomed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import numpy as np

from stackhound.formats.palette import FILLS, INK, MATCH, NARROW, Colour, shades
from stackhound.formats.picture import Faces, Picture, lay_out
from stackhound.profile.facts import facts, title
from stackhound.profile.units import SIZES, TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackhound.profile import Profile
    from stackhound.profile.columns import Numbers

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("tree.js", "amounts.js", "painter.js", "page.js")

#: What units are called in by size, the largest first.
SCALES = {"nanoseconds": (*TIMES, (1, "ns")), "bytes": (*SIZES, (1, "B"))}

#: What could end the script element or be read as markup. json.dumps escapes all that is not ASCII, U+2028 too.
MARKUP = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"}


def write(profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
    """Write one event as an HTML flame graph.

    Raises:
        EmptyProfile: the event has no sample.
        UsageError: no such event, or several and None was given.
    """
    write_page(_content(profile, lay_out(profile, event)), out)


def write_page(content: dict[str, Any], out: BinaryIO) -> None:
    """Write the page that shows ``content``, as drawn above."""
    script = "".join(_asset(name) for name in SCRIPTS)
    style = _asset("flame.css")
    page = Template(_asset("flame.html")).substitute(
        policy=policy(script, style),
        style=style,
        script=script,
        profile=embedded(content),
    )
    out.write(page.encode())


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def policy(script: str, style: str) -> str:
    """Nothing may be loaded, sent, framed or run but the one script and the one style."""
    own = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def embedded(content: object) -> str:
    """JSON that stands in a script element, whatever texts are in it."""
    text = json.dumps(content, separators=(",", ":"))
    for character, escaped in MARKUP.items():
        text = text.replace(character, escaped)
    return text


def _content(profile: Profile, picture: Picture) -> dict[str, Any]:
    return {
        "title": title(profile, picture.event),
        "facts": facts(profile, picture.event),
        "scales": scales(picture.event.unit),
        **colours(FILLS.values()),
        **encode_faces(picture.faces),
        "nodes": encode_nodes(picture, picture.face),
    }


def scales(unit: str) -> tuple[tuple[int, str], ...]:
    """What a unit is called in by size."""
    return SCALES.get(unit, ((1, ""),))


def encode_nodes(picture: Picture, face: Numbers, **others: Numbers) -> dict[str, Any]:
    """The nodes of a picture with their faces, and further columns of theirs."""
    columns = {"depth": picture.depth, "face": face, "self": picture.self_value, **others}
    return {"count": len(picture.depth), **{name: _varints(column) for name, column in columns.items()}}


def colours(fills: Iterable[Colour]) -> dict[str, Any]:
    """What the fills of faces are called, and how they look on both papers."""
    known = list(fills)
    return {
        "fills": [fill.label for fill in known],
        "ink": INK,
        "light": _on_paper(known, "light"),
        "dark": _on_paper(known, "dark"),
    }


def _on_paper(fills: list[Colour], paper: Literal["light", "dark"]) -> dict[str, Any]:
    return {
        "fills": [shades(getattr(fill, paper)) for fill in fills],
        "match": getattr(MATCH, paper),
        "narrow": getattr(NARROW, paper),
    }


class _Strings:
    """Gives each text a number; 0 is the empty one."""

    def __init__(self) -> None:
        self.ids = {"": 0}

    def number(self, texts: list[str]) -> list[int]:
        ids = self.ids
        for text in dict.fromkeys(texts):
            ids.setdefault(text, len(ids))
        return [ids[text] for text in texts]


def encode_faces(faces: Faces) -> dict[str, Any]:
    """Faces, and the texts that they refer to."""
    strings = _Strings()
    columns = {
        "name": strings.number(faces.name),
        "fill": faces.fill,
        "shade": faces.shade,
        "object": strings.number(faces.object),
        "source": strings.number(faces.source),
        "reason": strings.number(faces.reason),
    }
    return {"faces": columns, "strings": list(strings.ids)}


def _varints(numbers: Numbers) -> str:
    """Unsigned LEB128 in base64: 7 bits a byte, low bits first, the top bit set when more follow."""
    rest = numbers.astype(np.uint64)
    digits = []
    while True:
        digit = (rest & np.uint64(0x7F)).astype(np.uint8)
        rest = rest >> np.uint64(7)
        digits.append(digit | (rest > 0).astype(np.uint8) << 7)
        if not rest.any():
            break
    columns = np.stack(digits, axis=1)
    used = np.ones(columns.shape, bool)
    used[:, 1:] = np.cumprod(columns[:, :-1] >> 7, axis=1)
    return base64.b64encode(columns[used].tobytes()).decode()
