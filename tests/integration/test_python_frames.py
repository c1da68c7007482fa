"""Python's frames in samples: each where it runs, between the native frames that called it and those that it calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from stackhound.profile.schema import SampleFlag
from support_interpreters import Interpreter, interpreters
from support_profiles import Sample, samples_of
from support_recordings import record_whole
from support_workloads import SOURCES, Program

if TYPE_CHECKING:
    from stackhound import Profile

pytestmark = pytest.mark.ebpf

SOURCE: Final = SOURCES / "python_frames.py"
TURNS: Final = "12"

#: Python's functions in each way of the workload, from the root on. `qualified`, where a code object knows it.
CHAINS: Final = {
    "plain": ["plain", "spin"],
    "called_back": ["called_back", "called_back.<locals>.<lambda>", "spin"],
    "generator": ["generator", "generate", "spin"],
    "method": ["method", "Ünïcode.mäße", "spin"],
    "deep": ["deep", *["recurse"] * 301, "spin"],
    "executed": ["executed", "from_text", "spin"],
    "interrupted": ["interrupted", "interrupted.<locals>.<lambda>", "spin"],
    "without_lock": ["without_lock"],
}
ROOT: Final = ["<module>", "main", "work"]


@pytest.fixture(params=interpreters(), scope="module")
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    interpreter: Interpreter = request.param
    return interpreter


@pytest.fixture(scope="module")
def recording(interpreter: Interpreter) -> tuple[Profile, dict[str, int]]:
    with Program(interpreter.path, SOURCE, TURNS) as program:
        profile = record_whole(program, frequency_hz=999)
        return profile, program.truth()


@pytest.fixture(scope="module")
def samples(recording: tuple[Profile, dict[str, int]]) -> list[Sample]:
    return samples_of(recording[0])


def python_names(sample: Sample) -> list[str]:
    """Names of Python's functions of the workload, from the root on, without their module."""
    frames = (frame for frame in sample.frames if frame.kind == "python")
    return [frame.name.removeprefix("python_frames.") for frame in frames]


def way_of(sample: Sample) -> str:
    names = python_names(sample)
    return next((name for name in names if name in CHAINS), "")


def test_nearly_every_sample_has_its_python_frames(samples: list[Sample]) -> None:
    whole = [sample for sample in samples if sample.flags & SampleFlag.PYTHON]
    odd = [sample for sample in whole if sample.flags & (SampleFlag.PYTHON_CUT | SampleFlag.PYTHON_GUESSED)]
    assert len(whole) > 0.98 * len(samples)
    not_deep = [sample for sample in odd if "recurse" not in python_names(sample)]
    assert len(not_deep) < 0.01 * len(samples)


def test_functions_are_called_by_those_that_call_them(samples: list[Sample], interpreter: Interpreter) -> None:
    wrong = []
    for sample in samples:
        way = way_of(sample)
        if not way or way == "deep" or sample.flags & (SampleFlag.PYTHON_CUT | SampleFlag.PYTHON_GUESSED):
            continue
        expected = ROOT + (CHAINS[way] if interpreter.minor >= 11 else unqualified(CHAINS[way]))
        names = python_names(sample)
        if names != expected[: len(names)]:
            wrong.append(names)
    assert len(wrong) <= 0.005 * len(samples), wrong[:3]


def unqualified(names: list[str]) -> list[str]:
    """Before 3.11 code objects do not know where they were defined."""
    return [name.rpartition(".")[2] for name in names]


@pytest.mark.parametrize("way", CHAINS)
def test_each_way_has_its_share(way: str, recording: tuple[Profile, dict[str, int]], samples: list[Sample]) -> None:
    truth = recording[1]
    main_thread = [sample for sample in samples if sample.tid == sample.pid]
    expected = truth[way] / sum(truth.values())
    found = sum(way in python_names(sample) for sample in main_thread) / len(main_thread)
    assert abs(found - expected) < 0.05 or way == "deep"


