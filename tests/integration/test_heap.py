"""Allocations: how many, of how many bytes, by whom, and what of it is in use at the end."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from stackhound.profile import load
from stackhound.profile.allocations import pprof_values
from stackhound.profile.totals import exact_total, exact_totals
from support_kernels import needs
from support_profiles import DEVIATIONS, assert_accounted_for, samples_of
from support_recordings import STACKHOUND, record_whole, run_stackhound
from support_workloads import HANG_S, Program, build, line_of, require

if TYPE_CHECKING:
    from stackhound import Profile

pytestmark = pytest.mark.ebpf

#: 20,000 samples of 20 MB.
INTERVAL_BYTES: Final = 1024
#: How far what is estimated may be from the truth.
TOLERANCE: Final = 0.03


class Memory(NamedTuple):
    alloc_objects: int
    alloc_bytes: int
    inuse_objects: int
    inuse_bytes: int


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    needs("functions of programs")
    monkeypatch.chdir(tmp_path)
    for name in ("SUDO_UID", "SUDO_GID", "SUDO_USER", "LD_PRELOAD"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def record(*command: str | Path, options: tuple[str, ...] = (), status: int = 0) -> tuple[Profile, dict[str, int]]:
    """A command from its beginning to its end, and what it says of itself."""
    recorder = (*STACKHOUND, "record", "-e", "heap", "--heap-interval", str(INTERVAL_BYTES), "--ring-size", "16M")
    done = subprocess.run(
        [*recorder, *options, "--", *command], input=b"\n", capture_output=True, timeout=HANG_S, check=False
    )
    assert done.returncode == status, done.stderr.decode()
    profile = load("stackhound.hound")
    assert_accounted_for(profile)
    lines = [line.split() for line in done.stdout.decode().splitlines()]
    return profile, {words[0]: int(words[1]) for words in lines if len(words) == 2}


def by_leaf(profile: Profile) -> dict[str, Memory]:
    """What each function asked for."""
    shown = profile.shown
    event = shown.event("heap")
    values = zip(*(column.tolist() for column in pprof_values(shown, event)), strict=True)
    found: dict[str, Memory] = {}
    for sample, row in zip(samples_of(shown), values, strict=True):
        before = found.get(sample.leaf, Memory(0, 0, 0, 0))
        found[sample.leaf] = Memory(*(one + more for one, more in zip(before, row, strict=True)))
    return found


def assert_near(found: int, truth: int, size: int) -> None:
    """Within 3%, or what chance may do to as many samples as so many bytes make, in allocations of this size."""
    samples = max(1.0, truth / max(size, INTERVAL_BYTES))
    assert abs(found - truth) <= max(TOLERANCE, DEVIATIONS / samples**0.5) * truth, (found, truth)


#: By site: the function that allocates, and how large its allocations are on average.
SITES: Final = {
    "keep_small": ("keep_small", 100),
    "keep_half": ("keep_half", 1_000_000),
    "keep_none": ("keep_none", 100),
    "grow": ("grow", 1_500_000),
    "keep_in_thread": ("keep_in_thread", 64_000),
    "keep_in_child": ("keep_in_child", 1_000_000),
}


def test_every_functions_memory_is_known() -> None:
    profile, truth = record(build("heap.c", "-pthread"), *SITES)
    assert_known(profile, truth, *SITES)
    found = by_leaf(profile)
    for site, (function, size) in SITES.items():
        memory = found[function]
        assert_near(memory.alloc_objects * size, truth[f"{site}_count"] * size, size)
        assert_near(memory.inuse_objects * size, truth[f"{site}_kept"] * size, size)


@pytest.mark.kernel_guest
def test_all_allocations_are_counted_chosen_or_not() -> None:
    sites = ("keep_none", "keep_in_thread")
    profile, truth = record(build("heap.c", "-pthread"), *sites, options=("--heap-interval", "1M"))
    event = profile.event("heap")
    asked = truth["keep_none_bytes"] + truth["keep_in_thread_bytes"]
    total = exact_total(profile, event)
    assert total is not None
    assert asked <= total <= asked + 200_000  # the C library's own
    (pid,) = exact_totals(profile, event)
    assert exact_totals(profile, event)[pid] == total
    (allocations,), (size,) = (profile.column("heap_totals", name) for name in ("allocations", "bytes"))
    counted = truth["keep_none_count"] + truth["keep_in_thread_count"]
    assert size == total
    assert counted <= allocations <= counted + 100


def test_a_stack_leads_to_the_line_that_asked_for_memory() -> None:
    profile, _ = record(build("heap.c", "-pthread"), "keep_small", "grow")
    for sample in samples_of(profile.shown):
        if sample.leaf in ("keep_small", "grow"):
            assert sample.names[-2:] in (("main", sample.leaf), ("work_at", sample.leaf))
            assert sample.frames[-1].line == line_of("heap.c", sample.leaf)


def test_memory_of_a_fork_belongs_to_the_process_that_asked_for_it() -> None:
    profile, truth = record(build("heap.c", "-pthread"), "keep_small", "keep_in_child")
    pids = {sample.leaf: sample.pid for sample in samples_of(profile.shown)}
    assert pids["keep_small"] != pids["keep_in_child"]
    found = by_leaf(profile)
    assert_near(found["keep_small"].inuse_bytes, truth["keep_small_kept_bytes"], 100)  # though the child freed its copy
    assert {loss.cause: loss.count for loss in profile.losses}["free without allocation"] == 0


def allocator_flags(name: str) -> tuple[str, ...]:
    """To compile the workload with another allocator than glibc's; skips where it is not installed."""
    if name == "musl":
        specs = Path(f"/usr/lib/{platform.machine()}-linux-musl/musl-gcc.specs")
        flags = (f"-specs={specs}",)
    else:
        specs = Path(f"/usr/lib/{platform.machine()}-linux-gnu", name)
        flags = ("-Wl,--no-as-needed", str(specs))
    if not specs.exists():
        pytest.skip(f"needs {specs}")
    return flags


