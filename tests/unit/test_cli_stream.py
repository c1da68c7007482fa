"""``stackhound stream`` around the recording, which a stand-in plays."""

from __future__ import annotations

import re

import pytest

from fixtures.profiles import build_profile, make_table
from stackhound import _native
from stackhound.cli.main import main

STATUS = ("samples", "lost", "entries", "bpf_ns", "bpf_runs", "collector_cpu_ns", "resident_bytes", "elapsed_ns")
ADDRESSES = [0xFFFFFFFF8164E7D0, 0x5581D02C1139, 0x5581D02C1025]


class Tables:
    def __init__(self, tables):
        self._tables = dict(tables)

    def names(self):
        return list(self._tables)

    def take(self, name):
        return self._tables.pop(name)


class Session:
    """One sample, and then its process has ended."""

    made = None
    lost = 0

    def __init__(self, options):
        self.options = options
        type(self).made = self

    def start(self):
        pass

    def wait(self, _timeout_s):
        return "targets-exited"

    def take(self, _lines):
        profile = build_profile([("app", 7, 7, 3, 1_000, ["_start", "main at m.c:12", "k:vfs_read"], 10, 1)])
        addresses = make_table("addresses", [{"sample": 0, "addresses": ADDRESSES}])
        return Tables({**profile.tables, "addresses": addresses})

    def status(self):
        return {**dict.fromkeys(STATUS, 0), "samples": 1, "lost": self.lost, "elapsed_ns": 1_000_000_000}

    def close(self):
        pass


@pytest.fixture(autouse=True)
def session(monkeypatch):
    made = type("Session", (Session,), {})
    monkeypatch.setattr(_native, "Session", made)
    return made


def test_a_sample_is_printed_with_its_addresses_names_and_lines(capsys):
    assert main(["stream"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\[\d{10}\.\d{9}\] COMM: app \(pid=7\) @ CPU 3", lines[0])
    assert lines[1] == "Kernel:"
    assert re.fullmatch(r"0xffffffff8164e7d0: vfs_read @ 0x[0-9a-f]+\+0x[0-9a-f]+", lines[2])
    assert lines[3] == "Userspace:"
    assert re.fullmatch(r"0x005581d02c1139: main @ 0x[0-9a-f]+\+0x[0-9a-f]+ m\.c:12", lines[4])
    assert lines[6] == ""


def test_the_style_index_has_no_time(capsys):
    assert main(["stream", "--style", "index"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "COMM: app (pid=7) @ CPU 3"
    assert lines[2].startswith("  0 [<ffffffff8164e7d0>] vfs_read+0x")


@pytest.mark.parametrize("option", ["-E", "--fold-extend"])
def test_folded_lines_can_be_piped(option, capsys):
    assert main(["stream", option]) == 0
    assert capsys.readouterr().out == "app;_start;main;vfs_read_[k] 1\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], 50), (["-f", "7"], 7), (["-F", "7"], 7), (["--freq", "7"], 7), (["--frequency", "7"], 7)],
)
def test_the_frequency_is_50_unless_said(arguments, expected, session):
    assert main(["stream", *arguments]) == 0
    (event,) = session.made.options["events"]
    assert (event["name"], event["mode"], event["rate"]) == ("cpu", "frequency", expected)
    assert session.made.options["raw_addresses"]


@pytest.mark.parametrize(("arguments", "level"), [([], 0), (["-v"], 1), (["-vv"], 2), (["-v", "-vvv"], 4)])
def test_v_says_more_each_time(arguments, level, session):
    assert main(["stream", *arguments]) == 0
    assert session.made.options["log_level"] == level


@pytest.mark.parametrize(
    ("arguments", "lost", "told"),
    [([], 3, ""), (["-v"], 0, ""), (["-v"], 3, "1 sample · 3 lost"), (["-vv"], 0, "1 sample · 0 lost")],
)
def test_losses_are_a_warning_and_the_cost_is_info(arguments, lost, told, session, capsys):
    session.lost = lost
    assert main(["stream", *arguments]) == 0
    shown = capsys.readouterr()
    assert told in shown.err
    assert bool(told) == bool(shown.err)
    assert "lost" not in shown.out


def test_the_software_event_can_be_forced(session):
    assert main(["stream", "--sw-event"]) == 0
    assert session.made.options["software_only"]


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["-f", "0"], 2, "0 Hz"),
        (["-f", "99999999"], 2, "perf_event_max_sample_rate"),
        (["-p", "abc"], 2, "not a process id"),
        (["-p", "4194303"], 1, "no process 4194303"),
        (["--style", "fancy"], 2, "'fancy' is not one of"),
        (["-d", "5"], 2, "No such option"),
    ],
)
def test_bad_input_is_one_line(arguments, status, told, session, capsys):
    assert main(["stream", *arguments]) == status
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""
    assert session.made is None


def test_debug_directories_reach_the_core(session):
    assert main(["stream", "--debug-dir", "/usr", "--debug-dir", "/etc"]) == 0
    assert session.made.options["debug_dirs"] == ["/usr", "/etc"]


def test_a_debug_directory_that_is_not_there_is_told_before_anything_is_recorded(session, capsys):
    assert main(["stream", "--debug-dir", "/none/such"]) == 2
    assert "debug directory" in capsys.readouterr().err
    assert session.made is None
