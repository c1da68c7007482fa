"""The HTML flame graph, as a person with a browser, no network, a mouse, a keyboard or a finger meets it."""

from __future__ import annotations

import io
import re

import pytest

from fixtures.examples import METADATA, two_events, web_server
from fixtures.profiles import CPU, Frame, build_profile
from stackhound.errors import EmptyProfile, UsageError
from stackhound.formats import by_name

WINDOW = {"width": 1000, "height": 600}
READBACK = "willReadFrequently"  # Chromium's advice on how these tests look at colours
HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<!--<script>",
    "&lt;b&gt;",
    "\u2028\u2029'\"`${window.hacked=1}",
    "\x1b[31m\x9b\u202ered",
    "javascript:alert(1)",
    "]]>",
    "$policy",
]  # fmt: skip


def write(profile, event=None):
    out = io.BytesIO()
    by_name("html").write(profile, out, event=event)
    return out.getvalue()


def stack(*frames, value=1_000_000_000, comm="app", pid=7):
    return (comm, pid, pid, 0, 1_000, list(frames), value, 1)


def recursive():
    """10 s: 6 in parse (which calls itself for 4 of them, and vfs_read for 2), 3 in draw, 1 in main."""
    return build_profile(
        [
            stack("main", "parse", "parse", value=2_000_000_000),
            stack("main", "parse", "parse", "k:vfs_read", value=2_000_000_000),
            stack("main", "parse", value=2_000_000_000),
            stack("main", "draw", value=3_000_000_000),
            stack("main"),
        ],
        metadata=METADATA,
    )


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens a profile's page, offline, and fails the test if the page asked for anything or complained."""
    contexts, complaints, requests = [], [], []

    def open_it(profile, address="", **options):
        path = tmp_path / "flame.html"
        path.write_bytes(write(profile))
        context = browser.new_context(**({"viewport": WINDOW} | options))
        context.set_offline(True)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url.split("#")[0]))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if READBACK not in message.text else None)
        page.goto(f"file://{path}{address}")
        painted(page)
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
    assert set(requests) <= {(tmp_path / "flame.html").as_uri()}


def painted(page):
    """Waits until what was asked for is drawn."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def spot(page, name, nth=0):
    """Where the nth frame called ``name`` is on the screen: (x, y) of its middle."""
    x, y = page.evaluate(
        """([name, nth]) => {
            const nodes = [...tree.face.keys()].filter((node) => faces.name[tree.face[node]] === name);
            const [left, right] = painter.span(nodes[nth]);
            const box = element("paper").getBoundingClientRect();
            return [box.left + (left + right) / 2, box.top + painter.rowTop(tree.depth[nodes[nth]]) + ROW / 2];
        }""",
        [name, nth],
    )
    return x, y


def click(page, name, nth=0):
    page.mouse.click(*spot(page, name, nth))
    painted(page)


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)
    painted(page)


def tooltip(page, name, nth=0):
    page.mouse.move(*spot(page, name, nth))
    return [line for line in page.inner_text("#tooltip").split("\n") if line]


def colour(page, x, y):
    """The colour on the screen: (red, green, blue)."""
    return tuple(
        page.evaluate(
            """([x, y]) => {
                const box = element("canvas").getBoundingClientRect(), dots = devicePixelRatio;
                const at = [(x - box.left) * dots, (y - box.top) * dots];
                return [...element("canvas").getContext("2d").getImageData(...at, 1, 1).data.slice(0, 3)];
            }""",
            [x, y],
        )
    )


def width(page, name, nth=0):
    """The share of the window's width that a frame takes."""
    return page.evaluate(
        """([name, nth]) => {
            const nodes = [...tree.face.keys()].filter((node) => faces.name[tree.face[node]] === name);
            const [left, right] = painter.span(nodes[nth]);
            return (right - left) / element("view").clientWidth;
        }""",
        [name, nth],
    )


# ---- The file


def test_the_same_profile_makes_the_same_file():
    assert write(web_server()) == write(web_server())


