"""asyncio's tasks: who awaits the one that runs is in its stack, and marked, when it is asked for."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from support_interpreters import Interpreter, find_interpreters
from support_profiles import Sample, samples_of, where
from support_recordings import record_whole
from support_workloads import SOURCES, Program

if TYPE_CHECKING:
    from stackhound import Profile

pytestmark = pytest.mark.ebpf

SOURCE: Final = SOURCES / "python_tasks.py"
MODULE: Final = "python_tasks"
HZ: Final = 499
CREW_OF: Final = {"apple": "red", "berry": "red", "cloud": "blue", "drop": "blue"}
KNOWING: Final = [one for one in find_interpreters() if one.minor >= 12 and one.version != "3.13t"]
OTHERS: Final = [one for one in find_interpreters() if one.version in ("3.11", "3.13t")]


@pytest.fixture(params=KNOWING or [None], ids=str, scope="module")
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    if request.param is None:
        pytest.skip("no CPython 3.12 or newer: scripts/interpreters.sh")
    interpreter: Interpreter = request.param
    return interpreter


@pytest.fixture(scope="module")
def recording(interpreter: Interpreter) -> tuple[Profile, dict[str, int]]:
    with Program(interpreter.path, SOURCE) as program:
        profile = record_whole(program, frequency_hz=HZ, asyncio=True)
        return profile, program.truth()


@pytest.fixture(scope="module")
def working(recording: tuple[Profile, dict[str, int]]) -> list[Sample]:
    """Samples of workers."""
    return where(samples_of(recording[0]), lambda sample: f"{MODULE}.worker" in sample.names)


def virtual(sample: Sample) -> list[str]:
    names = [frame.name.removeprefix(f"{MODULE}.") for frame in sample.frames if frame.kind == "task"]
    return [name for name in names if name != "asyncio.taskgroups.TaskGroup._aexit [awaits]"]  # of some versions


def expected(worker: str) -> list[str]:
    crew, group = CREW_OF[worker], "asyncio.taskgroups.TaskGroup.__aexit__ [awaits]"
    return ["Task-1 (main)", "main [awaits]", group, f"{crew} (crew)", "crew [awaits]", f"{worker} (worker)"]


def test_who_awaits_a_task_is_in_its_stack(working: list[Sample]) -> None:
    chains = [virtual(sample) for sample in working]
    right = [chain for chain in chains if chain and chain == expected(chain[-1].partition(" ")[0])]
    assert len(right) > 0.98 * len(chains), [chain for chain in chains if chain not in right][:3]


def test_those_that_await_stand_between_the_event_loop_and_the_task(working: list[Sample]) -> None:
    for sample in working:
        kinds = [frame.kind for frame in sample.frames]
        if "task" in kinds:
            names = sample.names
            first, last = kinds.index("task"), len(kinds) - 1 - kinds[::-1].index("task")
            assert set(kinds[first : last + 1]) == {"task"}
            assert "asyncio.events.Handle._run" in names[:first]
            following = [frame.name for frame in sample.frames[last:] if frame.kind == "python"]
            assert following[0] == f"{MODULE}.worker"


def test_those_that_await_have_the_line_where_they_do(working: list[Sample]) -> None:
    line = next(at for at, text in enumerate(SOURCE.read_text().splitlines(), 1) if "# line: gather" in text)
    awaiting = [frame for sample in working for frame in sample.frames if frame.name == f"{MODULE}.crew [awaits]"]
    assert {(frame.file, frame.line) for frame in awaiting} == {(str(SOURCE), line)}


def test_each_task_has_its_share(recording: tuple[Profile, dict[str, int]], working: list[Sample]) -> None:
    truth = {name: used for name, used in recording[1].items() if name in CREW_OF}
    for name, used in truth.items():
        found = sum(f"{name} (worker)" in sample.names for sample in working) / len(working)
        assert abs(found - used / sum(truth.values())) < 0.04, name


def test_tasks_that_pass_by_have_their_own_name_or_none(recording: tuple[Profile, dict[str, int]]) -> None:
    samples = where(samples_of(recording[0]), lambda sample: f"{MODULE}.passing" in sample.names)
    samples = where(samples, lambda sample: f"{MODULE}.main" not in sample.names)  # which calls it: that makes it
    named = [virtual(sample) for sample in samples if virtual(sample)]
    times: dict[str, list[int]] = {}
    for sample in samples:
        times.setdefault(virtual(sample)[-1] if virtual(sample) else "", []).append(sample.boottime_ns)
    del times[""]
    in_order = sorted(times, key=lambda name: int(name.partition(" ")[0].removeprefix("Task-")))
    assert in_order == sorted(times, key=lambda name: times[name][0])
    assert all(max(times[one]) < min(times[other]) for one, other in pairwise(in_order))
    assert {tuple(chain[:-1]) for chain in named} <= {("Task-1 (main)", "main [awaits]")}


#: An event loop in each of two threads, with the same code. At the end: which thread ran which task.
TWO_LOOPS: Final = """
import asyncio, sys, threading, time
async def worker():
    until_s = time.thread_time() + 0.5
    while time.thread_time() < until_s:
        sum(range(50_000))
        await asyncio.sleep(0)
async def main(name):
    await asyncio.wait([asyncio.create_task(worker(), name=name)])
def run(name):
    tids[name] = threading.get_native_id()
    asyncio.run(main(name))
tids = {}
print("ready", flush=True)
sys.stdin.readline()
threads = [threading.Thread(target=run, args=(name,)) for name in ("left", "right")]
for thread in threads: thread.start()
for thread in threads: thread.join()
for name, tid in tids.items(): print(name, tid)
"""


def test_threads_with_event_loops_of_their_own_have_their_own_tasks(interpreter: Interpreter) -> None:
    with Program(interpreter.path, "-c", TWO_LOOPS) as program:
        profile = record_whole(program, frequency_hz=HZ, asyncio=True)
        tids = program.truth()
    samples = where(samples_of(profile), lambda sample: "worker" in sample.names)
    shown = [(sample.tid, virtual(sample)) for sample in samples if virtual(sample)]
    assert len(shown) > 0.9 * len(samples)
    for tid, (task, *awaiting, running) in shown:
        assert task.endswith(" (main)")
        assert awaiting == ["main [awaits]", "asyncio.tasks.wait [awaits]", "asyncio.tasks._wait [awaits]"]
        assert tids[running.partition(" ")[0]] == tid


def test_nothing_virtual_is_there_unless_it_is_asked_for(interpreter: Interpreter) -> None:
    with Program(interpreter.path, SOURCE) as program:
        profile = record_whole(program, frequency_hz=HZ)
    assert "task" not in profile.texts("objects", "kind")


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_versions_whose_tasks_are_not_read_are_named(other: Interpreter) -> None:
    with Program(other.path, SOURCE) as program:
        profile = record_whole(program, frequency_hz=HZ, asyncio=True)
    assert "task" not in profile.texts("objects", "kind")
    (note,) = (note for note in profile.metadata["notes"] if "awaits" in note)
    version = other.version.rstrip("t")
    assert note.startswith(f"not shown who awaits the tasks of 1 process: of CPython {version}.")
