"""Stacks reach their root whatever programs were built with, and say so where they do not."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Final

import pytest

from stackhound.profile.schema import USER_ENDS, SampleFlag
from support_kernels import needs
from support_profiles import Sample, count, samples_of, where
from support_recordings import record_running, record_some, record_whole, recorder, wait_for_samples
from support_workloads import FOR_EVER, LIBRARY, Program, build, require

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.ebpf

NO_FRAME_POINTERS: Final = ("-fomit-frame-pointer", "-momit-leaf-frame-pointer")
NO_TABLES: Final = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-g0")  # -g would make .debug_frame
DEPTH: Final = 40


def end_of(sample: Sample) -> str:
    return USER_ENDS[(sample.flags & SampleFlag.USER_END) >> 8]


def is_complete(sample: Sample) -> bool:
    return end_of(sample) == "complete" and not sample.flags & SampleFlag.USER_FRAME_POINTERS


def ends(samples: list[Sample]) -> dict[str, int]:
    return {name: found for name in USER_ENDS if (found := sum(end_of(sample) == name for sample in samples))}


@pytest.fixture(autouse=True, scope="module")
def walker() -> None:
    needs("bpf_loop")


@pytest.fixture(scope="module")
def callers() -> list[Sample]:
    with Program(build("callers.c", *NO_FRAME_POINTERS, "-pthread"), "1800") as program:
        return where(samples_of(record_whole(program, frequency_hz=999)), lambda sample: "work" in sample.names)


def user_names(sample: Sample) -> tuple[str, ...]:
    return tuple(frame.name for frame in sample.frames if frame.kind == "user")


def between(sample: Sample, first: str, last: str) -> tuple[str, ...]:
    """The frames from one function to another."""
    names = sample.names
    return names[names.index(first) : names.index(last) + 1]


@pytest.mark.kernel_guest
def test_every_stack_reaches_the_start_of_its_thread(callers: list[Sample]) -> None:
    assert count(where(callers, is_complete)) == count(callers), ends(callers)
    roots = {sample.names[0] for sample in callers}
    assert "_start" in roots
    assert all(root == "_start" or root.startswith(("clone", "__clone")) for root in roots), roots


@pytest.mark.kernel_guest
def test_no_frame_of_a_deep_recursion_is_missing(callers: list[Sample]) -> None:
    for sample in where(callers, lambda sample: "descend" in sample.names):
        assert between(sample, "main", "work") == ("main", *["descend"] * (DEPTH + 1), "work")


def test_what_the_c_library_calls_back_has_its_callers(callers: list[Sample]) -> None:
    for sample in where(callers, lambda sample: "compare" in sample.names):
        assert sample.names.index("main") < sample.names.index("sort_numbers") < sample.names.index("compare")
        assert "qsort" in " ".join(between(sample, "sort_numbers", "compare"))


@pytest.mark.kernel_guest
@pytest.mark.parametrize("caller", ["interrupt", "interrupt_elsewhere"])
def test_a_signal_handler_stands_on_what_it_interrupted(callers: list[Sample], caller: str) -> None:
    for sample in where(callers, lambda sample: {"on_signal", caller} <= set(sample.names)):
        path = between(sample, caller, "work")
        assert sample.names.index("main") < sample.names.index(caller)
        assert "raise" in " ".join(path) or "pthread_kill" in " ".join(path), path
        assert path[-2] == "on_signal"


def test_a_function_that_aligns_its_stack_has_its_caller(callers: list[Sample]) -> None:
    for sample in where(callers, lambda sample: "align" in sample.names):
        assert between(sample, "main", "work") == ("main", "align", "work")


def test_frame_pointers_alone_lose_these_callers() -> None:
    with Program(build("callers.c", *NO_FRAME_POINTERS, "-pthread"), "1000") as program:
        samples = samples_of(record_whole(program, frequency_hz=999, unwind=False))
    working = where(samples, lambda sample: "work" in sample.names)
    assert not any(is_complete(sample) for sample in working)
    assert count(sample for sample in working if "main" in sample.names) < 0.5 * count(working)


def test_code_that_says_nothing_of_itself_is_walked_by_frame_pointers_and_marked() -> None:
    with Program(build("deep.c", *NO_TABLES), "10") as program:
        samples = samples_of(record_some(100, program, frequency_hz=999, lines=False))
    digging = where(samples, lambda sample: sample.leaf == "dig")
    for sample in digging:
        assert sample.flags & SampleFlag.USER_FRAME_POINTERS
        assert sample.names.count("dig") >= 10
    assert not any(is_complete(sample) for sample in digging)


def test_where_frame_pointers_lead_nowhere_the_stack_says_why_it_ends() -> None:
    flags = (*NO_FRAME_POINTERS, *NO_TABLES)
    with Program(build("deep.c", *flags), "10") as program:
        samples = samples_of(record_some(100, program, frequency_hz=999, lines=False))
    digging = where(samples, lambda sample: sample.leaf == "dig")
    assert {end_of(sample) for sample in digging} <= {"no rule", "outside code"}


def test_a_library_that_is_loaded_later_has_its_callers(tmp_path: Path) -> None:
    library = build("plugin.c", *LIBRARY, *NO_FRAME_POINTERS, "-DWORK=plug")
    copy = shutil.copy(library, tmp_path / "late.so")
    with Program(build("loader.c", *NO_FRAME_POINTERS, "-ldl"), "300", f"{copy}:plug") as program:
        samples = samples_of(record_some(600, program, frequency_hz=999))
    plugged = where(samples, lambda sample: "plug" in sample.names)
    whole = [sample for sample in plugged if is_complete(sample) and "run_plugin" in sample.names]
    assert count(whole) > 0.7 * count(plugged), ends(plugged)


def test_a_program_that_runs_already_is_unwound_in_a_recording_of_the_system() -> None:
    with Program(build("callers.c", *NO_FRAME_POINTERS, "-pthread"), FOR_EVER) as program:
        program.go()
        samples = samples_of(record_running(program.pid, 1.0, frequency_hz=999))
    own = where(samples, lambda sample: sample.pid == program.pid)
    assert count(where(own, is_complete)) > 0.7 * count(own), ends(own)


def test_the_distributions_python_shows_all_its_native_frames() -> None:
    python = require("/usr/bin/python3")
    script = "print('ready', flush=True); input()\nwhile True: sorted(range(1000))"
    with Program(python, "-c", script) as program:
        samples = samples_of(record_some(300, program, frequency_hz=999))
    whole = where(samples, is_complete)
    assert count(whole) > 0.9 * count(samples), ends(samples)
    assert all(sample.names[0] == "_start" for sample in whole)


def test_a_program_that_becomes_another_is_unwound_as_the_new_one() -> None:
    program = build("callers.c", *NO_FRAME_POINTERS, "-pthread")
    with Program("sh", "-c", f"echo ready; read go; exec {program} {FOR_EVER}") as shell:
        with recorder(pids=(shell.pid,), frequency_hz=999) as recording:
            shell.go()
            shell.go()  # the new program's
            wait_for_samples(recording, 500)
        samples = samples_of(recording.profile)
    working = where(samples, lambda sample: sample.comm == "callers")
    assert count(where(working, is_complete)) > 0.7 * count(working), ends(working)
    for sample in where(working, is_complete):
        assert sample.names[0] in ("_start", "_dl_start_user"), sample.names


@pytest.mark.kernel_guest
def test_programs_that_live_for_milliseconds_are_unwound() -> None:
    """They are gone before user space has told the kernel of their mappings; their files it knows."""
    brief = build("brief.c", *NO_FRAME_POINTERS)
    with Program(build("storm.c"), "exec", "400", "50", str(brief)) as program:
        samples = samples_of(record_whole(program, frequency_hz=999))
    working = where(samples, lambda sample: "brief_work" in sample.names)
    assert count(working) > 400
    later = working[len(working) // 4 :]  # the files are new to it at first
    assert count(where(later, is_complete)) > 0.95 * count(later), ends(later)
    for sample in where(later, is_complete):
        assert sample.names[0] == "_start"
        assert between(sample, "main", "brief_work") == ("main", "call_brief_work", "brief_work")


def test_a_return_address_that_is_in_a_register_is_followed() -> None:
    with Program(build("parent.c", *NO_FRAME_POINTERS), "800") as program:
        samples = samples_of(record_whole(program, frequency_hz=1999))
    starting = where(samples, lambda sample: any("vfork" in name for name in user_names(sample)))
    assert count(starting) > 50
    assert count(where(starting, is_complete)) > 0.95 * count(starting), ends(starting)
    for sample in where(starting, is_complete):
        assert between(sample, "main", "start_children") == ("main", "call_start_children", "start_children")


@pytest.mark.kernel_guest
def test_children_that_only_fork_have_their_parents_tables() -> None:
    with Program(build("family.c"), "400") as program:
        samples = samples_of(record_whole(program, frequency_hz=999))
    children = where(samples, lambda sample: sample.pid != program.pid)
    assert count(where(children, is_complete)) > 0.9 * count(children), ends(children)


THREADS = """
import threading, time
print("ready", flush=True)
input()
while True:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
"""


def test_a_thread_at_its_end_has_no_user_stack_and_says_so() -> None:
    """In the kernel's do_exit() its memory is given back before the rest is."""
    with Program(sys.executable, "-S", "-c", THREADS) as program:
        samples = samples_of(record_some(4000, program, frequency_hz=4999))
    at_end = where(samples, lambda sample: end_of(sample) == "thread was ending")
    assert all(frame.kind == "kernel" for sample in at_end for frame in sample.frames)
    assert not [sample.names for sample in at_end if "do_exit" not in sample.names]
    unreadable = [sample for sample in samples if end_of(sample) == "stack unreadable"]
    assert len(unreadable) < 0.2 * len(at_end)  # of new threads, whose stack is not there yet


