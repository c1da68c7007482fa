"""``stackhound bench history`` and ``check``: what is kept, shown, and refused."""

from __future__ import annotations

import json
import sqlite3

import pytest

from stackhound.bench.history import open_history
from stackhound.bench.results import make_results
from stackhound.cli.bench_history import draw
from stackhound.cli.main import main
from stackhound.errors import HistoryError

CONFIG = '[[benchmark]]\nname = "parse"\ncommand = ["true"]\n'
THRESHOLD = '[[threshold]]\nmeasure = "wall"\ntest = "percentage"\nupper = 0.1\n'


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bench.toml").write_text(CONFIG + THRESHOLD)
    return tmp_path


def result(directory, *values, name="new.json", benchmark="parse"):
    (directory / name).write_bytes(make_results({benchmark: {"wall": list(values)}}).to_json())
    return name


def add(directory, *values, branch="main"):
    for value in values:
        name = result(directory, value)
        assert main(["bench", "history", "h.sqlite", "--add", name, "--branch", branch, "--testbed", "ci"]) == 0


def check(*arguments):
    given = ["--history", "h.sqlite", "--config", "bench.toml", "--branch", "main", "--testbed", "ci", *arguments]
    return main(["bench", "check", "new.json", *given])


def test_medians_are_kept_by_branch_and_shown_as_bars(directory, capsys):
    add(directory, 1e9, 2e9, 3e9)
    add(directory, 5e9, branch="topic")
    capsys.readouterr()
    assert main(["bench", "history", "h.sqlite"]) == 0
    main_line, topic_line = capsys.readouterr().out.splitlines()[1:]
    assert main_line.split() == ["parse", "wall", "main", "ci", "2.00", "s", "3.00", "s", "3", "▁▅█"]
    assert topic_line.split()[2] == "topic"
    assert main(["bench", "history", "h.sqlite", "zzz"]) == 0
    assert capsys.readouterr().out == "no benchmark has 'zzz' in its name\n"


def test_places_where_a_series_changed_are_told_with_the_run(directory, capsys):
    add(directory, *[1e9] * 8, *[2e9] * 8)
    capsys.readouterr()
    assert main(["bench", "history", "h.sqlite", "--changes"]) == 0
    assert capsys.readouterr().out == "parse · wall · main · ci: 1.00 s → 2.00 s, +100% since run 9\n"
    assert main(["bench", "history", "h.sqlite", "zzz", "--changes"]) == 0
    assert capsys.readouterr().out == "nothing changed for good\n"


@pytest.mark.parametrize(
    ("values", "bars"), [([1.0], "▁"), ([5.0, 5.0], "▁▁"), ([0.0, 7.0], "▁█"), ([7.0] * 99, "▁" * 40)]
)
def test_bars_go_from_the_lowest_to_the_highest_value(values, bars):
    assert draw(values) == bars


def test_a_value_within_bounds_passes_and_one_beyond_does_not(directory, capsys):
    add(directory, *[1e9] * 5)
    result(directory, 1.05e9)
    assert check("--strict") == 0
    result(directory, 1.2e9)
    assert check() == 3
    assert "outside" in capsys.readouterr().out


def test_a_young_history_passes_unless_it_must_be_strict(directory, capsys):
    add(directory, 1e9)
    assert check() == 0
    assert check("--strict") == 4
    assert "too few values" in capsys.readouterr().out


def test_another_branch_s_values_do_not_count(directory):
    add(directory, *[1e9] * 5, branch="topic")
    assert check("--strict") == 4


def test_where_no_threshold_is_for_the_results_nothing_passes(directory, capsys):
    add(directory, 1e9)
    (directory / "bench.toml").write_text(CONFIG + THRESHOLD + 'testbed = "other"\n')
    assert check() == 2
    assert "no threshold is for these results" in capsys.readouterr().err


def damage(path):
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * len(content[4096:])
    path.write_bytes(content)


def truncate(path):
    path.write_bytes(path.read_bytes()[:5000])


def age(path):
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 9")
    database.close()


def replace(path):
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE cookies (id)")
    database.close()


def poison(path):
    with sqlite3.connect(path) as database:
        database.execute("UPDATE median SET value = 'fast'")
    database.close()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (damage, "h.sqlite"),
        (truncate, "h.sqlite"),
        (age, "has version 9"),
        (replace, "database of something else"),
        (poison, "could not convert"),
        (lambda path: path.write_text("not a database, but long enough for a header" * 99), "file is not a database"),
        (lambda path: path.unlink(), "there is no history"),
    ],
)
def test_a_damaged_newer_or_foreign_file_never_passes(spoil, told, directory, capsys):
    add(directory, *[1e9] * 40)
    spoil(directory / "h.sqlite")
    capsys.readouterr()
    assert check() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def test_what_cannot_be_added_leaves_the_history_as_it_was(directory):
    add(directory, 1e9)
    (directory / "new.json").write_text(json.dumps({"a": {"b": {"value": "fast"}}}))
    assert main(["bench", "history", "h.sqlite", "--add", "new.json"]) == 1
    with open_history(directory / "h.sqlite") as history:
        assert [series.values for series in history.series()] == [[1e9]]


def test_a_directory_is_no_history(directory):
    with pytest.raises(HistoryError, match="cannot use the history"), open_history(directory, create=True):
        pass


def test_hostile_names_are_shown_escaped(directory, capsys):
    name = result(directory, 1e9, benchmark="a\x1b[31m")
    assert main(["bench", "history", "h.sqlite", "--add", name, "--branch", "b\x1b", "--testbed", "c\n"]) == 0
    assert "\x1b" not in capsys.readouterr().out
