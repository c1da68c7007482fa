"""speedscope: its schema, and what the app itself shows of our file (npm's speedscope in headless Chromium)."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import subprocess
from pathlib import Path

import jsonschema
import pytest

from fixtures.examples import two_events, web_server
from fixtures.profiles import build_profile
from stackhound.formats import by_name

APP = Path(__file__).parents[1] / "oracles/node_modules/speedscope/dist/release"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--dump-dom")


def write(profile, event=None, name="speedscope"):
    out = io.BytesIO()
    by_name(name).write(profile, out, event=event)
    return out.getvalue()


def load(profile, event=None):
    return json.loads(write(profile, event))


@pytest.fixture
def open_in_app(chromium, tmp_path):
    """The rows of the app's table of functions: {name: (total, self)}."""

    def open_it(file_name, data):
        script = tmp_path / "profile.js"
        content = base64.b64encode(data).decode()
        script.write_text(f"speedscope.loadFileFromBase64({json.dumps(file_name)}, {json.dumps(content)})")
        address = f"file://{APP}/index.html#localProfilePath={script}&view=sandwich"
        command = (chromium, *FLAGS, f"--user-data-dir={tmp_path}/chromium", address)
        return rows(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout)

    return open_it


def rows(page):
    rows = re.findall(r"<tr\b[^>]*>(?:(?!</tr>).)*?</tr>", page, re.DOTALL)
    cells = [[html.unescape(re.sub("<[^>]*>", "", cell)) for cell in re.findall(r"<td\b.*?</td>", row)] for row in rows]
    return {row[2]: (row[0], row[1]) for row in cells if len(row) == 3 and "%" in row[0]}


@pytest.mark.parametrize("profile", [web_server(), two_events(), build_profile([])], ids=["web", "events", "empty"])
def test_the_file_is_what_its_schema_says(profile):
    schema = json.loads((APP / "file-format-schema.json").read_text())
    jsonschema.validate(load(profile), schema)


def test_the_app_shows_the_functions_with_their_shares(open_in_app):
    shown = open_in_app("x.speedscope.json", write(web_server()))
    assert shown["_start"] == ("40.40ms (100%)", "0.00ns (<0.01%)")
    assert shown["main"] == ("30.30ms (75%)", "0.00ns (<0.01%)")
    assert shown["vfs_read"] == ("20.20ms (50%)", "20.20ms (50%)")
    assert shown["[libz.so.1]"] == ("10.10ms (25%)", "10.10ms (25%)")
    assert shown["nginx: worker"] == ("10.10ms (25%)", "0.00ns (<0.01%)")


def test_the_app_reads_folded_stacks_the_same(open_in_app):
    shown = open_in_app("x.folded", write(web_server(), name="folded"))
    assert shown["_start"] == ("4 (100%)", "0 (<0.01%)")
    assert shown["vfs_read_[k]"] == ("2 (50%)", "2 (50%)")


def test_all_threads_come_first_then_each_the_heaviest_first():
    profiles = load(web_server())["profiles"]
    assert [(one["name"], one["endValue"]) for one in profiles] == [
        ("cpu: all threads", 40_404_040),
        ("cpu: nginx (pid 7, tid 7)", 20_202_020),
        ("cpu: nginx: worker (pid 7, tid 8)", 10_101_010),
        ("cpu: java (pid 9, tid 9)", 10_101_010),
    ]


def test_a_threads_samples_are_in_order_of_time_and_runs_of_one_stack_are_one():
    rows = [("app", 7, 7, 0, time_ns, ["main", leaf], 10, 1) for time_ns, leaf in enumerate("aaxxa")]
    file = load(build_profile(rows))
    names = [frame["name"] for frame in file["shared"]["frames"]]
    thread = file["profiles"][1]
    assert [[names[frame] for frame in sample] for sample in thread["samples"]] == [
        ["main", "a"],
        ["main", "x"],
        ["main", "a"],
    ]
    assert thread["weights"] == [20, 20, 10]


def test_a_function_is_one_frame_with_its_file_inlined_or_not():
    rows = [
        ("app", 7, 7, 0, 1, ["main at a.c:1", "work at w.c:5"], 10, 1),
        ("app", 7, 7, 0, 2, ["main at a.c:2", "i:work at w.c:6"], 10, 1),
    ]
    frames = load(build_profile(rows))["shared"]["frames"]
    assert frames == [{"name": "main", "file": "a.c"}, {"name": "work", "file": "w.c"}, {"name": "app"}]


def test_a_count_has_no_unit_and_each_event_its_profiles():
    profiles = load(two_events())["profiles"]
    assert [(one["name"].split(":")[0], one["unit"]) for one in profiles] == [
        ("cpu", "nanoseconds"),
        ("cpu", "nanoseconds"),
        ("page-faults", "none"),
        ("page-faults", "none"),
    ]
    assert len(load(two_events(), "page-faults")["profiles"]) == 2


def test_hostile_names_leave_the_file_in_ascii():
    name = "\x1b[2J\n\u202e</script>"
    data = write(build_profile([(name, 7, 7, 0, 1, [name], 10, 1)]))
    assert json.loads(data)["shared"]["frames"][0]["name"] == name
    assert all(32 <= byte < 127 for byte in data.removesuffix(b"\n"))
