"""The SVG flame graph, as an XML parser and a browser read it."""

from __future__ import annotations

import io
import itertools
import re
import xml.etree.ElementTree as ET

import pytest

from fixtures.examples import METADATA, two_events, web_server
from fixtures.profiles import Frame, build_profile
from stackhound.errors import EmptyProfile, UsageError
from stackhound.formats import by_name

SVG = "{http://www.w3.org/2000/svg}"
DRAWING = 1152  # px of the root
FIND = "(wanted) => { getSelection().removeAllRanges(); return window.find(wanted); }"  # what Ctrl-F does
HOSTILE = [
    "</text><script>window.hacked=1</script>",
    "]]><!--",
    "&amp;&lt;",
    "\"'><svg onload=window.hacked=1>",
    "\x00\x01\x1b[31m\x9b\u202ered\ufffe\uffff",
    "&#0;%xxe;",
]  # fmt: skip


def write(profile, event=None):
    out = io.BytesIO()
    by_name("svg").write(profile, out, event=event)
    return out.getvalue()


def stack(*frames, value=1_000_000_000, comm="app", pid=7):
    return (comm, pid, pid, 0, 1_000, list(frames), value, 1)


def shares():
    """10 s: 6 in parse (2 of them in vfs_read), 3 in draw, 1 in main."""
    return build_profile(
        [
            stack("main", "parse", value=4_000_000_000),
            stack("main", "parse", "k:vfs_read", value=2_000_000_000),
            stack("main", "draw", value=3_000_000_000),
            stack("main"),
        ],
        metadata=METADATA,
    )


def frames(profile):
    """(lines of the tip, x, y, width) of each frame."""
    root = ET.fromstring(write(profile))
    return [
        (one.findtext(f"{SVG}title").split("\n"), *(float(one.get(name)) for name in ("x", "y", "width")))
        for one in root.iter(f"{SVG}svg")
        if one is not root
    ]


def texts(profile):
    return ["".join(one.itertext()) for one in ET.fromstring(write(profile)).iter(f"{SVG}text")]


@pytest.fixture
def open_picture(browser, tmp_path):
    """Opens a profile's picture in Chromium."""
    page = browser.new_page()

    def open_it(profile):
        path = tmp_path / "flame.svg"
        path.write_bytes(write(profile))
        page.goto(path.as_uri())
        return page

    yield open_it
    page.close()


def test_the_same_profile_makes_the_same_file():
    assert write(web_server()) == write(web_server())


def test_a_profile_of_two_events_asks_which():
    with pytest.raises(UsageError, match="--event"):
        write(two_events())
    assert b"page-faults on web-1" in write(two_events(), "page-faults")


def test_a_profile_without_samples_is_refused():
    with pytest.raises(EmptyProfile, match="no sample of 'cpu'"):
        write(build_profile([]))


def test_widths_are_shares_and_children_lie_under_their_parent_the_largest_first():
    drawn = {tip[0]: place for tip, *place in frames(shares())}
    assert {name: round(place[2] / DRAWING, 3) for name, place in drawn.items()} == {
        "all": 1, "app": 1, "main": 1, "parse": 0.6, "draw": 0.3, "vfs_read": 0.2
    }  # fmt: skip
    assert drawn["parse"][0] == drawn["main"][0] == drawn["vfs_read"][0]
    assert drawn["draw"][0] == pytest.approx(drawn["parse"][0] + drawn["parse"][2], abs=0.02)
    assert drawn["all"][1] < drawn["app"][1] < drawn["main"][1] < drawn["parse"][1] == drawn["draw"][1]


def test_siblings_never_overlap_nor_leave_their_parent():
    rows = [
        stack("main", *(f"f{(number * step) % 7}" for step in (3, 5, 11)), value=1 + number) for number in range(500)
    ]
    by_row = {}
    for _, x, y, width in frames(build_profile(rows)):
        by_row.setdefault(y, []).append((x, x + width))
    for row in by_row.values():
        for (_, end), (start, _) in itertools.pairwise(sorted(row)):
            assert start >= end - 0.02
    assert max(end for row in by_row.values() for _, end in row) <= 24 + DRAWING + 0.02


def test_a_tip_tells_source_object_total_and_self():
    tips = [tip for tip, *_ in frames(build_profile([stack(Frame("main", file="/src/main.c", line=12), "k:read")]))]
    assert tips[-2:] == [
        ["main", "/src/main.c:12", "native · /usr/bin/app", "total 1.00 s (100.0%)", "self 0 ns (0%)"],
        ["read", "kernel · [kernel]", "total 1.00 s (100.0%)", "self 1.00 s (100.0%)"],
    ]


def test_a_tip_says_why_a_frame_has_no_name():
    tips = {tip[0]: tip for tip, *_ in frames(web_server())}
    assert tips["[libz.so.1]"][2] == "no name: no symbol table"


def test_the_lines_above_say_what_was_recorded_and_what_the_colours_mean():
    above = texts(shares())[:4]
    assert above[0] == "cpu on web-1"
    assert above[1] == (
        "Duration 10.0 sSamples 4Total 10.0 sEvent cpu (nanoseconds), by cpu-clock at 99 HzLost 0"
        "System Linux 6.18.5, x86_64, 2 CPUs"
    )
    assert above[2] == "■ native 80.0%■ kernel 20.0%"


