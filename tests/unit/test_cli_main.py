"""The command line as a whole: help, errors in one line, quiet ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.profiles import build_profile
from fixtures.terminal import run_on_terminal
from stackhound.cli.main import SUBCOMMANDS, main

HERE = [sys.executable, "-m", "stackhound"]
#: What pip makes of the entry in pyproject.toml.
INSTALLED = [sys.executable, "-c", "from stackhound.cli.entry import run; run()"]
both_ways = pytest.mark.parametrize("stackhound", [HERE, INSTALLED], ids=["python -m", "installed"])


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "x.hound"
    build_profile([("app", 7, 7, 0, 1_000, ["main", "work"], 10_101_010, 1)]).save(path)
    return path


def start(*arguments, **options):
    return subprocess.run([*HERE, *map(str, arguments)], capture_output=True, text=True, check=False, **options)


def test_without_arguments_it_shows_its_help(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: stackhound")
    assert all(name in shown for name in SUBCOMMANDS)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_teaches_by_examples(name, capsys):
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    examples = shown.partition("Examples:\n")[2].splitlines()
    assert len([line for line in examples if "stackhound" in line]) >= 2


def test_the_help_of_the_whole_teaches_by_examples_a_line_each(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "\\b" not in shown
    assert "Examples:\n  sudo stackhound record -d 10\n      ten seconds of the whole machine\n" in shown


def test_help_of_the_whole_imports_no_subcommand():
    script = "import sys; from stackhound.cli.main import main; main(['--help']); print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    modules = shown.splitlines()[-1].split()
    assert "stackhound.cli.record" not in modules
    assert "numpy" not in modules


@pytest.mark.parametrize("name", ["record", "stream", "doctor", "list", "run"])
def test_what_records_imports_neither_numpy_nor_arrow_before_it_does(name):
    script = f"import sys; import stackhound.cli.{name}; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "arro3", "arro3.core", "polars"} & set(shown.split())


def test_the_version_is_the_packages(capsys):
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"stackhound {version('stackhound')}\n"


def test_an_unknown_subcommand_is_answered_with_those_there_are(capsys):
    assert main(["recrod"]) == 2
    assert capsys.readouterr().err == (f"stackhound: there is no subcommand 'recrod': use {', '.join(SUBCOMMANDS)}\n")


@pytest.mark.parametrize("planned", ["diff", "top", "agent", "ui"])
def test_what_is_only_planned_is_no_subcommand(planned, capsys):
    assert main([planned]) == 2
    assert planned not in SUBCOMMANDS
    assert "no subcommand" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--bogus"], "No such option '--bogus'"),
        (["record", "--bogus"], "No such option '--bogus'"),
        (["record", "-F", "fast"], "'fast' is not a valid integer"),
        (["record", "-o"], "requires an argument"),
        (["completion"], "Missing argument"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
        (["report", "a", "b"], "unexpected extra argument"),
    ],
)
def test_a_usage_error_is_one_line_that_names_the_help(arguments, told, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert "--help'" in shown
    assert shown.count("\n") == 1
    assert shown.startswith("stackhound: ")


def test_an_error_has_no_traceback_without_v_and_one_with_it(tmp_path, capsys):
    missing = str(tmp_path / "none.hound")
    assert main(["report", missing]) == 1
    quiet = capsys.readouterr().err
    assert "Traceback" not in quiet
    assert main(["report", "-v", missing]) == 1
    assert "Traceback" in (before := capsys.readouterr().err)
    assert before.endswith(quiet)
    assert main(["-v", "report", missing]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_the_log_level_may_come_from_the_environment(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("STACKHOUND_LOG", "Info")
    assert main(["report", str(tmp_path / "none.hound")]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_unknown_log_level_is_answered_with_those_there_are(capsys, monkeypatch):
    monkeypatch.setenv("STACKHOUND_LOG", "loud")
    assert main(["doctor"]) == 2
    assert "error, warn, info, debug, trace" in capsys.readouterr().err


def test_a_mistake_of_ours_is_one_line_and_exit_1():
    script = """
import sys
from pathlib import Path
from stackhound.cli import main as file
def fail(*_): raise ZeroDivisionError("over \\x1b[31m there")
file._run = fail
sys.exit(file.main(["report"]))
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert shown.stderr.startswith("stackhound: ZeroDivisionError: 'over \\x1b[31m there': this is a bug")
    assert shown.stderr.count("\n") == 1


def test_a_hostile_path_is_escaped_in_the_error(capsys):
    assert main(["report", "a\x1b]0;b\nc.hound"]) == 1
    shown = capsys.readouterr().err
    assert r"a\x1b]0;b\nc.hound" in shown
    assert "\x1b" not in shown


@both_ways
def test_a_reader_that_goes_ends_it_quietly(profile, stackhound):
    writing = subprocess.Popen(
        [*stackhound, "export", str(profile), "--format", "jsonl"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    writing.stdout.close()
    with writing.stderr:
        assert writing.stderr.read() == b""
    assert writing.wait() == 128 + signal.SIGPIPE


@both_ways
def test_a_full_disk_behind_stdout_is_one_line(profile, stackhound):
    with Path("/dev/full").open("wb") as full:
        shown = subprocess.run(
            [*stackhound, "export", str(profile), "--format", "folded"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert shown.returncode == 1
    assert shown.stderr.count("\n") == 1
    assert "No space left on device" in shown.stderr


@both_ways
def test_it_ends_with_its_status_and_all_it_wrote(profile, stackhound):
    done = [
        subprocess.run([*stackhound, *arguments], capture_output=True, text=True, check=False)
        for arguments in (["report", str(profile), "--json"], ["report", "not there"], ["report", "--none"])
    ]
    assert [one.returncode for one in done] == [0, 1, 2]
    assert json.loads(done[0].stdout)["total"] == 10_101_010


def test_ctrl_c_while_it_starts_ends_it_without_a_traceback():
    script = """
import signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "click":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from stackhound.cli.entry import run
run()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_python_m_stackhound_is_the_same_command_line():
    shown = start("--version")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("stackhound ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion(shell, capsys):
    assert main(["completion", shell]) == 0
    assert f"_STACKHOUND_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_a_shell_completes_subcommands_and_options():
    environment = {**os.environ, "_STACKHOUND_COMPLETE": "bash_complete"}
    shown = start(env={**environment, "COMP_WORDS": "stackhound re", "COMP_CWORD": "1"})
    assert shown.stdout.split() == ["plain,record", "plain,report"]
    shown = start(env={**environment, "COMP_WORDS": "stackhound record --ker", "COMP_CWORD": "2"})
    assert shown.stdout.split() == ["plain,--kernel-only"]


@pytest.mark.parametrize("line", ["stackhound record -o ", "stackhound export -o ", "stackhound report "])
def test_a_shell_completes_files_where_they_belong(line):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()))}
    shown = start(env={**os.environ, "_STACKHOUND_COMPLETE": "bash_complete", **words})
    assert shown.stdout.split() == ["file,"]


def test_a_terminal_gets_colours_unless_no_color_is_set(profile):
    assert b"\x1b[1m" in run_on_terminal("report", profile)
    assert b"\x1b" not in run_on_terminal("report", profile, NO_COLOR="1")
    assert b"\x1b" not in run_on_terminal("report", profile, TERM="dumb")


def test_a_pipe_gets_no_colours(profile):
    assert "\x1b" not in start("report", profile).stdout