def test_a_profile_of_two_events_asks_which():
    with pytest.raises(UsageError, match="--event"):
        write(two_events())
    assert b"page-faults on web-1" in write(two_events(), "page-faults")


def test_a_profile_without_samples_is_refused():
    with pytest.raises(EmptyProfile, match="no sample of 'cpu'"):
        write(build_profile([]))


def test_the_file_names_no_address_to_load_from():
    page = write(web_server()).decode()
    assert not re.search(r"(src|href|action)\s*=|url\(|@import|https?:|fetch\(|import\(", page)


def test_a_name_stands_in_the_file_once():
    profile = build_profile([stack("main", *["a_name_of_some_length"] * depth) for depth in range(1, 60)])
    assert write(profile).count(b"a_name_of_some_length") == 1


def test_a_node_takes_few_bytes():
    paths = [[f"f{(number >> bit) & 3}" for bit in range(0, 12, 2)] for number in range(4096)]
    rows = [stack("main", *path, value=10_101_010) for path in paths]
    nodes = 4 + sum(4**depth for depth in range(1, 7))
    assert len(write(build_profile(rows))) - len(write(build_profile(rows[:1]))) < 8 * nodes


# ---- What it shows


def test_the_header_says_what_was_recorded_where_and_at_what_cost(open_page):
    cost = {"bpf_ns_per_run": 4_100.0, "interrupt_ns_per_sample": 4_000.0, "collector_cpu_ns": 20_000_000,
            "elapsed_ns": 10_000_000_000, "resident_bytes": 41_000_000}  # fmt: skip
    losses = [("ring-full", 12, False, "the ring was full"), ("nested", 3, True, "in another program")]
    metadata = METADATA | {"cost": cost, "created_unix_ns": 1_763_718_193_000_000_000}
    page = open_page(build_profile([stack("main"), stack("main", "work")], metadata=metadata, losses=losses))
    assert page.inner_text("h1") == "cpu on web-1"
    assert page.title() == "cpu on web-1 · stackhound"
    facts = dict(zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True))
    assert facts == {
        "Duration": "10.0 s",
        "Samples": "2",
        "Total": "2.00 s",
        "Event": "cpu (nanoseconds), by cpu-clock at 99 Hz",
        "Lost": "12 ring-full, ~3 nested",
        "Cost": "4.1 µs each + 4.0 µs interrupt (calibrated), collector 0.2% of a CPU, 41 MB",
        "System": "Linux 6.18.5, x86_64, 2 CPUs",
        "Recorded": "2025-11-21 09:43 UTC",
    }


def test_the_tooltip_tells_name_source_object_kind_self_and_total(open_page):
    frames = [Frame("parse", file="/src/parse.c", line=12), Frame("parse", file="/src/parse.c", line=48), "k:vfs_read"]
    page = open_page(build_profile([stack(*frames), stack(*frames[:2], value=3_000_000_000)]))
    assert tooltip(page, "parse", 1) == [
        "parse",
        "/src/parse.c:12–48",
        "native · /usr/bin/app",
        "Total\t4.00 s\t100.0% of all",
        "Self\t3.00 s\t75.0% of all",
    ]
    assert tooltip(page, "vfs_read")[1] == "kernel · [kernel]"


def test_the_tooltip_says_why_a_frame_has_no_name(open_page):
    page = open_page(web_server())
    assert tooltip(page, "[libz.so.1]")[1:3] == ["native · /usr/lib/libz.so.1", "No name: no symbol table"]


def test_the_legend_has_the_kinds_that_there_are_with_their_shares(open_page):
    page = open_page(
        build_profile([stack("main"), stack("main", "i:add"), stack("k:read", value=2_000_000_000), stack("p:handle"),
                       stack("j:Foo.bar"), stack("b:filter")])
    )  # fmt: skip
    assert page.locator("#legend li").all_inner_texts() == [
        "native 14.3%", "native, inlined 14.3%", "kernel 28.6%", "JIT 14.3%", "Python 14.3%", "BPF 14.3%"
    ]  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_kind_has_its_own_colour(open_page, scheme):
    names = {"main": "main", "i:add": "add", "k:read": "read", "p:handle": "handle", "j:Foo": "Foo", "b:drop": "drop"}
    rows = [stack("main", "i:add"), *(stack(frame) for frame in names if frame != "i:add")]
    page = open_page(build_profile(rows), color_scheme=scheme)
    seen = {colour(page, spot(page, name)[0] - 30, spot(page, name)[1] - 8) for name in [*names.values(), "app"]}
    assert len(seen) == 7


