"""Two commits of a repository compared: checked out, built, measured, and taken away again."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile

import pytest

from stackhound.bench.comparison import Duel, Side
from stackhound.bench.configuration import Benchmark
from stackhound.bench.results import make_results
from stackhound.cli.main import main
from support_workloads import require

DRAIN = """
#include <stdlib.h>
int main(void) {
    for (int sample = 0; sample < 10000; sample++) {
        %s
    }
    return 0;
}
"""
CONFIG = """
prepare = ["gcc", "-O0", "drain.c", "-o", "drain"]

[[benchmark]]
name = "drain"
command = ["./drain"]
warmups = 0
measures = ["callgrind-instructions", "allocations", "allocated"]
"""
#: The same in a language whose loader keeps the path of its directory.
PYTHON_CONFIG = """
[[benchmark]]
name = "drain"
command = ["%s", "-S", "drain.py"]
warmups = 0
measures = ["allocated"]
"""


def git(directory, *arguments):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ("git", *identity, *arguments)
    return subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True).stdout


def commit(directory, **files):
    for name, text in files.items():
        (directory / name.replace("_", ".")).write_text(text)
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", "change")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A drain loop; bench.toml is beside the repository, as it may be newer than what it measures."""
    require("git")
    directory = tmp_path / "repository"
    directory.mkdir()
    git(directory, "init", "-q")
    commit(directory, drain_c=DRAIN % "")
    monkeypatch.chdir(directory)
    (tmp_path / "bench.toml").write_text(CONFIG)
    return directory


def gate(*arguments):
    return main(["bench", "gate", "--config", "../bench.toml", *arguments])


@pytest.mark.parametrize("planted", ['__asm__ volatile ("nop");', "if (!sample) free(malloc(1));"])
def test_one_instruction_a_sample_or_one_allocation_more_than_the_parent_fails_the_gate(repository, planted, capsys):
    require("gcc")
    require("valgrind")
    commit(repository, drain_c=DRAIN % planted)
    assert gate("HEAD^", "HEAD", "--strict") == 3
    shown = capsys.readouterr()
    assert shown.err.splitlines()[:2] == ["preparing HEAD^", "preparing HEAD"]
    assert shown.err.splitlines()[-1] == "regression: drain"
    assert gate("HEAD", ".", "--strict") == 0


