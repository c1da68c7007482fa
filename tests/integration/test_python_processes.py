"""Python where processes, interpreters and stacks are not one each, end early, or lie: frames are right or missing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from stackhound.profile.completeness import COMPLETE, count_ends
from stackhound.profile.facts import notes
from stackhound.profile.schema import SampleFlag
from support_interpreters import FETCHED, Interpreter, find_interpreters, find_version, interpreters
from support_profiles import Sample, samples_of
from support_recordings import record_some, record_whole, recorder, wait_for
from support_silent_files import silent_file
from support_workloads import FREESTANDING, SOURCES, Program, build, require

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stackhound import Profile

pytestmark = pytest.mark.ebpf

SOURCE: Final = SOURCES / "python_processes.py"
LIES: Final = SOURCES / "python_lies.py"
HZ: Final = 999
UNSURE: Final = SampleFlag.PYTHON_CUT | SampleFlag.PYTHON_GUESSED

MUSL: Final = FETCHED / "musl-3.9" / "python3.9-musl"

#: A function whose code was gone, or another, when it was read.
MISSING: Final = "[Python]"

Chain = tuple[str, ...]


@pytest.fixture(params=interpreters())
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    one: Interpreter = request.param
    return one


@pytest.fixture
def python_3_11() -> Path:
    """The version whose memory the workload knows how to overwrite."""
    found = [one.path for one in find_interpreters() if one.version == "3.11"]
    return found[0] if found else pytest.skip("needs CPython 3.11")


def record(interpreter: Path, *arguments: str | Path) -> Profile:
    with Program(interpreter, SOURCE, *arguments) as program:
        return record_whole(program, frequency_hz=HZ)


def chain_of(sample: Sample) -> Chain:
    """Python's functions from the root on, without the workload's module."""
    names = (frame.name for frame in sample.frames if frame.kind == "python")
    return tuple(re.sub(r"^python_(processes|lies)\.", "", name) for name in names)


#: A code object that was gone before it was read, and another one in its place: what a program's start has most.
RARE: Final = 0.01


def spinning(profile: Profile) -> list[tuple[Sample, Chain]]:
    """The samples in a function that takes time, and whose Python frames are said to be sure."""
    samples = [(sample, chain_of(sample)) for sample in samples_of(profile) if not sample.flags & UNSURE]
    return [(sample, chain) for sample, chain in samples if "spin" in chain]


def chains(profile: Profile) -> Counter[Chain]:
    return Counter(chain for _, chain in spinning(profile))


def assert_only(found: Counter[Chain], expected: Iterable[Chain]) -> None:
    """Each expected chain is there, and hardly another one but one of them with a function missing."""
    wanted = {("<module>", *chain, "spin") for chain in expected}
    assert [chain for chain in wanted if found[chain] < 10] == []
    others = {chain: count for chain, count in found.items() if not any(map(partial(is_alike, chain), wanted))}
    assert sum(others.values()) <= RARE * found.total(), others


def is_alike(chain: Chain, wanted: Chain) -> bool:
    """Whether each function is the one that is wanted, or is said to be missing."""
    return len(chain) == len(wanted) and all(pair[0] in {MISSING, pair[1]} for pair in zip(chain, wanted, strict=True))


def test_a_child_that_only_forked_keeps_its_python_frames(interpreter: Interpreter) -> None:
    profile = record(interpreter.path, "fork")
    of_child = ("fork", "in_child")
    assert_only(chains(profile), [("fork", "in_parent"), of_child, (*of_child, "in_grandchild")])
    assert len({sample.pid for sample, _ in spinning(profile)}) == 3


def test_a_child_that_runs_another_python_has_the_frames_of_that(interpreter: Interpreter) -> None:
    others = [one for one in find_interpreters() if one.version != interpreter.version]
    if not others:
        pytest.skip("needs two versions of CPython")
    profile = record(interpreter.path, "exec_other", others[-1].path)
    assert_only(chains(profile), [("exec_other", "in_parent"), ("plain", "in_plain")])


def test_subinterpreters_have_their_own_frames(interpreter: Interpreter) -> None:
    profile = record(interpreter.path, "subinterpreters")
    assert ("<module>", "subinterpreters", "in_parent", "spin") in chains(profile)
    of_threads = [chain_of(sample) for sample in samples_of(profile) if sample.tid != sample.pid]
    inside = [chain for chain in of_threads if "in_subinterpreter" in chain]
    assert not [chain for chain in of_threads if "in_parent" in chain or "spin" in chain]
    if interpreter.minor >= 10:  # 3.9 keeps nothing that tells which thread runs a subinterpreter's code
        assert {chain[-1] for chain in inside} == {"in_subinterpreter"}
        assert len(inside) > 100


def test_from_3_12_on_a_subinterpreters_threads_hold_their_own_lock(interpreter: Interpreter) -> None:
    if interpreter.minor < 12 or interpreter.version.endswith("t"):
        pytest.skip("before 3.12 there is one lock, and free-threaded builds have none")
    samples = samples_of(record(interpreter.path, "subinterpreters"))
    inside = [sample for sample in samples if chain_of(sample)[-1:] == ("in_subinterpreter",)]
    assert len(inside) > 100
    assert all(sample.flags & SampleFlag.GIL_KNOWN for sample in inside)
    held = sum(bool(sample.flags & SampleFlag.GIL_HELD) for sample in inside)
    assert held >= (1 - RARE) * len(inside)  # but where it is about to be asked for, or was given away


def test_until_3_11_a_subinterpreters_frames_stand_on_those_that_entered_it(interpreter: Interpreter) -> None:
    if interpreter.minor not in {10, 11}:
        pytest.skip("3.9 does not tell, and from 3.12 on a thread has the subinterpreter's frames alone")
    samples = samples_of(record(interpreter.path, "subinterpreters"))
    inside = [sample for sample in samples if chain_of(sample)[-1:] == ("in_subinterpreter",)]
    assert [sample for sample in inside if "run_it" not in chain_of(sample)] == []
    assert sum(bool(sample.flags & UNSURE) for sample in inside) <= RARE * len(inside)
    assert all(sample.flags & SampleFlag.GIL_HELD for sample in inside)


def test_on_musl_each_thread_has_its_functions() -> None:
    if not MUSL.exists():
        pytest.skip("no CPython on musl: scripts/interpreters.sh musl")
    found = spinning(record(MUSL, "threaded"))
    first = Counter(chain for sample, chain in found if sample.tid == sample.pid)
    others = Counter(chain[-2:] for sample, chain in found if sample.tid != sample.pid)
    assert_only(first, [("threaded", "in_parent")])
    assert set(others) == {("in_thread", "spin")}
    assert others.total() > first.total()


def test_greenlets_never_have_each_others_frames() -> None:
    pytest.importorskip("greenlet")
    found = chains_of_all(record(Path(sys.executable), "greenlets"))
    first, second = ({chain for chain in found if name in chain} for name in ("in_first", "in_second"))
    assert {chain[chain.index("in_first") :] for chain in first if "spin" in chain} <= {IN_FIRST}
    assert {chain[chain.index("in_second") :] for chain in second if "spin" in chain} <= {("in_second", "spin")}
    assert not first & second


def test_on_a_switched_stack_it_is_known_which_native_code_called_which_function() -> None:
    pytest.importorskip("greenlet")
    samples = samples_of(record(Path(sys.executable), "greenlets"))
    inside = [sample for sample in samples if chain_of(sample)[-1:] == ("spin",)]
    assert len(inside) > 50
    unsure = [sample for sample in inside if sample.flags & SampleFlag.PYTHON_GUESSED]
    assert len(unsure) < 0.05 * len(inside)


#: As the workload's greenlet calls.
IN_FIRST: Final = ("in_first", *["descend"] * 6, "spin")


def chains_of_all(profile: Profile) -> set[Chain]:
    """Also those that may be in other places between the native frames."""
    found = Counter(chain_of(sample) for sample in samples_of(profile))
    return {chain for chain, count in found.items() if count > 2}  # fewer are by chance


def test_a_python_inside_another_program_is_shown_between_the_programs_functions() -> None:
    headers = sysconfig.get_path("include")
    if not Path(headers, "Python.h").exists():
        pytest.skip("needs Python.h")
    library = sysconfig.get_config_var("LIBDIR")
    link = (f"-I{headers}", f"-L{library}", f"-Wl,-rpath,{library}", f"-lpython{sysconfig.get_python_version()}")
    with Program(build("embedding.c", *link)) as program:
        profile = record_whole(program, frequency_hz=HZ)
    samples = [one for one in samples_of(profile) if "spin" in chain_of(one) and not one.flags & UNSURE]
    assert len(samples) > 100
    assert {chain_of(sample)[:2] for sample in samples} == {("scripted", "spin")}
    for sample in samples:
        names = [frame.name for frame in sample.frames]
        assert names.index("main") < names.index("call_script") < names.index("scripted")


def test_a_process_that_is_stopped_holds_nothing_up(interpreter: Interpreter) -> None:
    with Program(interpreter.path, SOURCE, "stopped") as program:
        with recorder(pids=(program.pid,), frequency_hz=HZ) as recording:
            program.go()
            wait_for(lambda: state_of(program.pid) == "T", "the stop")
        assert state_of(program.pid) == "T"
        os.kill(program.pid, signal.SIGCONT)
    assert_only(chains(recording.profile), [("stopped", "before_stop")])


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def test_a_process_that_is_killed_keeps_its_frames(interpreter: Interpreter) -> None:
    assert_only(chains(record(interpreter.path, "killed")), [("killed", "before_end")])


@pytest.mark.parametrize(
    ("mode", "is_cut"),
    [
        ("cyclic_frames", True),
        ("wild_frames", True),
        ("wild_code", False),
        ("long_names", False),
        ("cyclic_threads", False),
    ],
)
def test_a_process_that_lies_about_itself_harms_no_other(mode: str, is_cut: bool, python_3_11: Path) -> None:
    with Program(python_3_11, LIES, mode) as liar, Program(python_3_11, SOURCE, "plain") as honest:
        with recorder(pids=(liar.pid, honest.pid), frequency_hz=HZ) as recording:
            liar.go()
            honest.go()
            wait_for(lambda: recording.wait(0) == "targets-exited", "the end of both")
        assert liar.truth() == {}
    samples = spinning(recording.profile)
    assert_only(Counter(chain for sample, chain in samples if sample.pid == honest.pid), [("plain", "in_plain")])
    of_liar = [sample for sample in samples_of(recording.profile) if sample.pid == liar.pid]
    lying = [sample for sample in of_liar if chain_of(sample)[-1:] == ("spin",)]
    assert len(lying) > 300
    assert {bool(sample.flags & SampleFlag.PYTHON_CUT) for sample in lying} == {is_cut}
    assert max(len(frame.name) for sample in of_liar for frame in sample.frames) < 10_000
    assert max(len(sample.frames) for sample in of_liar) < 1_000


#: Megabytes: what may be kept of one process's code, with what is read at a time and the samples.
ROOM_MB: Final = 96


def test_a_process_with_more_code_than_its_share_takes_no_names_from_others(python_3_11: Path) -> None:
    before_mb = resident_mb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
    with Program(python_3_11, LIES, "long_tables") as liar, Program(python_3_11, SOURCE, "plain") as honest:
        profile = record_both(liar, honest)
    assert resident_mb("VmHWM") - before_mb < ROOM_MB
    assert_names_are_missing_in(liar, profile)
    assert "Python functions without names in 1 process: more code than one may have kept" in notes(profile)


def test_a_process_whose_memory_never_answers_takes_no_names_from_others(python_3_11: Path, tmp_path: Path) -> None:
    with silent_file(tmp_path) as silent:
        lies = Program(python_3_11, LIES, "silent_name", silent.path)
        with lies as liar, Program(python_3_11, SOURCE, "plain") as honest:
            profile = record_both(liar, honest)
        assert silent.readers.is_set()
    assert_names_are_missing_in(liar, profile)
    (note,) = [note for note in notes(profile) if "Python" in note]
    assert note == "Python frames or their names are missing in 1 process: code objects took too long to read"


def record_both(liar: Program, honest: Program) -> Profile:
    """Checks that the honest one has all its names."""
    with recorder(pids=(liar.pid, honest.pid), frequency_hz=HZ) as recording:
        liar.go()
        honest.go()
        wait_for(lambda: recording.wait(0) == "targets-exited", "the end of both")
    assert liar.truth() == {}
    found = Counter(chain for sample, chain in spinning(recording.profile) if sample.pid == honest.pid)
    assert_only(found, [("plain", "in_plain")])
    return recording.profile


def assert_names_are_missing_in(liar: Program, profile: Profile) -> None:
    missing = Counter(sample.pid for sample in samples_of(profile) if MISSING in sample.names)
    assert missing[liar.pid] > 50
    assert missing.total() - missing[liar.pid] < 10  # at the beginning


def resident_mb(which: str) -> int:
    """Of this process, which records: now (`VmRSS`), or at most (`VmHWM`)."""
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(rf"^{which}:\s+(\d+) kB", status, re.MULTILINE)
    return int(kilobytes) // 1024


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.8"])
def test_a_python_that_is_too_old_is_named_and_keeps_its_native_stacks(version: str) -> None:
    with Program(find_version(version), SOURCES / "python_old.py") as program:
        profile = record_whole(program, frequency_hz=HZ)
    assert [note for note in notes(profile) if "Python" in note] == [
        f"no Python frames in 1 process: CPython {version} is older than 3.9, the first one whose layout is known"
    ]
    samples = samples_of(profile)
    assert not [sample for sample in samples if sample.flags & SampleFlag.PYTHON]
    ends = count_ends(profile.samples_of(profile.events[0]))
    assert ends[COMPLETE] >= (1 - RARE) * sum(ends.values())
    assert len([sample for sample in samples if "builtin_sum" in sample.names]) > 50


def test_a_python_whose_evaluation_loop_has_no_name_is_named(tmp_path: Path) -> None:
    whole, stripped = build("nameless_interpreter.c", *FREESTANDING), tmp_path / "stripped"
    subprocess.run([require("strip"), whole, "-o", stripped], check=True)
    with Program("sh", "-c", f"echo ready; read go; exec {stripped}") as program:
        profile = record_some(200, program, frequency_hz=HZ)
    why = "CPython 3.13.7 does not say where its evaluation loop is: its file has no symbol of it"
    assert [note for note in notes(profile) if "Python" in note] == [f"no Python frames in 1 process: {why}"]


def test_what_a_lie_does_not_touch_is_right(python_3_11: Path) -> None:
    with Program(python_3_11, LIES, "cyclic_threads") as program:
        profile = record_whole(program, frequency_hz=HZ)
    assert_only(chains(profile), [("cyclic_threads", "lie")])