def test_threads_that_outlive_the_first_one_are_unwound() -> None:
    with Program(build("orphans.c", *NO_FRAME_POINTERS, "-pthread")) as program:
        samples = samples_of(record_some(3000, program, frequency_hz=999))  # longer than the ended are remembered
    last = [sample for sample in samples if "work_on" in sample.names][-500:]
    assert count(where(last, is_complete)) == count(last), ends(last)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "stackhound" / "unwind"


def record_python() -> list[Sample]:
    with Program(require("/usr/bin/python3"), "-c", "print('ready', flush=True); input()\nwhile True: pass") as program:
        return samples_of(record_some(100, program, frequency_hz=999))


def test_a_large_programs_table_is_kept_on_disk(own_cache: Path) -> None:
    record_python()
    kept = {path.name: path.stat().st_ino for path in own_cache.iterdir()}
    assert kept
    samples = record_python()
    assert count(where(samples, is_complete)) > 0.9 * count(samples)
    assert {path.name: path.stat().st_ino for path in own_cache.iterdir()} == kept, "made again"


@pytest.mark.parametrize(
    "damage", [lambda path: os.truncate(path, 100), lambda path: path.write_bytes(os.urandom(5000))]
)
def test_a_damaged_table_on_disk_is_made_again(own_cache: Path, damage: Callable[[Path], object]) -> None:
    record_python()
    sizes = {path: path.stat().st_size for path in own_cache.iterdir()}
    for path in sizes:
        damage(path)
    samples = record_python()
    assert count(where(samples, is_complete)) > 0.9 * count(samples)
    assert {path: path.stat().st_size for path in own_cache.iterdir()} == sizes


def test_the_profile_counts_how_stacks_ended() -> None:
    with Program(build("callers.c", *NO_FRAME_POINTERS, "-pthread"), "600") as program:
        profile = record_whole(program, frequency_hz=999)
    counted = profile.metadata["counters"]["user_ends"]
    found = [sum(end_of(sample) == name for sample in samples_of(profile)) for name in USER_ENDS]
    assert counted[: len(USER_ENDS)] == found
