"""Whatever programs call their threads, functions, files and objects: no output passes on more than text."""

from __future__ import annotations

import io
import json

import pytest

from fixtures.hostile import hostile_names
from fixtures.profiles import Frame, build_profile
from stackhound.formats import by_name

NAMES = [name.encode(errors="replace").decode() for name in hostile_names(10_000)]  # Arrow's text is UTF-8


@pytest.fixture(scope="module")
def profile():
    return build_profile([
        (name, 7, number, 0, number, [Frame("main"), Frame(name, path=name, file=name, line=1)], 1, 1)
        for number, name in enumerate(NAMES)
    ])  # fmt: skip


def lines(profile, name):
    out = io.BytesIO()
    by_name(name).write(profile, out)
    return out.getvalue().decode().removesuffix("\n").split("\n")


@pytest.mark.parametrize("name", ["folded", "counted", "text", "jsonl", "speedscope"])
def test_every_line_is_printable(profile, name):
    assert all(line.isprintable() for line in lines(profile, name))


def test_folded_lines_have_a_comm_two_frames_and_a_weight(profile):
    stacks = [line.rpartition(" ") for line in lines(profile, "folded")]
    assert {path.count(";") for path, _, _ in stacks} == {2}
    assert sum(int(weight) for _, _, weight in stacks) == len(NAMES)


def test_counted_lines_have_a_count_and_two_frames(profile):
    stacks = [line.partition(" ") for line in lines(profile, "counted")]
    assert {path.count(";") for _, _, path in stacks} == {2}
    assert sum(int(count) for count, _, _ in stacks) == len(NAMES)


def test_json_gives_the_names_back_as_they_were(profile):
    assert [json.loads(line)["comm"] for line in lines(profile, "jsonl")[1:]] == NAMES
    frames = json.loads(lines(profile, "speedscope")[0])["shared"]["frames"]
    assert {frame["name"] for frame in frames} >= {name for name in NAMES if name}