def test_times_counts_and_bytes_are_written_as_in_the_terminal(open_page):
    page = open_page(recursive())
    shown = page.evaluate("[0, 999, 1234, 45678901, 1230000000, 90000000000].map((one) => amount(one, profile.scales))")
    assert shown == ["0 ns", "999 ns", "1.23 µs", "45.7 ms", "1.23 s", "1.50 min"]
    assert page.evaluate("amount(1234567, [[1, '']])") == "1,234,567"


def test_light_and_dark_follow_the_system_until_the_switch_is_used(open_page):
    page = open_page(recursive(), color_scheme="dark")
    dark = colour(page, *blank(page))
    page.emulate_media(color_scheme="light")
    painted(page)
    light = colour(page, *blank(page))
    assert sum(dark) < 120
    assert light == (255, 255, 255)
    page.click("#theme")
    painted(page)
    assert colour(page, *blank(page)) == dark
    page.reload()
    painted(page)
    assert colour(page, *blank(page)) == dark


def test_paper_is_white_also_where_the_screen_is_dark(open_page):
    page = open_page(recursive(), color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert colour(page, *blank(page)) == (255, 255, 255)
    assert not page.is_visible("#controls")


def blank(page):
    """A place where nothing is drawn."""
    box = page.locator("#canvas").bounding_box()
    return box["x"] + box["width"] - 5, box["y"] + box["height"] - 5


# ---- Zoom


def test_a_click_zooms_and_escape_resets(open_page):
    page = open_page(recursive())
    assert width(page, "draw") == pytest.approx(0.3)
    click(page, "draw")
    assert width(page, "draw") == pytest.approx(1)
    assert width(page, "main") == pytest.approx(1)
    press(page, "Escape")
    assert width(page, "draw") == pytest.approx(0.3)


def test_a_click_on_an_ancestor_zooms_out_to_it(open_page):
    page = open_page(recursive())
    click(page, "parse", 1)
    click(page, "parse", 0)
    assert width(page, "parse", 1) == pytest.approx(4 / 6)


def test_the_reset_button_forgets_zoom_and_search(open_page):
    page = open_page(recursive())
    click(page, "draw")
    page.fill("#search", "vfs")
    page.click("#reset")
    painted(page)
    assert width(page, "draw") == pytest.approx(0.3)
    assert page.input_value("#search") == ""
    assert page.inner_text("#share") == ""


def test_when_zoomed_the_tooltip_also_gives_the_share_of_the_view(open_page):
    page = open_page(recursive())
    click(page, "parse", 0)
    assert tooltip(page, "parse", 1)[-2] == "Total\t4.00 s\t40.0% of all\t66.7% of this view"


def test_the_address_keeps_zoom_and_search_and_back_goes_back(open_page):
    page = open_page(recursive())
    click(page, "parse", 0)
    page.fill("#search", "vfs_")
    page.wait_for_url("**/*search=vfs_*")
    page.reload()
    painted(page)
    assert width(page, "parse", 1) == pytest.approx(4 / 6)
    assert page.input_value("#search") == "vfs_"
    assert page.inner_text("#share") == "20.0% matched, 33.3% of this view"
    click(page, "main")
    page.go_back()
    painted(page)
    assert width(page, "parse", 1) == pytest.approx(4 / 6)


def test_an_address_that_makes_no_sense_shows_everything(open_page):
    page = open_page(recursive(), "#zoom=99999")
    for address in ("#zoom=-1", "#zoom=x&theme=pink", "#%%%", "#search=%ff(&root=up", "#zoom=1.5"):
        assert width(page, "draw") == pytest.approx(0.3)
        page.evaluate("(address) => { location.hash = address; }", address)
        painted(page)


def test_the_picture_can_stand_on_its_root(open_page):
    page = open_page(recursive())
    assert spot(page, "main")[1] < spot(page, "draw")[1]
    page.click("#direction")
    painted(page)
    assert spot(page, "main")[1] > spot(page, "draw")[1]
    assert tooltip(page, "draw")[0] == "draw"
    click(page, "draw")
    assert width(page, "draw") == pytest.approx(1)


# ---- Search


def test_the_search_shows_the_share_and_counts_each_sample_once(open_page):
    shares = {
        "parse": "60.0% matched",  # not 100%: a stack with two parse counts once
        "parse|vfs_read": "60.0% matched",
        "PARSE": "60.0% matched",
        "^(draw|vfs)": "50.0% matched",
        "main": "100.0% matched",
        "app": "100.0% matched",
        "nothing": "0% matched",
        "": "",
    }
    page = open_page(recursive())
    seen = {}
    for pattern in shares:
        page.fill("#search", pattern)
        seen[pattern] = page.inner_text("#share")
    assert seen == shares


def test_an_invalid_expression_is_searched_as_plain_text(open_page):
    page = open_page(build_profile([stack("main", "f(int"), stack("main", "fint")]))
    page.fill("#search", "f(int")
    assert page.inner_text("#share") == "50.0% matched"
    assert "plain text" in page.get_attribute("#search", "title")
    page.fill("#search", r"f\(int")
    assert page.inner_text("#share") == "50.0% matched"
    assert page.get_attribute("#search", "title") == ""


def test_what_is_found_stands_out(open_page):
    page = open_page(recursive())
    page.fill("#search", "draw")
    painted(page)
    x, y = spot(page, "draw")
    assert colour(page, x + 40, y) == (0xF2, 0x5F, 0xA8)
    assert colour(page, spot(page, "parse")[0] + 40, y) != (0xF2, 0x5F, 0xA8)


def test_what_is_found_in_frames_too_narrow_to_draw_stands_out_too(open_page):
    tiny = [stack("main", f"tiny{number}", "needle", value=100_000) for number in range(200)]
    page = open_page(build_profile([stack("main", value=980_000_000), *tiny]))
    page.fill("#search", "needle")
    painted(page)
    assert page.inner_text("#share") == "2.00% matched"
    x, y = spot(page, "tiny0")
    assert colour(page, x + 8, y) == (0xF2, 0x5F, 0xA8)


# ---- Keyboard, finger, window


def test_slash_and_ctrl_f_go_to_the_search_and_escape_clears_it(open_page):
    page = open_page(recursive())
    for keys in ("/", "Control+f"):
        press(page, keys)
        page.keyboard.type("draw")
        assert page.inner_text("#share") == "30.0% matched"
        press(page, "Escape")
        assert page.inner_text("#share") == ""
        assert page.evaluate("document.activeElement.id") == "canvas"


def test_the_keyboard_alone_is_enough(open_page):
    page = open_page(recursive())
    press(page, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight")
    assert page.inner_text("#status").startswith("draw · total 3.00 s, 30.0% of all · self 3.00 s")
    press(page, "Enter")
    assert width(page, "draw") == pytest.approx(1)
    press(page, "ArrowUp")
    assert page.inner_text("#status").startswith("main · total 10.0 s")
    press(page, "ArrowDown")
    assert page.inner_text("#status").startswith("draw")
    press(page, "Escape")
    assert width(page, "draw") == pytest.approx(0.3)


def test_a_screen_reader_is_told_what_is_there(open_page):
    page = open_page(recursive())
    assert page.get_by_role("application", name=re.compile("Flame graph")).count() == 1
    assert page.get_by_role("status").count() == 2  # the frame, and the share found
    assert page.get_by_role("searchbox", name=re.compile("Search functions")).count() == 1
    assert page.get_by_role("button").all_inner_texts() == ["Reset", "Flame", "Dark"]


def test_a_finger_tells_with_the_first_tap_and_zooms_with_the_second(open_page):
    page = open_page(recursive(), has_touch=True, is_mobile=True)
    place = spot(page, "draw")
    page.touchscreen.tap(*place)
    painted(page)
    assert page.inner_text("#tooltip").startswith("draw")
    assert width(page, "draw") == pytest.approx(0.3)
    page.touchscreen.tap(*place)
    painted(page)
    assert width(page, "draw") == pytest.approx(1)


def test_the_picture_follows_the_window(open_page):
    page = open_page(recursive())
    page.set_viewport_size({"width": 700, "height": 500})
    painted(page)
    painted(page)
    view, canvas = page.locator("#view").bounding_box(), page.locator("#canvas").bounding_box()
    assert canvas["width"] == pytest.approx(view["width"], abs=12)
    assert tooltip(page, "draw")[0] == "draw"


def test_a_dense_screen_gets_all_its_dots(open_page):
    page = open_page(recursive(), device_scale_factor=2)
    assert page.evaluate("element('canvas').width / element('canvas').clientWidth") == pytest.approx(2, abs=0.01)


def test_a_deep_stack_can_be_scrolled_to_its_leaf(open_page):
    page = open_page(build_profile([stack(*(f"f{depth}" for depth in range(250)))]))
    page.evaluate("element('view').scrollTop = 1e6")
    painted(page)
    assert tooltip(page, "f249")[0] == "f249"
    x, y = spot(page, "f249")
    assert colour(page, x, y - 8) != (255, 255, 255)


# ---- Much, and malice


def test_every_node_of_a_large_tree_is_there_with_its_total(open_page):
    rows = [
        stack("main", *(f"f{(number >> bit) & 7}" for bit in range(0, 12, 3)), value=1 + number)
        for number in range(2**12)
    ]
    profile = build_profile(rows)
    page = open_page(profile)
    known = profile.tree(root="process")
    assert page.evaluate("tree.count") == len(known)
    assert sorted(page.evaluate("[...tree.total]")) == sorted(known.total_value.tolist())
    assert sorted(page.evaluate("[...tree.depth]")) == sorted(known.depth.tolist())


def test_values_beyond_32_bits_survive(open_page):
    page = open_page(build_profile([stack("main", value=2**50 + 1), stack("work", value=127), stack("x", value=128)]))
    assert page.evaluate("[...tree.self]") == [0, 0, 2**50 + 1, 128, 127]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_and_nothing_else(open_page, name):
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in name)
    metadata = METADATA | {"host": {"name": name}}
    frame = Frame(name, file=name, path=f"/tmp/{name}")
    miss = Frame(None, path="/tmp/x", reason=name)
    page = open_page(
        build_profile([stack(frame, comm=name), stack(miss, comm="b", pid=8)], [CPU], metadata=metadata,
                      losses=[(name, 1, False, name)])
    )  # fmt: skip
    assert page.evaluate("window.hacked") is None
    assert page.inner_text("h1") == f"cpu on {shown}"
    assert tooltip(page, shown, 0)[0] == shown
    click(page, shown, 1)
    assert page.inner_text("#status").startswith(f"{shown} · ")
    page.fill("#search", name)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.scripts.length") == 2
    assert page.locator("img, b script, h1 *").count() == 0


def test_no_control_character_of_a_name_reaches_the_file():
    text = write(build_profile([stack(*HOSTILE)])).decode()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", text)


def test_a_name_of_a_megabyte_is_cut(open_page):
    profile = build_profile([stack("x" * 1_000_000)])
    assert len(write(profile)) < 100_000
    assert tooltip(open_page(profile), "x" * 1999 + "…")[0] == "x" * 1999 + "…"


def test_nothing_but_the_pages_own_script_may_run(browser, tmp_path):
    """The policy is enforced by the browser: a script that is smuggled in does not run."""
    path = tmp_path / "flame.html"
    smuggled = b"<script>window.hacked=1</script><img src=x onerror=window.hacked=1></body>"
    path.write_bytes(write(recursive()).replace(b"</body>", smuggled))
    page = browser.new_page()
    page.goto(f"file://{path}")
    painted(page)
    assert page.evaluate("window.hacked") is None
    assert page.inner_text("h1") == "cpu on web-1"
    page.close()
