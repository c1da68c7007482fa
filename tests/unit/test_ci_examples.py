"""examples/ci: parsed as GitHub and GitLab would, run in a clone as deep as they ask for, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import stackhound
from support_workloads import require

EXAMPLES = Path(__file__).parents[2] / "examples" / "ci"
BENCH = """
[[benchmark]]
name = "drain"
command = ["cat", "count.json"]
results = "-"
warmups = 0
"""


def load(name):
    yaml = pytest.importorskip("yaml", reason="make test installs it")
    return yaml.safe_load((EXAMPLES / name).read_text())


def github():
    """The depth of the clone, the lines, and where the summary goes."""
    checkout, *steps = load("github.yml")["jobs"]["gate"]["steps"]
    assert all(step.keys() == {"run"} for step in steps)
    return checkout["with"]["fetch-depth"], [step["run"] for step in steps], "summary.md"


def gitlab():
    job = load("gitlab.yml")["benchmarks"]
    (page,) = job["artifacts"]["paths"]
    assert job["artifacts"]["when"] == "always"
    assert job["artifacts"]["reports"]["junit"] == "gate.xml"
    return job["variables"]["GIT_DEPTH"], job["script"], page


def git(directory, *arguments):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run((require("git"), *identity, *arguments), cwd=directory, check=True)


@pytest.fixture
def run_job(tmp_path):
    """Commits counts one after the other, clones the last, runs the lines; returns the clone and the exit status."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "stackhound"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m stackhound "$@"\n')
    command.chmod(0o755)

    def run(example, *counts):
        depth, lines, _ = example()
        origin, clone = tmp_path / "origin", tmp_path / "clone"
        origin.mkdir()
        git(origin, "init", "-q")
        (origin / "bench.toml").write_text(BENCH)
        for count in counts:
            (origin / "count.json").write_text(f'{{"drain": {{"allocations": {{"value": {count}}}}}}}')
            git(origin, "add", ".")
            git(origin, "commit", "-q", "--allow-empty", "-m", f"Allocate {count}")
        git(tmp_path, "clone", "-q", "--depth", str(depth), origin.as_uri(), str(clone))
        environment = {
            **os.environ,
            "PATH": f"{command.parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(stackhound.__file__).parents[1]),
            "GITHUB_STEP_SUMMARY": str(clone / "summary.md"),
        }
        shell = (*without_network(), "sh", "-e", "-c", "\n".join(lines))
        return clone, subprocess.run(shell, cwd=clone, env=environment, check=False).returncode

    return run


def without_network():
    """In front of a command: it has a loopback that is down, and nothing else."""
    options = ("-n",) if os.geteuid() == 0 else ("-r", "-n")
    prefix = (require("unshare"), *options)
    if subprocess.run((*prefix, "true"), capture_output=True, check=False).returncode:
        pytest.skip("needs the right to make network namespaces")
    return prefix


@pytest.mark.parametrize("example", [github, gitlab])
def test_a_commit_that_costs_nothing_passes_and_is_told_of(example, run_job):
    clone, status = run_job(example, 5, 10, 10)
    assert status == 0
    assert "1 not worse" in (clone / example()[2]).read_text()
    assert ET.parse(clone / "gate.xml").getroot().attrib["failures"] == "0"


@pytest.mark.parametrize("example", [github, gitlab])
def test_a_commit_that_allocates_once_more_is_stopped(example, run_job):
    clone, status = run_job(example, 5, 10, 11)
    assert status == 3
    assert "1 regressed" in (clone / example()[2]).read_text()
    assert ET.parse(clone / "gate.xml").getroot().attrib["failures"] == "1"
