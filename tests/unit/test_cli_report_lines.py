"""``stackhound report --lines``: a source file with the time beside its lines."""

from __future__ import annotations

import json
import os

import pytest

from fixtures.profiles import CPU, FAULTS, Frame, build_profile
from stackhound.cli.main import main

MS = 1_000_000
SOURCE = "def work(n):\n\treturn sum(range(n))\n\n\n\n\n\ndef main():\n    work(9)\n    work(1)\n\n\nmain()\n"
START_NS = 1_700_000_000_000_000_000
CLOCK = {"start_boottime_ns": 0, "boot_to_unix_ns_start": START_NS}


@pytest.fixture(autouse=True)
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "srv" / "app.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    os.utime(path, ns=(0, START_NS - 1))
    return path


@pytest.fixture(autouse=True)
def profile(source):
    main_line, root = f"p:app.main at {source}:{{}}", f"p:app.<module> at {source}:13"
    work = f"p:app.work at {source}:2"
    samples = [
        ("app", 7, 7, 0, 1, ["main", root, main_line.format(9), work, "builtin_sum at bltinmodule.c:2500"], 60 * MS, 6),
        ("app", 7, 7, 0, 2, ["main", root, main_line.format(9), work], 20 * MS, 2),
        ("app", 7, 7, 0, 3, ["main", root, main_line.format(10), work, work], 10 * MS, 1),
        ("app", 7, 7, 0, 4, ["main", "k:read"], 10 * MS, 1),
    ]
    build_profile(samples, metadata={"clock": CLOCK}).save("stackhound.hound")


