"""scripts/answered.sh, by which make bench-gate lets a regression pass that the commit's message answers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support_workloads import require

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "answered.sh"
ANSWERED = "Look names up twice\n\nCost: one instruction a name, to be sure.\n"
UNANSWERED = "Look names up twice\n\nThe Cost: line is missing.\n"


@pytest.fixture
def run(tmp_path):
    """Runs the script around a gate that returns a status, in a repository whose last commit says something."""

    def run_it(status, message):
        subprocess.run((require("git"), "init", "-q"), cwd=tmp_path, check=True)
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        commit = ("git", *identity, "commit", "-q", "--allow-empty", "-m", message)
        subprocess.run(commit, cwd=tmp_path, check=True)
        gate = ("sh", "-c", f"exit {status}")
        return subprocess.run((SCRIPT, *gate), cwd=tmp_path, capture_output=True, text=True, check=False)

    return run_it


def test_a_confirmed_regression_passes_where_the_commit_says_what_it_is_worth(run):
    done = run(3, ANSWERED)
    assert done.returncode == 0
    assert done.stderr == "this was answered: Cost: one instruction a name, to be sure.\n"


def test_a_regression_that_nobody_answers_stops_the_commit(run):
    assert run(3, UNANSWERED).returncode == 3


@pytest.mark.parametrize("status", [1, 2, 4, 137])
def test_no_answer_excuses_a_gate_that_failed_or_could_not_tell(run, status):
    assert run(status, ANSWERED).returncode == status


def test_what_costs_nothing_passes_without_an_answer(run):
    assert run(0, UNANSWERED).returncode == 0


def test_ci_and_make_take_no_other_way_around_the_gate():
    assert [line.strip() for line in (ROOT / ".ci/run").read_text().splitlines() if "make bench-gate" in line] == [
        "make bench-gate"
    ]
    assert "scripts/answered.sh $(SUDO) $(STACKHOUND) bench gate" in (ROOT / "Makefile").read_text()
