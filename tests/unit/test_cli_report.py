"""``stackhound report`` and ``export``: a profile in the terminal and in other formats."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from fixtures.profiles import CPU, FAULTS, build_profile, make_table
from fixtures.terminal import run_on_terminal
from stackhound.cli.main import main
from stackhound.profile import Event, load

MS = 1_000_000
SAMPLES = [
    ("web", 7, 7, 0, 1_000, ["main at web.c:3", "serve at web.c:10", "k:vfs_read"], 40 * MS, 4),
    ("web", 7, 8, 1, 2_000, ["main at web.c:3", "serve at web.c:11", "i:parse at parse.h:5"], 30 * MS, 3),
    ("web", 9, 9, 0, 3_000, ["main at web.c:3", "serve at web.c:10", "serve at web.c:10"], 20 * MS, 2),
    ("db", 12, 12, 1, 4_000, ["run", "?libdb.so+0x40"], 10 * MS, 1),
]


@pytest.fixture(autouse=True)
def profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    build_profile(SAMPLES).save("stackhound.hound")


def shown(capsys, *arguments, status=0):
    assert main([*map(str, arguments)]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def rows(capsys, *arguments):
    """(keys…, self, total) in ms."""
    document = json.loads(shown(capsys, "report", "--json", *arguments))
    return [
        (*(cell for name, cell in row.items() if name not in {"self", "total"}), row["self"] // MS, row["total"] // MS)
        for row in document["rows"]
    ]


def test_it_shows_the_functions_with_the_most_time_of_their_own(capsys):
    assert shown(capsys, "report") == (
        "cpu by cpu-clock at 99 Hz: 10 samples, 100 ms\n"
        "10 samples · 0 lost\n"
        "\n"
        "   self    total       self      total  symbol      object\n"
        "  40.0%    40.0%    40.0 ms    40.0 ms  vfs_read    [kernel]\n"
        "  30.0%    30.0%    30.0 ms    30.0 ms  parse       /usr/bin/app\n"
        "  20.0%    90.0%    20.0 ms    90.0 ms  serve       /usr/bin/app\n"
        "  10.0%    10.0%    10.0 ms    10.0 ms  [libdb.so]  /usr/lib/libdb.so\n"
        "   0.0%    90.0%       0 ns    90.0 ms  main        /usr/bin/app\n"
        "   0.0%    10.0%       0 ns    10.0 ms  run         /usr/bin/app\n"
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("comm", [("web", 90, 90), ("db", 10, 10)]),
        ("pid", [(7, 70, 70), (9, 20, 20), (12, 10, 10)]),
        ("tid", [(7, 40, 40), (8, 30, 30), (9, 20, 20), (12, 10, 10)]),
        ("process", [("web (7)", 70, 70), ("web (9)", 20, 20), ("db (12)", 10, 10)]),
        ("thread", [("web (7)", 40, 40), ("web (8)", 30, 30), ("web (9)", 20, 20), ("db (12)", 10, 10)]),
        ("comm,tid", [("web", 7, 40, 40), ("web", 8, 30, 30), ("web", 9, 20, 20), ("db", 12, 10, 10)]),
        (
            "object",
            [("/usr/bin/app", 50, 100), ("[kernel]", 40, 40), ("/usr/lib/libdb.so", 10, 10)],
        ),
        ("file", [("(unknown)", 50, 50), ("parse.h", 30, 30), ("web.c", 20, 90)]),
        (
            "line",
            [
                ("vfs_read", 40, 40),
                ("parse.h:5", 30, 30),
                ("web.c:10", 20, 60),
                ("[libdb.so]", 10, 10),
                ("web.c:3", 0, 90),
                ("web.c:11", 0, 30),
                ("run", 0, 10),
            ],
        ),
        (
            "symbol,pid",
            [
                ("vfs_read", 7, 40, 40),
                ("parse", 7, 30, 30),
                ("serve", 9, 20, 20),
                ("[libdb.so]", 12, 10, 10),
                ("main", 7, 0, 70),
                ("serve", 7, 0, 70),
                ("main", 9, 0, 20),
                ("run", 12, 0, 10),
            ],
        ),
    ],
)
def test_any_mix_of_keys_sums_each_sample_once(keys, expected, capsys):
    assert rows(capsys, "--sort", keys) == expected


def test_perfs_names_of_the_keys_are_known(capsys):
    assert rows(capsys, "--sort", "dso,sym") == rows(capsys, "--sort", "object,symbol")


def test_sums_agree_with_counting_by_hand():
    """Random stacks with recursion, against a loop over the samples."""
    from stackhound.cli.breakdown import break_down

    chance = random.Random(7)
    samples = [
        (f"c{chance.randrange(3)}", pid := chance.randrange(1, 5), pid * 10 + chance.randrange(2), 0, time,
         [f"f{chance.randrange(4)}" for _ in range(chance.randrange(1, 9))], chance.randrange(1, 99), 1)
        for time in range(300)
    ]  # fmt: skip
    expected = {}
    for _, _, tid, _, _, frames, value, _ in samples:
        for frame in set(frames):
            own, total = expected.get((tid, frame), (0, 0))
            expected[tid, frame] = own + value * (frame == frames[-1]), total + value
    profile = build_profile(samples)
    found = break_down(profile, profile.event(), ["tid", "symbol"])
    assert {row.keys: (row.self_value, row.total_value) for row in found} == expected


def test_the_tree_indents_only_where_it_forks(capsys):
    assert shown(capsys, "report", "--tree").split("\n\n")[1] == (
        "  total     self\n"
        " 100.0%     0.0%  all\n"
        "  90.0%     0.0%  ├─ main\n"
        "  90.0%     0.0%  │  serve\n"
        "  40.0%    40.0%  │  ├─ vfs_read\n"
        "  30.0%    30.0%  │  ├─ parse\n"
        "  20.0%    20.0%  │  └─ serve\n"
        "  10.0%     0.0%  └─ run\n"
        "  10.0%    10.0%     [libdb.so]\n"
    )


def test_the_tree_may_begin_with_processes_or_turn_around(capsys):
    by_process = shown(capsys, "report", "--tree", "--sort", "process")
    assert "  90.0%     0.0%  ├─ web\n  90.0%     0.0%  │  main\n" in by_process
    inverted = shown(capsys, "report", "--tree", "--inverted")
    assert "  40.0%     0.0%  ├─ vfs_read\n  40.0%     0.0%  │  serve\n  40.0%    40.0%  │  main\n" in inverted


def test_small_branches_are_left_out(capsys):
    assert "run" not in shown(capsys, "report", "--tree", "--least", "20")


def test_the_tree_as_json_names_each_nodes_parent(capsys):
    nodes = json.loads(shown(capsys, "report", "--tree", "--json"))["rows"]
    assert nodes[0] == {"name": "all", "parent": None, "self": 0, "total": 100 * MS}
    leaf = next(node for node in nodes if node["name"] == "parse")
    assert nodes[leaf["parent"]]["name"] == "serve"


def test_json_says_what_was_sampled_and_lost(capsys):
    build_profile(SAMPLES, losses=[("ring-full", 3, False, "")]).save("x.hound")
    document = json.loads(shown(capsys, "report", "x.hound", "--json"))
    assert {name: document[name] for name in ("event", "unit", "samples", "total", "losses")} == {
        "event": "cpu", "unit": "nanoseconds", "samples": 10, "total": 100 * MS, "losses": {"ring-full": 3},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "comms"),
    [
        (["--pid", "9"], ["web"]),
        (["-p", "9,12"], ["web", "db"]),
        (["--tid", "8"], ["web"]),
        (["--comm", "db"], ["db"]),
        (["--cpu", "1"], ["web", "db"]),
        (["--focus", "^parse$"], ["web"]),
        (["--ignore", "main"], ["db"]),
        (["--focus", "libdb"], ["db"]),
    ],
)
def test_options_choose_samples(options, comms, capsys):
    assert [row[0] for row in rows(capsys, "--sort", "comm", *options)] == comms


def test_without_inlined_functions_their_time_is_the_callers(capsys):
    assert ("serve", 50, 90) in rows(capsys, "--sort", "symbol", "--no-inline")


def test_rows_are_limited_and_0_means_all(capsys):
    build_profile([("app", 7, 7, 0, at, [f"f{at}"], 10, 1) for at in range(60)]).save("x.hound")
    assert len(rows(capsys, "x.hound")) == 40
    assert len(rows(capsys, "x.hound", "-n", "5")) == 5
    assert len(rows(capsys, "x.hound", "-n", "0")) == 60


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (
            Event(0, "cpu", "nanoseconds", "cpu-clock", "frequency", 999),
            "cpu by cpu-clock at 999 Hz: 1 sample, 2.00 ms",
        ),
        (Event(0, "cpu", "nanoseconds", "cpu", "period", 2_000_000), "cpu every 2.00 ms: 1 sample, 2.00 ms"),
        (Event(0, "cycles", "count", "cycles", "period", 1_000), "cycles every 1,000: 1 sample, 2,000,000"),
        (
            Event(0, "off-cpu", "nanoseconds", "sched_exit_tp", "period", 1_000_000),
            "off-cpu by sched_exit_tp every 1.00 ms: 1 sample, 2.00 ms (futex 100%)",
        ),
    ],
)
def test_the_first_line_says_what_was_sampled_and_how_often(event, told, capsys):
    away = make_table("off_cpu", [{"sample": 0, "state": "waiting", "reason": "futex", "queued_ns": 0}])
    profile = build_profile([("app", 7, 7, 0, 1_000, ["main"], 2 * MS, 1)], events=[event])
    profile.derive({"off_cpu": away}).save("x.hound")
    assert shown(capsys, "report", "x.hound").splitlines()[0] == told


@pytest.fixture
def two_events():
    faults = ("web", 7, 7, 0, 9_000, ["main", "touch"], 5, 5, "page-faults")
    build_profile([*SAMPLES, faults], events=[CPU, FAULTS]).save("two.hound")


@pytest.mark.usefixtures("two_events")
def test_of_several_events_each_is_shown_or_the_one_that_is_named(capsys):
    told = shown(capsys, "report", "two.hound")
    assert told.index("cpu by cpu-clock") < told.index("vfs_read") < told.index("page-faults") < told.index("touch")
    assert "touch" in shown(capsys, "report", "two.hound", "--event", "page-faults")
    told = shown(capsys, "report", "two.hound", "--json", status=2)
    assert "cpu, page-faults" in told
    assert "--event" in told
    assert "page-faults" in shown(capsys, "report", "two.hound", "--event", "none", status=2)


@pytest.mark.parametrize(("functions", "paged"), [(5, False), (30, True)])
def test_what_is_longer_than_the_terminal_goes_through_the_pager(functions, paged, tmp_path):
    build_profile([("app", 7, 7, 0, at, [f"f{at}"], 10, 1) for at in range(functions)]).save("x.hound")
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\nwhile IFS= read -r line; do echo paged: $line; done\n")
    pager.chmod(0o755)
    assert (b"paged: cpu by cpu-clock" in run_on_terminal("report", "x.hound", PAGER=str(pager))) is paged


def test_a_pipe_gets_no_pager(capsys, monkeypatch):
    monkeypatch.setenv("PAGER", "false")
    build_profile([("app", 7, 7, 0, at, [f"f{at}"], 10, 1) for at in range(90)]).save("x.hound")
    assert len(shown(capsys, "report", "x.hound", "-n", "0").splitlines()) == 94


def test_hostile_names_reach_no_terminal(capsys):
    hostile = ("a\x1b[2J", 7, 7, 0, 1_000, ["m\x1b]0;x\x07", "\u202eevil at x\ny.c:1"], 10, 1)
    build_profile([hostile]).save("x.hound")
    for options in ([], ["--tree"], ["--sort", "thread,file"], ["--json"], ["--tree", "--json"]):
        text = shown(capsys, "report", "x.hound", *options)
        assert not {char for char in text if not char.isprintable() and char != "\n"}, options


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["report", "none.hound"], 1, "no such file"),
        (["report", "."], 1, "not a regular file"),
        (["report", "/dev/null"], 1, "not a regular file"),
        (["report", "notes.txt"], 1, "not a .hound file"),
        (["report", "cut.hound"], 1, "damaged"),
        (["report", "--sort", "colour"], 2, "cannot sort by 'colour'"),
        (["report", "--tree", "--sort", "symbol"], 2, "cannot sort a tree by 'symbol'"),
        (["report", "--tree", "--sort", "process,thread"], 2, "one first level"),
        (["report", "--inverted"], 2, "--tree"),
        (["report", "--focus", "("], 2, "no regular expression"),
        (["report", "--comm", "nobody"], 1, "no sample is left"),
        (["report", "--pid", "x"], 2, "not a process id"),
        (["report", "--cpu", "x"], 2, "not a number"),
        (["report", "-n", "-1"], 2, "-1"),
        (["export"], 2, "where to"),
        (["export", "-o", "x.gif"], 2, "says no format"),
        (["export", "--format", "gif"], 2, "no format is called 'gif'"),
        (["export", "-o", "none/x.svg"], 1, "create its directory first"),
        (["export", "-o", "."], 1, "is a directory"),
        (["export", "--format", "parquet"], 2, "-o DIR"),
        (["export", "none.hound", "-o", "x.svg"], 1, "no such file"),
        (["export", "cut.hound", "-o", "x.svg"], 1, "damaged"),
    ],
)
def test_bad_input_is_one_line(arguments, status, told, capsys):
    whole = Path("stackhound.hound").read_bytes()
    Path("cut.hound").write_bytes(whole[: len(whole) // 2])
    Path("notes.txt").write_text("hello\n")
    line = shown(capsys, *arguments, status=status)
    assert told in line
    assert line.startswith("stackhound: ")
    assert line.count("\n") == 1
    assert not Path("x.svg").exists()


def test_an_empty_profile_says_so(capsys):
    build_profile([]).save("x.hound")
    assert "this profile has no samples" in shown(capsys, "report", "x.hound", status=1)


@pytest.mark.parametrize(
    ("name", "start"),
    [("x.folded", b"db;run"), ("x.svg", b"<svg"), ("x.html", b"<!"), ("x.jsonl", b"{"), ("x.hound", b"PK")],
)
def test_export_writes_the_format_that_the_suffix_says(name, start, capsys):
    assert shown(capsys, "export", "-o", name) == ""
    assert Path(name).read_bytes().startswith(start)


def test_export_to_stdout_has_the_profile_and_nothing_else(capfdbinary):
    assert main(["export", "--format", "folded", "--comm", "db"]) == 0
    assert capfdbinary.readouterr() == (b"db;run;[libdb.so] 1\n", b"")
    assert main(["export", "-o", "-"]) == 0
    assert capfdbinary.readouterr().out.startswith(b"PK")


def test_export_applies_what_was_chosen():
    assert main(["export", "-o", "x.hound", "-p", "7", "--focus", "vfs"]) == 0
    assert load("x.hound").table("samples").num_rows == 1


def test_tables_go_into_a_directory(capsys):
    assert shown(capsys, "export", "--format", "parquet", "-o", "tables") == ""
    assert Path("tables/samples.parquet").exists()


def test_a_binary_format_is_not_for_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "not for a terminal" in shown(capsys, "export", "--format", "pprof", status=2)


def test_help_names_every_format(capsys):
    from stackhound.formats import FORMATS

    text = shown(capsys, "export", "--help")
    assert all(f"    {known.name} " in text for known in FORMATS)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_under_sudo_an_export_belongs_to_the_invoking_user(monkeypatch):
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    assert main(["export", "-o", "x.svg"]) == 0
    assert Path("x.svg").stat().st_uid == 65534