def shown(capsys, *arguments, status=0):
    assert main(["report", *map(str, arguments)]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def test_each_line_has_its_own_time_and_that_of_what_it_called(capsys, source):
    assert shown(capsys, "--lines", "app.py").split("\n\n", 1)[1] == (
        f"{source}: self 30.0%, total 90.0%\n"
        "\n"
        "   self    total       self      total  line\n"
        "                                           1  def work(n):\n"
        "  30.0%    90.0%    30.0 ms    90.0 ms     2      return sum(range(n))\n"
        "                                           3\n"
        "                                           4\n"
        "                                              …\n"
        "                                           7\n"
        "                                           8  def main():\n"
        "   0.0%    80.0%       0 ns    80.0 ms     9      work(9)\n"
        "   0.0%    10.0%       0 ns    10.0 ms    10      work(1)\n"
        "                                          11\n"
        "                                          12\n"
        "   0.0%    90.0%       0 ns    90.0 ms    13  main()\n"
    )


def test_all_shows_the_whole_file(capsys):
    text = shown(capsys, "--lines", "app.py", "--all")
    assert "…" not in text
    assert len(text.splitlines()) == 6 + 13


def test_little_time_is_no_reason_to_show_a_line(capsys):
    text = shown(capsys, "--lines", "app.py", "--least", "50")
    assert "work(9)" in text
    assert "   10.0 ms    10      work(1)" in text  # beside one that has more
    assert "def work" in text
    assert "work(1)" not in shown(capsys, "--lines", "app.py", "--least", "95")


@pytest.mark.parametrize("name", ["app.py", "srv/app.py", "./srv/app.py", "srv/../srv/app.py"])
def test_the_end_of_the_path_is_enough_and_so_is_a_path_from_here(name, capsys, source):
    assert f"{source}: self" in shown(capsys, "--lines", name)
    assert f"{source}: self" in shown(capsys, "--lines", source)


def test_json_has_the_lines_with_time(capsys, source):
    document = json.loads(shown(capsys, "--lines", "app.py", "--json"))
    assert document["file"] == str(source)
    assert document["rows"] == [
        {"line": 2, "self": 30 * MS, "total": 90 * MS, "text": "\treturn sum(range(n))"},
        {"line": 9, "self": 0, "total": 80 * MS, "text": "    work(9)"},
        {"line": 10, "self": 0, "total": 10 * MS, "text": "    work(1)"},
        {"line": 13, "self": 0, "total": 90 * MS, "text": "main()"},
    ]
    assert len(json.loads(shown(capsys, "--lines", "app.py", "--json", "--all"))["rows"]) == 13


def test_native_files_are_shown_alike_and_say_when_they_are_not_here(capsys):
    text = shown(capsys, "--lines", "bltinmodule.c")
    assert "bltinmodule.c: self 60.0%, total 60.0%\nshown without text: it cannot be read here: no such file" in text
    assert text.endswith("  60.0%    60.0%    60.0 ms    60.0 ms  2500\n")


def test_a_file_that_was_changed_since_is_shown_without_text(capsys, source):
    os.utime(source, ns=(0, START_NS + 1))
    text = shown(capsys, "--lines", "app.py")
    assert "shown without text: it was changed since the recording began" in text
    assert "def work" not in text
    assert "  30.0%    90.0%    30.0 ms    90.0 ms     2\n" in text


def test_a_file_that_has_become_shorter_is_shown_without_text(capsys, source):
    source.write_text("x\n" * 5)
    os.utime(source, ns=(0, START_NS - 1))
    assert "fewer lines than were recorded: 5, not 13" in shown(capsys, "--lines", "app.py")


@pytest.mark.parametrize("kind", ["fifo", "directory", "device"])
def test_what_is_no_regular_file_is_not_read(kind, capsys, source):
    source.unlink()
    {"fifo": os.mkfifo, "directory": os.mkdir, "device": lambda path: path.symlink_to("/dev/zero")}[kind](source)
    assert "shown without text: it " in shown(capsys, "--lines", "app.py")


def test_a_file_without_end_is_not_read(capsys, source):
    os.truncate(source, 1 << 40)
    os.utime(source, ns=(0, START_NS - 1))
    assert "it is no file of source code" in shown(capsys, "--lines", "app.py")


def test_several_files_that_end_so_are_listed(capsys):
    rows = [("app", 7, 7, 0, 1, ["f at /a/x/util.py:1", "g at /a/y/util.py:1"], 10, 1)]
    build_profile(rows).save("stackhound.hound")
    told = shown(capsys, "--lines", "util.py", status=2)
    assert told == "stackhound: 'util.py' may be /a/x/util.py, /a/y/util.py: give more of its path\n"
    assert "/a/y/util.py: self" in shown(capsys, "--lines", "y/util.py")
    assert "no sample was in" in shown(capsys, "--lines", "til.py", status=2)


def test_a_file_of_another_event_alone_is_not_found(capsys):
    rows = [
        ("app", 7, 7, 0, 1, ["f at /a/f.py:1"], 10, 1),
        ("app", 7, 7, 0, 2, ["g at /a/g.py:1"], 10, 1, "page-faults"),
    ]
    build_profile(rows, events=[CPU, FAULTS]).save("stackhound.hound")
    assert "no sample was in" in shown(capsys, "--lines", "g.py", "--event", "cpu", status=2)
    assert "/a/g.py: self" in shown(capsys, "--lines", "g.py", "--event", "page-faults")


def test_frames_without_a_line_are_counted_on_none(capsys):
    build_profile([("app", 7, 7, 0, 1, [Frame("f", file="/a/f.py")], 10, 1)]).save("stackhound.hound")
    assert shown(capsys, "--lines", "f.py").splitlines()[-1].split() == [
        "100.0%",
        "100.0%",
        "10",
        "ns",
        "10",
        "ns",
        "?",
    ]
    assert json.loads(shown(capsys, "--lines", "f.py", "--json"))["rows"][0]["line"] is None


def test_hostile_source_and_paths_reach_no_terminal(capsys, tmp_path):
    path = tmp_path / "e\x1b[2Jvil.py"
    path.write_text("a = '\x1b]0;x\x07\u202e'\x0c\x85\x1c b\n")
    build_profile([("app", 7, 7, 0, 1, [f"f at {path}:1"], 10, 1)]).save("stackhound.hound")
    for options in ([], ["--json"]):
        text = shown(capsys, "--lines", path, *options)
        assert not {char for char in text if not char.isprintable() and char != "\n"}, options


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--lines", "app.py", "--tree"], "--tree and --lines are views of their own"),
        (["--lines", "app.py", "--gil"], "--lines and --gil are views of their own"),
        (["--lines", "app.py", "--sort", "line"], "--lines has an order of its own: drop --sort"),
        (["--gil", "--sort", "line"], "--gil has an order of its own: drop --sort"),
        (["--all"], "add --lines"),
        (["--lines", "app.py", "--inverted"], "add --tree"),
    ],
)
def test_views_exclude_each_other(arguments, told, capsys):
    assert told in shown(capsys, *arguments, status=2)
