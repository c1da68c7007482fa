"""A flame graph to explore: one HTML file that opens offline and asks nothing of any network.

    <meta http-equiv="Content-Security-Policy" …>   only this file's own script and style, by their hashes
    <style>…</style>                                assets/flame.css
    <script type="application/json" id="profile">   what is shown:
      {"title": "cpu on web1", "facts": [["Duration", "10.0 s"], …], "scales": [[3600000000000, "h"], …],
       "fills": ["process", "native", …], "ink": "#15171c", "dark": {…},
       "light": {"fills": [["#b7bcc5", one a shade], …], "match": "#f25fa8", "narrow": "#a3aab4"},
       "strings": ["", "main", …],                        each text once; below they are row numbers
       "faces": {"name": […], "fill": […], "shade": […], "object": […], "source": […], "reason": […]},
       "nodes": {"count": 3, "depth": "AAEC", "face": "AgAB", "self": "AAAB"}}
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

from stackhound.formats.palette import FILLS, INK, MATCH, NARROW, shades
from stackhound.formats.picture import Faces, Picture, lay_out
from stackhound.profile.facts import facts, title
from stackhound.profile.units import SIZES, TIMES

if TYPE_CHECKING:
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
    picture = lay_out(profile, event)
    script = "".join(_asset(name) for name in SCRIPTS)
    style = _asset("flame.css")
    page = Template(_asset("flame.html")).substitute(
        policy=_policy(script, style),
        style=style,
        script=script,
        profile=_embedded(_content(profile, picture)),
    )
    out.write(page.encode())


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Nothing may be loaded, sent, framed or run but the one script and the one style."""
    own = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _embedded(content: dict[str, Any]) -> str:
    text = json.dumps(content, separators=(",", ":"))
    for character, escaped in MARKUP.items():
        text = text.replace(character, escaped)
    return text


def _content(profile: Profile, picture: Picture) -> dict[str, Any]:
    strings = _Strings()
    return {
        "title": title(profile, picture.event),
        "facts": facts(profile, picture.event),
        "scales": SCALES.get(picture.event.unit, ((1, ""),)),
        "fills": [fill.label for fill in FILLS.values()],
        "ink": INK,
        "light": _colours("light"),
        "dark": _colours("dark"),
        "faces": _faces(picture.faces, strings),
        "strings": list(strings.ids),
        "nodes": {
            "count": len(picture.depth),
            "depth": _varints(picture.depth),
            "face": _varints(picture.face),
            "self": _varints(picture.self_value),
        },
    }


def _colours(paper: Literal["light", "dark"]) -> dict[str, Any]:
    return {
        "fills": [shades(getattr(fill, paper)) for fill in FILLS.values()],
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


def _faces(faces: Faces, strings: _Strings) -> dict[str, list[int]]:
    return {
        "name": strings.number(faces.name),
        "fill": faces.fill,
        "shade": faces.shade,
        "object": strings.number(faces.object),
        "source": strings.number(faces.source),
        "reason": strings.number(faces.reason),
    }


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