def test_native_frames_stand_between_pythons(samples: list[Sample], interpreter: Interpreter) -> None:
    callback = "called_back.<locals>.<lambda>" if interpreter.minor >= 11 else "<lambda>"
    checked = 0
    for sample in samples:
        names = [frame.name.removeprefix("python_frames.") for frame in sample.frames]
        if "called_back" in names and callback in names and not sample.flags & SampleFlag.PYTHON_GUESSED:
            between = names[names.index("called_back") + 1 : names.index(callback)]
            kinds = {frame.kind for frame in sample.frames if frame.name in between}
            assert between, names
            assert kinds == {"user"}, names
            checked += 1
    assert checked > 20


def test_a_source_line_is_the_one_that_runs(samples: list[Sample]) -> None:
    line = next(at for at, text in enumerate(SOURCE.read_text().splitlines(), 1) if "# line: spin" in text)
    spins = [frame for sample in samples for frame in sample.frames if frame.name == "python_frames.spin"]
    assert {frame.file for frame in spins} == {str(SOURCE)}
    assert {frame.line for frame in spins} <= set(range(line - 4, line + 1))
    assert sum(frame.line == line for frame in spins) > 0.5 * len(spins)


def test_threads_that_gave_the_lock_away_keep_their_frames(samples: list[Sample], interpreter: Interpreter) -> None:
    flags = [sample.flags for sample in samples if python_names(sample)[-1:] == ["without_lock"]]
    assert flags
    if not interpreter.version.endswith("t"):
        known = [one & SampleFlag.GIL_HELD for one in flags if one & SampleFlag.GIL_KNOWN]
        assert len(known) == len(flags)
        assert sum(not held for held in known) > 0.5 * len(known)


def test_a_thread_that_computes_holds_the_lock(samples: list[Sample], interpreter: Interpreter) -> None:
    if interpreter.version.endswith("t"):
        pytest.skip("a free-threaded build has no lock")
    computing = [sample.flags for sample in samples if python_names(sample)[-1:] == ["spin"]]
    assert sum(flags & SampleFlag.GIL_HELD != 0 for flags in computing) > 0.8 * len(computing)


def test_deep_recursion_is_cut_and_says_so(samples: list[Sample]) -> None:
    deep = [sample for sample in samples if python_names(sample)[-1:] == ["spin"] and "recurse" in python_names(sample)]
    assert deep
    assert all(sample.flags & SampleFlag.PYTHON_CUT for sample in deep)


def test_pictures_leave_the_interpreter_out(recording: tuple[Profile, dict[str, int]]) -> None:
    profile = recording[0]
    shown, whole = profile.tree(), profile.show_native_internals().tree()
    evaluation = "_PyEval_EvalFrameDefault"
    assert evaluation in {whole.name(node) for node in range(len(whole))}
    loop = [node for node in range(len(shown)) if shown.name(node).startswith(evaluation)]
    assert shown.total_value[loop].sum() < 0.02 * shown.total_value[0]
    assert shown.total_value[0] == whole.total_value[0]


def test_a_function_hardly_ever_has_the_name_of_one_whose_place_it_took(interpreter: Interpreter) -> None:
    with Program(interpreter.path, SOURCES / "python_renewed.py", "3") as program:
        samples = samples_of(record_whole(program, frequency_hz=2999))
    named = re.compile(r"(?:\w+\.)?(f\d+)")
    told = [
        (sample.comm, {match[1] for frame in sample.frames if (match := named.fullmatch(frame.name))})
        for sample in samples
        if re.fullmatch(r"f\d+", sample.comm)
    ]
    assert len({comm for comm, _ in told}) > 500, "functions that were sampled"
    wrong = [(comm, names) for comm, names in told if names - {comm}]
    assert len(wrong) < 0.001 * len(told), wrong[:3]  # 16 bits tell them apart, and one of 65,536 has the same
    assert sum(comm in names for comm, names in told) > 0.2 * len(told)