@pytest.mark.parametrize("name", ["short", "sub/" * 70])
def test_equal_builds_of_a_commit_and_of_a_directory_give_equal_counts_however_long_its_path(
    repository, name, capsys, monkeypatch
):
    """With a configuration that declares nothing."""
    require("gcc")
    require("valgrind")
    config = repository.parent / "bench.toml"
    moved = repository.parent / name / "r"
    moved.parent.mkdir(parents=True)
    repository.rename(moved)
    monkeypatch.chdir(moved)
    assert main(["bench", "gate", "--config", str(config), "HEAD", ".", "--strict", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert all(one["a"] == one["b"] for one in told["benchmarks"])
    assert len(told["benchmarks"]) == 3
    assert told["notes"] == []


@pytest.mark.parametrize("language", ["C", "Python"])
def test_equal_builds_in_directories_with_paths_of_unlike_length_raise_no_alarm(repository, tmp_path, language, capsys):
    require("gcc")
    require("valgrind")
    if language == "Python":
        (tmp_path / "bench.toml").write_text(PYTHON_CONFIG % sys.executable)
        (repository / "drain.py").write_text("import json, re\nprint(re.findall('a', json.dumps('banana')))\n")
    shutil.copytree(repository, tmp_path / ("other" * 30))
    assert gate(f"../{'other' * 30}", ".", "--strict", "--json") == 0
    assert "paths of A and B have" in json.loads(capsys.readouterr().out)["notes"][0]


def test_one_instruction_a_sample_is_found_also_between_paths_of_unlike_length(repository, tmp_path):
    require("gcc")
    require("valgrind")
    shutil.copytree(repository, tmp_path / ("other" * 30))
    commit(repository, drain_c=DRAIN % '__asm__ volatile ("nop");')
    assert gate(f"../{'other' * 30}", ".", "--strict") == 3


def test_a_path_that_is_too_short_for_a_worktree_as_long_is_told(printed, monkeypatch, tmp_path, capsys):
    """The directory for temporary files is too deep."""
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert gate("HEAD", ".", "--json") == 0
    assert "paths of A and B have" in json.loads(capsys.readouterr().out)["notes"][0]
    assert list(deep.iterdir()) == []
    assert len(git(printed, "worktree", "list").splitlines()) == 1


def printing(repository, number, name="count.json"):
    document = f'{{"drain": {{"allocations": {{"value": {number}}}}}}}'
    commit(repository, **{name.replace(".", "_"): document})


@pytest.fixture
def printed(repository, tmp_path):
    """Benchmarks that print what a file of the commit says."""
    printing(repository, 10)
    printing(repository, 12)
    (tmp_path / "bench.toml").write_text(
        '[[benchmark]]\nname = "count"\ncommand = ["cat", "count.json"]\nresults = "-"\nwarmups = 0\n'
    )
    return repository


def test_worktrees_are_taken_away_also_after_a_failure(printed, tmp_path):
    assert gate("HEAD^", "HEAD") == 3
    config = tmp_path / "bench.toml"
    config.write_text('prepare = ["sh", "-c", "echo no compiler; exit 7"]\n' + config.read_text())
    assert gate("HEAD^", "HEAD") == 1
    assert len(git(printed, "worktree", "list").splitlines()) == 1


def test_a_command_of_the_configuration_finds_its_own_files(printed, tmp_path):
    config = tmp_path / "bench.toml"
    (tmp_path / "prepare.sh").write_text("pwd > where\n")
    config.write_text('prepare = ["sh", "-c", ". $STACKHOUND_BENCH_DIR/prepare.sh"]\n' + config.read_text())
    assert gate("HEAD^", ".") == 3
    assert (printed / "where").read_text().strip() == str(printed)


@pytest.mark.usefixtures("printed")
def test_a_failed_build_is_told_in_one_line(tmp_path, capsys):
    config = tmp_path / "bench.toml"
    config.write_text('prepare = ["sh", "-c", "echo no compiler; exit 7"]\n' + config.read_text())
    assert gate("HEAD^", "HEAD") == 1
    assert "prepare: 'sh' failed with status 7: no compiler" in capsys.readouterr().err


def test_in_a_directory_of_the_repository_the_same_one_of_the_commit_is_measured(printed, monkeypatch, tmp_path):
    (printed / "sub").mkdir()
    (printed / "sub" / "count.json").write_text((printed / "count.json").read_text())
    commit(printed)
    monkeypatch.chdir(printed / "sub")
    assert main(["bench", "gate", "--config", str(tmp_path / "bench.toml"), "HEAD", "."]) == 0


@pytest.mark.usefixtures("printed")
@pytest.mark.parametrize("argument", ["v9.9", "HEAD~50", "--help", "HEAD:count.json", "a\x1bb"])
def test_what_is_neither_a_directory_nor_a_commit_is_a_usage_error(argument, capsys):
    assert main(["bench", "gate", "--config", "../bench.toml", "--", argument, "HEAD"]) == 2
    assert "neither a directory nor a commit" in capsys.readouterr().err


def test_a_benchmark_that_the_first_side_had_not_yet_is_left_out_and_said(printed, tmp_path, capsys):
    printing(printed, 5, "other.json")
    config = tmp_path / "bench.toml"
    config.write_text(
        config.read_text()
        + '[[benchmark]]\nname = "other"\ncommand = ["cat", "other.json"]\nresults = "-"\nneeds = "other.json"\n'
    )
    assert gate("HEAD^", "HEAD") == 0
    assert "note: other is new: nothing to compare it with" in capsys.readouterr().out
    assert gate("HEAD", "HEAD^") == 1
    assert "benchmark 'other' needs 'other.json'" in capsys.readouterr().err


def test_programs_that_an_object_file_gained_or_lost_are_said_and_the_others_compared(tmp_path):
    benchmark = Benchmark("bpf", bpf="x.o", warmups=0)
    programs = {"a": {"bpf/old": 10.0, "bpf/kept": 20.0}, "b": {"bpf/new": 30.0, "bpf/kept": 21.0}}

    def run(_, directory):
        found = programs[directory.name]
        return make_results({name: {"verifier-instructions": [value]} for name, value in found.items()})

    sides = (Side(tmp_path / name, (benchmark,)) for name in ("a", "b"))
    comparison = Duel(*sides, run=run).compare()
    assert [(one.benchmark, one.verdict.value) for one in comparison.findings] == [("bpf/kept", "regressed")]
    assert comparison.notes == ["bpf/new is new: nothing to compare it with", "bpf/old is gone"]
