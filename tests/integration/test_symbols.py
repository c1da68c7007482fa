"""Addresses become names: from symbol tables, debug files near and far, perf maps, the vDSO and the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support_profiles import Sample, assert_every_miss_has_one_reason, count, misses, samples_of, where
from support_recordings import record_some
from support_workloads import FOR_EVER, LIBRARY, SOURCES, Program, build, line_of, require

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ebpf

SAMPLES = 100
WITH_BUILD_ID = "-Wl,--build-id=sha1"
WITHOUT_BUILD_ID = "-Wl,--build-id=none"


def recorded(program: Program, **options: object) -> list[Sample]:
    profile = record_some(SAMPLES, program, frequency_hz=999, **options)
    assert_every_miss_has_one_reason(profile)
    return samples_of(profile)


def tool(*command: str | Path | bytes) -> bytes:
    require(str(command[0]))
    return subprocess.run(command, check=True, capture_output=True).stdout


def assert_named_with_lines(samples: list[Sample]) -> None:
    churning = where(samples, lambda sample: "churn" in sample.names)
    assert count(churning) >= 0.9 * count(samples), misses(samples)
    inside = where(churning, lambda sample: "stir" in sample.names)
    assert {frame.line for sample in inside for frame in sample.frames if frame.name == "mix"} == {
        line_of("busy.c", "mix")
    }


# Separate debug files


@pytest.fixture
def split(tmp_path: Path) -> tuple[Path, Path]:
    """A stripped program, and what was stripped from it."""
    return strip(build("busy.c", WITH_BUILD_ID), tmp_path)


def strip(whole: Path, directory: Path) -> tuple[Path, Path]:
    stripped, debug = directory / "busy", directory / "busy.debug"
    tool("objcopy", "--only-keep-debug", whole, debug)
    tool("objcopy", "--strip-all", whole, stripped)
    return stripped, debug


def build_id(program: Path) -> str:
    notes = tool("readelf", "--notes", program).decode()
    return notes.partition("Build ID: ")[2].split()[0]


def test_a_stripped_program_has_no_names_and_says_why(split: tuple[Path, Path]) -> None:
    with Program(split[0], FOR_EVER) as program:
        samples = recorded(program)
    own = {reason for (path, reason) in misses(samples) if path == str(split[0])}
    assert own == {"no symbol table"}
    assert count(samples, "[busy]") >= 0.9 * count(samples), "a frame without a name shows its file"


def test_a_debug_file_is_found_by_build_id(split: tuple[Path, Path], tmp_path: Path) -> None:
    stripped, debug = split
    identity = build_id(stripped)
    place = tmp_path / "debug" / ".build-id" / identity[:2] / f"{identity[2:]}.debug"
    place.parent.mkdir(parents=True)
    debug.rename(place)
    with Program(stripped, FOR_EVER) as program:
        assert_named_with_lines(recorded(program, debug_dirs=(tmp_path / "debug",)))


@pytest.mark.parametrize("directory", [".", ".debug"])
def test_a_debug_file_is_found_by_its_link(split: tuple[Path, Path], tmp_path: Path, directory: str) -> None:
    stripped, debug = split
    tool("objcopy", f"--add-gnu-debuglink={debug}", stripped)
    place = tmp_path / directory
    place.mkdir(exist_ok=True)
    debug.rename(place / debug.name)
    with Program(stripped, FOR_EVER) as program:
        assert_named_with_lines(recorded(program))


def test_a_debug_file_of_another_program_is_not_taken(tmp_path: Path) -> None:
    stripped, debug = strip(build("busy.c", WITHOUT_BUILD_ID), tmp_path)
    tool("objcopy", f"--add-gnu-debuglink={debug}", stripped)
    tool("objcopy", "--only-keep-debug", build("shares.c", WITHOUT_BUILD_ID), debug)
    with Program(stripped, FOR_EVER) as program:
        samples = recorded(program)
    assert {reason for (path, reason) in misses(samples) if path == str(stripped)} == {"no symbol table"}


def test_a_compressed_symbol_table_in_the_program_is_read(tmp_path: Path) -> None:
    """As Fedora ships its programs: names, no lines, in the section .gnu_debugdata."""
    stripped, debug = strip(build("busy.c"), tmp_path)
    tool("objcopy", "--strip-debug", debug)
    tool("xz", debug)
    tool("objcopy", f"--add-section=.gnu_debugdata={debug}.xz", stripped)
    with Program(stripped, FOR_EVER) as program:
        samples = recorded(program)
    assert count(samples, "churn") >= 0.9 * count(samples), misses(samples)


def test_debug_information_in_a_package_beside_the_program_is_read(tmp_path: Path) -> None:
    for name in ("busy.c", "workload.h"):
        shutil.copy(SOURCES / name, tmp_path)
    flags = ("-O2", "-gdwarf-4", "-gsplit-dwarf", "-fno-omit-frame-pointer", "-fno-shrink-wrap")
    subprocess.run(["gcc", *flags, "-c", "busy.c"], cwd=tmp_path, check=True)
    subprocess.run(["gcc", "busy.o", "-o", "busy"], cwd=tmp_path, check=True)
    subprocess.run([require("dwp"), "-e", "busy", "-o", "busy.dwp"], cwd=tmp_path, check=True)
    (tmp_path / "busy.dwo").unlink()
    with Program(tmp_path / "busy", FOR_EVER) as program:
        assert_named_with_lines(recorded(program))


# Procedure linkage tables


@pytest.mark.parametrize(
    "flags",
    [("-Wl,-z,lazy",), ("-Wl,-z,now",), ("-Wl,-z,ibtplt", "-fcf-protection=full")],
    ids=["lazy", "now", "landing pads"],
)
def test_an_entry_of_a_linkage_table_is_named_after_what_it_jumps_to(flags: tuple[str, ...]) -> None:
    if "-Wl,-z,ibtplt" in flags and os.uname().machine != "x86_64":
        pytest.skip("needs x86-64, whose landing pads these are")
    with Program(build("linkage.c", "-fno-builtin", *flags), FOR_EVER) as program:
        samples = samples_of(record_some(2000, program, frequency_hz=4999))
    inside = where(samples, lambda sample: sample.leaf == "labs@plt")
    assert all("churn" in sample.names for sample in inside)
    assert not where_named(samples, "_init"), "the symbol before the table is not its name"


def where_named(samples: list[Sample], name: str) -> list[Sample]:
    return [sample for sample in samples if name in sample.names]


# Go


@pytest.mark.parametrize("mode", ["exe", "pie"])
def test_a_stripped_go_program_has_names_lines_and_inlined_functions(tmp_path: Path, mode: str) -> None:
    program = tmp_path / "inlined"
    flags = ("-ldflags=-s -w", f"-buildmode={mode}")
    tool("go", "build", *flags, "-o", program, SOURCES / "inlined.go")
    tool("strip", program)
    assert b".symtab" not in tool("readelf", "-SW", program)
    with Program(program) as running:
        samples = recorded(running)
    own = [frame for sample in samples for frame in sample.frames if frame.path == str(program)]
    assert all(frame.reason is None for frame in own), misses(samples)
    assert count(samples, "main.churn") >= 0.9 * count(samples)
    inside = where(samples, lambda sample: sample.leaf == "main.stir")
    shown = {(frame.name, frame.line, frame.inlined) for sample in inside for frame in sample.frames[-3:]}
    assert shown == {
        ("main.churn", line_of("inlined.go", "churn"), False),
        ("main.mix", line_of("inlined.go", "mix"), True),
        ("main.stir", line_of("inlined.go", "stir"), True),
    }
    assert {Path(frame.file).name for frame in own if frame.name.startswith("main.")} == {"inlined.go"}


# Mangled names


def test_names_of_cpp_are_demangled() -> None:
    with Program(build("mangled.cpp")) as program:
        profile = record_some(SAMPLES, program, frequency_hz=999)
    name = "engine::Piston<double>::stroke(std::vector<int, std::allocator<int> > const&)"
    assert count(samples_of(profile), name) > 0.9 * SAMPLES
    row = profile.column("functions", "name").index(name)
    assert profile.column("functions", "system_name")[row] == "_ZN6engine6PistonIdE6strokeERKSt6vectorIiSaIiEE"


def test_names_of_rust_are_demangled() -> None:
    with Program(build("mangled.rs")) as program:
        samples = recorded(program)
    assert count(samples, "mangled::engine::Piston<f64>::stroke") > 0.9 * SAMPLES, {sample.leaf for sample in samples}


# The vDSO, the kernel, BPF programs


def test_the_clock_is_read_in_the_vdso() -> None:
    with Program(build("clocks.c")) as program:
        samples = recorded(program)
    frames = [frame for sample in samples for frame in sample.frames]
    names = {frame.name for frame in frames if frame.path == "[vdso]" or frame.kind == "kernel"}
    assert any(name.endswith("clock_gettime") for name in names), names
    assert not any("vdso" in path for path, _ in misses(samples))


def test_kernel_functions_have_names() -> None:
    with Program(build("shares.c"), FOR_EVER) as program:
        samples = recorded(program)
    frames = [frame for sample in samples for frame in sample.frames if frame.kind == "kernel"]
    assert frames
    assert all(frame.reason is None for frame in frames)
    assert {"vfs_read", "do_syscall_64"} & {frame.name for frame in frames}


def test_kernel_functions_are_those_of_kallsyms() -> None:
    with Program(build("shares.c"), FOR_EVER) as program:
        profile = record_some(SAMPLES, program, frequency_hz=999)
    lines = (line.split() for line in Path("/proc/kallsyms").read_text().splitlines())
    symbols = {(name, int(address, 16)) for address, _, name, *_ in lines}
    (text,) = (address for name, address in symbols if name == "_stext")
    kernel = profile.texts("objects", "kind").index("kernel")
    functions = [
        (name, text + address)
        for name, address, in_object in zip(
            profile.texts("functions", "system_name"),
            profile.numbers("functions", "address").tolist(),
            profile.numbers("functions", "object"),
            strict=True,
        )
        if in_object == kernel
    ]
    assert len(functions) > 3
    assert set(functions) <= symbols


def test_a_bpf_program_is_named_in_the_kernel_stack_that_runs_it() -> None:
    with Program(build("bpf_program.c")) as program:
        samples = recorded(program)
    inside = where(samples, lambda sample: any(frame.kind == "bpf" for frame in sample.frames))
    assert count(inside) > 0.5 * count(samples), {sample.names for sample in samples}
    names = {frame.name for sample in inside for frame in sample.frames if frame.kind == "bpf"}
    assert any(name.startswith("bpf_prog_") and name.endswith("_circles") for name in names), names
    # Its first instructions have no frame yet: then the caller is missing.
    called = [sample for sample in inside if "bpf_prog_test_run_xdp" in sample.names]
    assert count(called) > 0.9 * count(inside)


# Code made at run time


class Jit:
    """A process that runs code without a file."""

    def __init__(self, program: Program) -> None:
        self.program = program
        _, start, size = program.preface[0].split()
        self.entry = f"{start} {size}"
        self.start = int(start, 16)
        self.map = Path(f"/tmp/perf-{program.pid}.map")

    def assert_named(self, name: str) -> None:
        samples = recorded(self.program)
        made = [frame for sample in samples for frame in sample.frames if frame.kind == "jit"]
        assert {frame.name for frame in made} == {name}, misses(samples)
        assert count(samples, name) > 0.9 * count(samples)

    def assert_unnamed(self) -> None:
        samples = recorded(self.program)
        made = [frame for sample in samples for frame in sample.frames if frame.kind == "jit"]
        assert len(made) > 0.9 * len(samples)
        assert all(frame.reason for frame in made)
        assert len({frame.reason for frame in made}) == 1


@pytest.fixture(params=["private", "shared", "memfd"])
def jit(request: pytest.FixtureRequest) -> Iterator[Jit]:
    with Program(build("jit.c"), request.param) as program:
        jit = Jit(program)
        try:
            yield jit
        finally:
            jit.map.unlink(missing_ok=True)


def test_made_code_is_named_by_its_perf_map(jit: Jit) -> None:
    jit.map.write_text(f"{jit.entry} made_code\n")
    jit.assert_named("made_code")


def test_made_code_without_a_perf_map_says_so(jit: Jit) -> None:
    jit.assert_unnamed()


def test_the_newest_entry_of_a_perf_map_counts(jit: Jit) -> None:
    jit.map.write_text(f"{jit.entry} first\n{jit.start - 16:x} 40 second\n")
    jit.assert_named("second")


def test_torn_lines_in_a_perf_map_do_no_harm(jit: Jit) -> None:
    jit.map.write_text(f"zzz\n\n12\n{jit.entry} made_code\n{jit.start:x} 4\n{jit.start:x}")
    jit.assert_named("made_code")


def test_control_characters_in_a_perf_map_are_left_out(jit: Jit) -> None:
    jit.map.write_bytes(f"{jit.entry} ".encode() + b"made\x1b[31m\x07_code\xff\n")
    jit.assert_named("made[31m_code\ufffd")


def test_a_perf_map_in_hexadecimal_with_0x_is_read(jit: Jit) -> None:
    start, size = jit.entry.split()
    jit.map.write_text(f"0x{start} 0x{size} made code with blanks\n")
    jit.assert_named("made code with blanks")


def test_a_perf_map_of_another_user_is_refused(jit: Jit) -> None:
    jit.map.write_text(f"{jit.entry} made_code\n")
    os.chown(jit.map, 65534, 65534)
    jit.assert_unnamed()


def test_a_perf_map_that_is_a_link_is_refused(jit: Jit, tmp_path: Path) -> None:
    (tmp_path / "map").write_text(f"{jit.entry} made_code\n")
    jit.map.symlink_to(tmp_path / "map")
    jit.assert_unnamed()


def test_a_perf_map_that_is_a_pipe_is_refused_without_waiting_for_it(jit: Jit) -> None:
    os.mkfifo(jit.map)
    jit.assert_unnamed()


def test_a_huge_perf_map_is_read_up_to_a_bound(jit: Jit) -> None:
    jit.map.write_text(f"{jit.entry} made_code\n")
    os.truncate(jit.map, 1 << 40)
    jit.assert_named("made_code")


def test_a_perf_map_is_found_from_outside_the_namespaces_of_its_process() -> None:
    script = f"exec 3< {build('jit.c')} && mount -t tmpfs none /tmp && exec /proc/self/fd/3"
    with Program("unshare", "--pid", "--fork", "--kill-child", "--mount", "sh", "-c", script) as program:
        pid = int(Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text())
        _, start, size = program.preface[0].split()
        Path(f"/proc/{pid}/root/tmp/perf-1.map").write_text(f"{start} {size} made_in_a_container\n")
        samples = recorded(program, pids=(pid,))
    assert count(samples, "made_in_a_container") > 0.9 * count(samples), misses(samples)


# Libraries


def test_a_library_that_is_loaded_later_is_named() -> None:
    library = build("plugin.c", *LIBRARY, "-DWORK=late_work")
    with Program(build("loader.c", "-ldl"), "20", f"{library}:late_work") as program:
        samples = recorded(program)
    assert count(samples, "late_work") > 0.8 * count(samples), misses(samples)