def test_shares_that_are_hardly_there_are_shown_as_such():
    profile = build_profile([stack("main", "k:vfs_read", value=999_999), stack("main", value=1)])
    tips = {tip[0]: tip for tip, *_ in frames(profile)}
    assert tips["main"][-1] == "self 1 ns (<0.01%)"
    assert "■ native <0.01%■ kernel 100.0%" in texts(profile)


def test_counted_events_are_shown_in_counts():
    root = ET.fromstring(write(two_events(), "page-faults"))
    shown = ["".join(one.itertext()) for one in root.iter()]
    assert any("Total 3Event page-faults (count), by page-faults each time" in text for text in shown)
    assert any("total 3 (100.0%)\nself 3 (100.0%)" in text for text in shown)


def test_the_lines_above_stay_within_the_width(open_picture):
    losses = [(f"cause-{number}", number + 1, False, "") for number in range(60)]
    cost = {"bpf_ns_per_run": 4_100.0, "interrupt_ns_per_sample": 4_000.0, "collector_cpu_ns": 20_000_000,
            "elapsed_ns": 10_000_000_000, "resident_bytes": 41_000_000}  # fmt: skip
    host = {"name": "host" * 60, "kernel": "6.18.5"}
    metadata = METADATA | {"host": host, "cost": cost, "created_unix_ns": 1_763_718_193_000_000_000}
    page = open_picture(build_profile([stack("main")], metadata=metadata, losses=losses))
    ends = page.evaluate(
        "[...document.querySelectorAll('svg > text')].map((one) => { const b = one.getBBox(); return b.x + b.width; })"
    )
    assert len(ends) >= 5
    assert max(ends) <= 1200


def test_frames_too_narrow_to_print_are_left_out_and_counted():
    tiny = [stack("main", f"tiny{number}", value=100_000) for number in range(200)]
    profile = build_profile([stack("main", value=980_000_000), *tiny])
    assert not any(tip[0].startswith("tiny") for tip, *_ in frames(profile))
    assert texts(profile)[-1] == (
        "200 frames narrower than 0.3 px are left out: 20.0 ms, 2.00% of the total, which the frames above them include"
    )
    assert texts(shares())[-1] == "All 6 frames are drawn"


@pytest.mark.parametrize(("depth", "tallest"), [(3, 250), (250, 4900), (600, 5000)])
def test_the_picture_of_a_deep_stack_has_a_sane_height(depth, tallest):
    root = ET.fromstring(write(build_profile([stack(*(f"f{number}" for number in range(depth)))])))
    assert float(root.get("height")) < tallest
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    bottoms = [float(one.get("y")) + float(one.get("height")) for one in root.iter(f"{SVG}svg") if one is not root]
    assert len(bottoms) == depth + 2
    assert max(bottoms) < float(root.get("height"))


def test_there_is_no_script_no_link_and_a_white_background():
    root = ET.fromstring(write(web_server()))
    assert {one.tag.removeprefix(SVG) for one in root.iter()} == {"svg", "title", "rect", "text", "tspan", "g"}
    assert root.find(f"{SVG}rect").get("fill") == "#ffffff"
    assert not re.search(rb"href|onload|url\(|<style|@import|<!", write(web_server()))


def test_hostile_names_are_text_and_nothing_else(open_picture):
    rows = [stack(Frame(name, file=name, path=name), comm=name, pid=number + 1) for number, name in enumerate(HOSTILE)]
    metadata = METADATA | {"host": {"name": HOSTILE[0]}}
    profile = build_profile(rows, metadata=metadata, losses=[(HOSTILE[3], 1, False, "")])
    shown = [
        "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in name) for name in HOSTILE
    ]
    assert {tip[0] for tip, *_ in frames(profile)} == {"all", *shown}
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ufffe\uffff]", write(profile).decode())
    page = open_picture(profile)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.getElementsByTagName('parsererror').length") == 0
    assert page.evaluate("document.getElementsByTagName('text').length") > len(HOSTILE)


def test_a_browser_finds_names_that_are_cut_or_too_narrow_to_read(open_picture):
    long_name = "std::vector<std::pair<int, int>>::push_back_of_a_long_name"
    rows = [stack("main", long_name, value=60_000_000), stack("main", "sliver_of_a_frame", value=5_000_000)]
    page = open_picture(build_profile([*rows, stack("main", "most", value=935_000_000)]))
    for wanted in (long_name, "of_a_long_name", "sliver_of_a_frame"):
        assert page.evaluate(FIND, wanted), wanted
    assert not page.evaluate(FIND, "nowhere_to_be_found")


def test_a_label_is_cut_where_its_frame_ends(open_picture):
    page = open_picture(build_profile([stack("main", "x" * 200, value=100), stack("main", value=900)]))
    frame = page.locator("svg svg").last
    assert frame.locator("text").evaluate("(label) => label.getComputedTextLength()") > float(
        frame.get_attribute("width")
    )
    assert frame.evaluate("(frame) => getComputedStyle(frame).overflow") == "hidden"
