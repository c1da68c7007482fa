"""The differential flame graph, as a person with a browser meets it."""

from __future__ import annotations

import io
import json
import re

import pytest

from fixtures.profiles import build_profile
from stackhound.errors import EmptyProfile
from stackhound.formats.difference import FILLS, write
from stackhound.formats.palette import INK
from stackhound.transform import diff

SECOND = 1_000_000_000
HOSTILE = "</script><script>window.hacked=1</script>"


def profile(**seconds):
    return build_profile(
        [("app", 7, 7, 0, 1_000, ["main", name], round(value * SECOND), 1) for name, value in seconds.items()]
    )


def page_of(before, after, title="cpu of drain: what changed"):
    out = io.BytesIO()
    write(diff([before], [after], "cpu"), out, title)
    return out.getvalue().decode()


def content(page):
    return json.loads(re.search(r'id="profile">(.*?)</script>', page, re.DOTALL)[1])


def labels(page):
    """What its colour says of each function's change."""
    found = content(page)
    faces = found["faces"]
    return {
        found["strings"][name]: found["fills"][fill] for name, fill in zip(faces["name"], faces["fill"], strict=True)
    }


def test_what_grew_is_red_what_shrank_is_blue_and_the_rest_is_neither():
    page = page_of(profile(parse=5, draw=5, load=10), profile(parse=8, draw=4.5, load=10))
    shown = labels(page)
    assert shown["parse"] == "more by more than 10% of all"
    assert shown["draw"] == "less by 2 to 10% of all"
    assert shown["load"] == "as before"
    colours = content(page)["light"]["fills"]
    red, blue = (colours[content(page)["fills"].index(shown[name])][0] for name in ("parse", "draw"))
    assert red[1:3] > red[5:7]
    assert blue[1:3] < blue[5:7]


def test_what_is_gone_stands_above_the_picture():
    facts = dict(content(page_of(profile(parse=5, old=2), profile(parse=5)))["facts"])
    assert facts["Gone"] == "2.00 s"
    assert (facts["Before"], facts["After"]) == ("7.00 s", "5.00 s, -28.6%")


def test_text_on_every_colour_can_be_read():
    assert all(contrast(INK, fill.light) >= 4.5 and fill.light == fill.dark for fill in FILLS)


def contrast(one, other):
    """As WCAG 2.1 has it."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_nothing_sampled_after_is_nothing_to_draw():
    with pytest.raises(EmptyProfile):
        page_of(profile(parse=5), profile(parse=5).filter(comms=["nobody"]))


def test_a_pointer_shows_what_there_was_before(browser, tmp_path):
    path = tmp_path / "difference.html"
    path.write_text(page_of(profile(parse=5, draw=5), profile(parse=8, draw=4), HOSTILE))
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("window.hacked") is None
    rows = page.evaluate(
        """() => [...tree.face.keys()].map((node) => [faces.name[tree.face[node]], amountsOf(node).at(-1)])"""
    )
    page.close()
    assert dict(map(tuple, ((name, tuple(cells)) for name, cells in rows))) == {
        "all": ("Before", "10.0 s", "+2.00 s since"),
        "main": ("Before", "10.0 s", "+2.00 s since"),
        "parse": ("Before", "5.00 s", "+3.00 s since"),
        "draw": ("Before", "5.00 s", "−1.00 s since"),
    }