def assert_known(profile: Profile, truth: dict[str, int], *sites: str) -> None:
    found = by_leaf(profile)
    for site in sites:
        function, size = SITES[site]
        assert_near(found[function].alloc_bytes, truth[f"{site}_bytes"], size)
        assert_near(found[function].inuse_bytes, truth[f"{site}_kept_bytes"], size)


OTHER_ALLOCATORS: Final = pytest.mark.parametrize("allocator", ["libjemalloc.so.2", "libmimalloc.so.2", "musl"])


@OTHER_ALLOCATORS
def test_other_allocators_are_followed_from_inside(allocator: str) -> None:
    profile, truth = record(build("heap.c", "-pthread", *allocator_flags(allocator)), *SITES)
    assert_known(profile, truth, *SITES)


def test_operator_new_belongs_to_its_caller() -> None:
    require("g++")
    profile, truth = record(build("heap_new.cpp"), "20000")
    found = by_leaf(profile)["make_one()"]
    assert_near(found.alloc_bytes, truth["bytes"], 1000)
    assert_near(found.inuse_bytes, truth["kept_bytes"], 1000)


PYTHON: Final = """
kept = []
import time
time.sleep(0.5)  # until its interpreter has been found
def keep():
    kept.append(bytearray(1_000_000))
def drop():
    bytearray(1_000_000)
for _ in range(100):
    keep()
    drop()
import os
os._exit(0)
"""


def test_memory_of_python_belongs_to_pythons_functions() -> None:
    profile, _ = record(sys.executable, "-c", PYTHON)
    kept = {"keep": 0, "drop": 0}
    shown = profile.shown
    in_use = pprof_values(shown, shown.event("heap"))[3].tolist()
    for sample, live in zip(samples_of(shown), in_use, strict=True):
        names = {name.rpartition(".")[2] for name in sample.names}
        for function in kept:
            kept[function] += live * (function in names)
    assert_near(kept["keep"], 100_000_000, 1_000_000)
    assert kept["drop"] == 0
    assert exact_total(profile, profile.event("heap"))  # though it ended by _exit


def test_a_program_that_ends_in_the_middle_has_no_exact_total() -> None:
    profile, _ = record("sh", "-c", f"echo | {build('heap.c', '-pthread')} keep_small; kill -9 $$", status=137)
    assert by_leaf(profile)["keep_small"].inuse_bytes > 0
    assert exact_total(profile, profile.event("heap")) is None


def test_programs_that_a_command_starts_are_followed_unless_told_otherwise() -> None:
    workload = f"echo | {build('heap.c', '-pthread')} keep_small"
    profile, _ = record("sh", "-c", f"{workload}; true")
    assert "keep_small" in by_leaf(profile)
    profile, _ = record("sh", "-c", f"{workload}; true", options=("--no-inherit",))
    assert "keep_small" not in by_leaf(profile)


def test_a_program_that_closes_what_it_does_not_know_is_recorded_all_the_same() -> None:
    code = "import os; os.closerange(3, 1024); kept = [bytearray(100_000) for _ in range(1000)]"
    profile, _ = record(sys.executable, "-c", code)
    assert sum(memory.inuse_bytes + memory.alloc_bytes for memory in by_leaf(profile).values()) > 90_000_000


def test_the_end_of_a_recording_says_what_is_in_use() -> None:
    done = run_stackhound("record", "-e", "heap", "--", "sh", "-c", f"echo | {build('heap.c', '-pthread')} keep_half")
    text = done.stderr.decode()
    assert done.returncode == 0
    assert "in use at the end: " in text
    assert "keep_half ← " in text


def test_the_recording_is_read_by_others(directory: Path) -> None:
    record(build("heap.c", "-pthread"), "keep_half")
    for name in ("x.dhat.json", "x.pb.gz", "x.folded", "x.svg", "x.html", "x.jsonl"):
        assert run_stackhound("export", "-o", name).returncode == 0
    document = json.loads((directory / "x.dhat.json").read_text())
    assert "keep_half" in " ".join(document["ftbl"])


