"""docs/tutorial-regression.md: a planted sleep and a planted allocation in a drain loop, found in each way it tells."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

import stackhound
from stackhound.cli.main import main
from support_examples import copy_example, make
from support_recordings import run_stackhound
from support_workloads import require

if TYPE_CHECKING:
    from pathlib import Path

    from stackhound import Profile

#: That the benchmarks drain, and bytes of a line that is kept of each.
SAMPLES: Final = 500
LINE_BYTES: Final = 8 + 4096


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example as it is with the regression, made."""
    directory = copy_example("slow_drain", tmp_path_factory.mktemp("tutorial"))
    make(directory, "BUILD=slow", "PLANTED=1")
    return directory


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example as a repository of its own, whose last commit plants the regression."""
    directory = copy_example("slow_drain", tmp_path)
    git(directory, "init", "-q")
    commit(directory, "A small sampler")
    source = directory / "drain.c"
    source.write_text(source.read_text().replace("#define PLANTED 0", "#define PLANTED 1"))
    commit(directory, "Remember all lines, and take breaks")
    monkeypatch.chdir(directory)
    return directory


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run((require("git"), *identity, *arguments), cwd=directory, check=True)


def commit(directory: Path, message: str) -> None:
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", message)


def share_of(profile: Profile, event: str, function: str) -> float:
    """The part of the program's samples of an event that have the function in their stacks."""
    mine = profile.filter(comms=["slow_drain"])
    whole = int(mine.tree(event).total_value[0])
    return int(mine.focus(f"^{function}$").tree(event).total_value[0]) / whole


@pytest.mark.ebpf
def test_a_recording_shows_the_sleep_and_the_allocation(slow: Path, tmp_path: Path) -> None:
    output = tmp_path / "slow.hound"
    sampler = (slow / "slow/slow_drain", slow / "slow/slow_drain.bpf.o", "3")
    with subprocess.Popen((sys.executable, "-c", "while True: pass")) as busy:  # it samples who runs
        done = run_stackhound("record", "-F", "4999", "-e", "cpu,off-cpu", "-o", output, "--", *sampler)
        busy.kill()
    assert done.returncode == 0, done.stderr
    profile = stackhound.load(output)
    assert share_of(profile, "off-cpu", "take_a_break") > 0.02
    assert share_of(profile, "cpu", "remember") > 0.02
    shown = run_stackhound("report", output, "--sort", "symbol", "--event", "off-cpu").stdout.decode()
    assert "take_a_break" in shown


@pytest.mark.ebpf
def test_the_benchmark_tells_that_the_commit_is_slower_and_allocates_and_draws_where(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("valgrind")
    arguments = ("--config", "bench.toml", "--time", "2m", "--flame", "flames", "--json", "HEAD^", "HEAD")
    assert main(["bench", "compare", *arguments]) == 0
    found = {one["measure"]["name"]: one for one in json.loads(capsys.readouterr().out)["benchmarks"]}
    assert {name: one["verdict"] for name, one in found.items()} == {
        "wall": "regressed",
        "callgrind-instructions": "regressed",
        "allocations": "regressed",
        "allocated": "regressed",
    }
    assert found["allocations"]["b"] - found["allocations"]["a"] == SAMPLES
    assert found["allocated"]["b"] - found["allocated"]["a"] == SAMPLES * LINE_BYTES
    page = (repository / "flames" / "drain.off-cpu.html").read_text()
    assert "take_a_break" in page
    assert "more by more than 10% of all" in page


@pytest.mark.ebpf
def test_the_heap_shows_what_is_kept(slow: Path, tmp_path: Path) -> None:
    output = tmp_path / "heap.hound"
    sampler = (slow / "slow/slow_drain", slow / "slow/slow_drain.bpf.o", "3")
    done = run_stackhound("record", "-e", "heap", "--heap-interval", "4K", "-o", output, "--", *sampler)
    assert done.returncode == 0, done.stderr
    kept = stackhound.load(output).filter(comms=["slow_drain"])
    assert share_of(kept, "heap", "remember") > 0.5
    leaks = run_stackhound("report", output, "--leaks").stdout.decode()
    assert "remember ← drain_sample" in leaks


@pytest.mark.usefixtures("repository")
def test_the_gate_stops_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    require("valgrind")
    assert main(["bench", "gate", "--config", "gate.toml", "HEAD^", "HEAD"]) == 3
    assert capsys.readouterr().err.splitlines()[-1] == "regression: drain"


@pytest.mark.parametrize(
    ("more", "status"), [("", 0), ('__asm__ volatile("nop");', 3)], ids=["a comment", "one instruction"]
)
def test_the_gate_sees_one_instruction_a_sample_and_nothing_where_nothing_changed(
    repository: Path, more: str, status: int
) -> None:
    require("valgrind")
    source = repository / "drain.c"
    beginning = "\tstruct command *command = find(totals, sample->comm);\n"
    changed = source.read_text().replace(beginning, f"{beginning}\t{more} /* of this sample */\n")
    assert changed != source.read_text()
    source.write_text(changed)
    commit(repository, "Say what the sample is for")
    assert main(["bench", "gate", "--config", "gate.toml", "HEAD^", "HEAD"]) == status
