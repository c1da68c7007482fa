"""DHAT: what valgrind's own viewer makes of our file."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.heap import Allocation, build_heap
from fixtures.profiles import build_profile
from stackhound.errors import UsageError
from stackhound.formats import by_name

VIEWER = Path("/usr/libexec/valgrind/dh_view.js")

#: Runs the viewer's own code over a file, and prints its tree: each node's frames, totals and children.
DRIVER = """
const fs = require("fs"), vm = require("vm");
const [viewer, file] = process.argv.slice(2);
const context = vm.createContext({ document: { title: "" }, window: {}, performance });
const code = fs.readFileSync(viewer, "utf8") + `
  gSelect = { childNodes: gSelectData.map(() => ({})), selectedIndex: 0 };
  gData = JSON.parse(text);
  buildTree();
  const show = (node) => ({
    frames: node._frames.map((frame) => gData.ftbl[frame]),
    total: [node._totalBytes, node._totalBlocks, node._totalLifetimes],
    max: [node._maxBytes, node._maxBlocks],
    peak: [node._atTGmaxBytes, node._atTGmaxBlocks],
    end: [node._atTEndBytes, node._atTEndBlocks],
    kids: (node._kids || []).map(show),
  });
  JSON.stringify(show(gRoot));`;
context.text = fs.readFileSync(file, "utf8");
console.log(vm.runInContext(code, context));
"""


def write(profile, event=None):
    out = io.BytesIO()
    by_name("dhat").write(profile, out, event=event)
    return out.getvalue()


@pytest.fixture
def view(tmp_path):
    """The tree of valgrind's viewer."""
    node = shutil.which("node")
    if node is None or not VIEWER.exists():
        pytest.skip("needs node, and valgrind's viewer")
    (tmp_path / "driver.js").write_text(DRIVER)

    def run(profile):
        path = tmp_path / "x.dhat.json"
        path.write_bytes(write(profile))
        command = (node, str(tmp_path / "driver.js"), str(VIEWER), str(path))
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)

    return run


def leaves(node, path=()):
    """{frames from the root: node}, of nodes without children."""
    path = (*path, *node["frames"])
    if not node["kids"]:
        return {path: node}
    return {key: leaf for kid in node["kids"] for key, leaf in leaves(kid, path).items()}


BUFFERS = [
    Allocation("main parse malloc", 100, count=10, at_us=10, lifetime_us=40),
    Allocation("main parse malloc", 100, count=10, at_us=30, lifetime_us=100),
    Allocation("main cache malloc", 1_000, count=3, at_us=35),
]


def test_the_whole_file_to_the_letter():
    assert json.loads(write(build_heap(BUFFERS))) == {
        "dhatFileVersion": 2, "mode": "sampled-heap", "verb": "Allocated", "bklt": True, "bkacc": False,
        "tu": "µs", "Mtu": "s", "tuth": 10, "cmd": "app --run", "pid": 7, "tg": 35, "te": 1000,
        "pps": [
            {"tb": 2000, "tbk": 20, "tl": 1400, "mb": 2000, "mbk": 20, "gb": 2000, "gbk": 20, "eb": 0, "ebk": 0,
             "fs": [1, 2]},
            {"tb": 3000, "tbk": 3, "tl": 2895, "mb": 3000, "mbk": 3, "gb": 3000, "gbk": 3, "eb": 3000, "ebk": 3,
             "fs": [3, 2]},
        ],
        "ftbl": ["[root]", "parse", "main", "cache"],
    }  # fmt: skip


def test_valgrinds_viewer_shows_the_same(view):
    root = view(build_heap(BUFFERS))
    assert (root["total"], root["peak"], root["end"]) == ([5000, 23, 4295], [5000, 23], [3000, 3])
    found = leaves(root)
    parse = found["[root]", "parse", "main"]
    assert (parse["total"], parse["max"], parse["end"]) == ([2000, 20, 1400], [2000, 20], [0, 0])
    assert found["[root]", "cache", "main"]["end"] == [3000, 3]


def test_stacks_that_read_the_same_are_one(view):
    root = view(build_heap([Allocation("main parse malloc", 8), Allocation("main parse calloc malloc", 8)]))
    assert root["total"][:2] == [16, 2]
    assert list(leaves(root)) == [("[root]", "parse", "main")]


def test_a_stack_that_is_part_of_another_has_its_own_place(view):
    root = view(build_heap([Allocation("main parse malloc", 8), Allocation("parse malloc", 24)]))
    assert root["total"][:2] == [32, 2]
    assert sorted(leaf["total"][0] for leaf in leaves(root).values()) == [8, 24]


def test_what_nobody_could_follow_is_in_the_totals_alone(view):
    root = view(build_heap([Allocation("main far malloc", 700, fate="unknown")]))
    assert (root["total"], root["max"], root["end"]) == ([700, 1, 0], [0, 0], [0, 0])


def test_a_profile_without_allocations_is_read_too():
    document = json.loads(write(build_heap([])))
    assert (document["pps"], document["ftbl"]) == ([], ["[root]"])


def test_names_cannot_do_harm():
    text = write(build_heap([Allocation('main\x1b[31m</script>"', 8)]))
    assert b"\x1b" not in text
    assert text.isascii()


def test_another_event_is_no_allocation():
    with pytest.raises(UsageError, match="-e heap"):
        write(build_profile([("app", 7, 7, 0, 1_000, ["main"], 10, 1)]))
    with pytest.raises(UsageError, match="inverted"):
        write(build_heap(BUFFERS).invert())