def test_a_program_that_frees_what_is_none_ends_as_it_would() -> None:
    code = "import ctypes; ctypes.CDLL(None).free(ctypes.c_void_p(id(code := object()) + 4))"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert plain.returncode < 0
    record(sys.executable, "-c", code, status=128 - plain.returncode)


#: Sites of one process.
WATCHED: Final = ("keep_small", "keep_half", "keep_none", "grow", "keep_in_thread")


# --- Programs as they are ---------------------------------------------------------------------------------------------


def watch(*sites: str, flags: tuple[str, ...] = (), **options: Any) -> tuple[Profile, dict[str, int]]:
    """The workload as a process that runs already."""
    options = {"heap_interval_bytes": INTERVAL_BYTES, "heap_max_slowdown_percent": 100, "ring_bytes": 2**24} | options
    with Program(build("heap.c", "-pthread", *flags), *sites) as program:
        profile = record_whole(program, events=("heap",), **options)
        truth = program.truth()
    assert_accounted_for(profile)
    return profile, truth


def test_a_process_that_runs_already_is_watched() -> None:
    profile, truth = watch(*WATCHED)
    assert_known(profile, truth, *WATCHED)


@OTHER_ALLOCATORS
def test_other_allocators_are_watched_from_outside(allocator: str) -> None:
    profile, truth = watch(*WATCHED, flags=allocator_flags(allocator))
    assert_known(profile, truth, *WATCHED)


def test_memory_that_a_program_maps_itself_is_watched() -> None:
    profile, truth = watch("map_half", "grow_mapping")
    found = by_leaf(profile)
    for site in ("map_half", "grow_mapping"):
        assert_near(found[site].alloc_bytes, truth[f"{site}_bytes"], 2**20)
        assert_near(found[site].inuse_bytes, truth[f"{site}_kept_bytes"], 2**20)


def test_the_real_cost_of_watching_is_said() -> None:
    profile, _ = watch("keep_small")
    (note,) = [note for note in profile.metadata["notes"] if "were watched" in note]
    assert re.fullmatch(r"allocations were watched [\d.]+% of the time, by uprobes: \d+ traps of .*", note)


def test_what_is_allocated_while_nobody_looks_is_not_made_up() -> None:
    profile, truth = watch("keep_none", "keep_small", "keep_none", heap_max_slowdown_percent=0.1)
    memory = by_leaf(profile)
    assert sum(one.alloc_bytes for one in memory.values()) < truth["keep_small_bytes"]
    (note,) = [note for note in profile.metadata["notes"] if "were watched" in note]
    watched = re.search(r"watched ([\d.]+)%", note)
    assert watched
    assert float(watched[1]) < 100
    fates = set(profile.texts("heap", "fate")) if "heap" in profile.tables else set()
    assert fates <= {"freed", "unknown"}


def test_a_command_is_watched_as_it_is_on_demand() -> None:
    workload = f"(sleep 1; echo) | {build('heap.c', '-pthread')} keep_half"
    options = ("--heap-uprobes", "--heap-max-slowdown", "100")
    profile, truth = record("sh", "-c", workload, options=options)
    found = by_leaf(profile)["keep_half"]
    assert_near(found.alloc_bytes, truth["keep_half_bytes"], 1_000_000)
    assert_near(found.inuse_bytes, truth["keep_half_kept_bytes"], 1_000_000)


@pytest.mark.parametrize("flags", [(), ("libjemalloc.so.2",), ("musl",), ("-static",)])
def test_a_command_is_watched_from_its_first_instruction_on(flags: tuple[str, ...]) -> None:
    """It allocates at once, before any process could be looked at."""
    if flags and not flags[0].startswith("-"):
        flags = allocator_flags(flags[0])
    options = ("--heap-uprobes", "--heap-max-slowdown", "100")
    profile, truth = record(build("heap.c", "-pthread", *flags), "keep_half", options=options)
    event = profile.event("heap")
    assert_near(int(pprof_values(profile, event)[1].sum()), truth["keep_half_bytes"], 1_000_000)


def test_a_program_that_the_library_cannot_reach_is_watched_instead() -> None:
    profile, _ = record(build("heap.c", "-pthread", "-static"), "keep_half")
    assert any("statically" in note for note in profile.metadata["notes"])
    assert any("were watched" in note for note in profile.metadata["notes"])


def test_a_program_without_an_allocator_has_no_samples() -> None:
    with Program(build("busy.c"), "100") as program:
        profile = record_whole(program, events=("heap", "cpu"))
    assert by_leaf_of_heap(profile) == []


def by_leaf_of_heap(profile: Profile) -> list[str]:
    return [sample.leaf for sample in samples_of(profile) if sample.event == "heap"]


def test_allocations_of_the_whole_machine_are_not_for_the_asking() -> None:
    done = run_stackhound("record", "-e", "heap", "-d", "1")
    assert done.returncode == 2
    assert "-p PID" in done.stderr.decode()
