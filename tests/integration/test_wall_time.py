"""Where the wall time of real threads went, and when: what a program says of itself, beside what is reported."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from support_devices import needs_site
from support_recordings import record_whole, run_stackhound
from support_workloads import Program, build

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.ebpf

ROUNDS: Final = 10
#: By thread, which is named like the function that it waits in: where its time goes, and the state of its strip.
PLACES: Final = {
    "nap_once": ("sleep", "sleep"),
    "wait_for_poll": ("events", "poll"),
    "wait_for_futex": ("locks", "futex"),
    "wait_for_pipe": ("programs", "pipe"),
    "wait_for_socket": ("network", "socket"),
}
#: The same of what not every machine can do, and of two threads on one CPU; what asks for it, and the place's function.
RARER_PLACES: Final = {
    "read_disk": ("disk", "disk", "read_disk", "read_disk"),
    "touch_file": ("disk", "disk", "touch_file", "touch_file"),
    "wait_for_page": ("page faults", "page fault", "wait_for_page", "wait_for_page"),
    "compete": ("run queue", "preempted", "take_turns", "spin_until"),
}


def record(directory: Path, *sites: str) -> tuple[Path, int, dict[str, int]]:
    """The profile of a program whose threads wait, its pid, and the nanoseconds that each of them was away."""
    with Program(build("absences.c", "-pthread"), str(ROUNDS), *sites) as program:
        profile = record_whole(program, events=("cpu", "off-cpu"))
        truth = program.truth()
        pid = program.pid
    path = directory / "a.hound"
    profile.save(path)
    return path, pid, truth


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, int]]:
    return record(tmp_path_factory.mktemp("wall"), *PLACES)


def report(path: Path, *options: object) -> dict[str, Any]:
    done = run_stackhound("report", path, *map(str, options), "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_places_add_up_to_the_wall_time(recorded: tuple[Path, int, dict[str, int]]) -> None:
    path, pid, truth = recorded
    why = report(path, "--why", pid)
    assert why["threads"] > len(PLACES)
    assert why["known_ns"] == sum(row["ns"] for row in why["places"])
    assert why["known_ns"] == pytest.approx(why["wall_ns"], rel=0.05)
    assert why["wall_ns"] > sum(truth[name] for name in PLACES)


@pytest.mark.parametrize("name", PLACES)
def test_a_threads_time_is_where_it_waited(recorded: tuple[Path, int, dict[str, int]], name: str) -> None:
    path, pid, truth = recorded
    place, reason = PLACES[name]
    why = report(path, "--why", pid, "--comm", name)
    found = {row["place"]: row for row in why["places"]}
    ready_ns = found["run queue"]["reasons"].get("woken", 0)
    assert found[place]["ns"] + ready_ns == pytest.approx(truth[name], rel=0.1)
    assert found[place]["reasons"][reason] > 0.9 * found[place]["ns"]
    assert name in found[place]["stacks"][0]["frames"]


@pytest.mark.parametrize("name", RARER_PLACES)
def test_time_at_disks_in_faults_and_in_the_run_queue_is_found_there(name: str, tmp_path: Path) -> None:
    place, reason, site, function = RARER_PLACES[name]
    needs_site(site)
    path, pid, truth = record(tmp_path, site)
    why = report(path, "--why", pid, "--comm", name)
    found = {row["place"]: row for row in why["places"]}
    woken_ns = found.get("run queue", {"reasons": {}})["reasons"].get("woken", 0)
    ready_ns = 0 if place == "run queue" else woken_ns
    assert found[place]["ns"] + ready_ns == pytest.approx(truth[name], rel=0.1)
    assert found[place]["reasons"][reason] > 0.9 * found[place]["ns"]
    assert function in found[place]["stacks"][0]["frames"]


def test_the_strips_have_no_gaps_and_the_same_sums(recorded: tuple[Path, int, dict[str, int]]) -> None:
    path, pid, _ = recorded
    document = report(path, "--timeline", pid)
    threads = {thread["comm"]: thread for thread in document["threads"]}
    for name, (_, reason) in PLACES.items():
        spells = threads[name]["spells"]
        assert [spell["end_ns"] for spell in spells[:-1]] == [spell["start_ns"] for spell in spells[1:]]
        assert 0 <= spells[0]["start_ns"] < spells[-1]["end_ns"] <= document["duration_ns"]
        away_ns = sum(spell["end_ns"] - spell["start_ns"] for spell in spells if spell["reason"] == reason)
        total_ns = sum(row["ns"] for row in threads[name]["totals"] if row["reason"] == reason)
        assert away_ns == pytest.approx(total_ns, rel=0.1)
