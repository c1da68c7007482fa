"""Code that the real runtimes make has names, and complete stacks, by what docs/jit.md tells people to do."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from stackhound import load
from stackhound.profile.schema import USER_ENDS, SampleFlag
from support_profiles import Sample, assert_every_miss_has_one_reason, count, misses, samples_of, where
from support_recordings import record_some, run_stackhound, wait_for
from support_workloads import Program, build, require

pytestmark = pytest.mark.ebpf

SAMPLES: Final = 100
PAGE: Final = Path(__file__).parents[2] / "docs" / "jit.md"

only_on_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the made code is x86-64's")


def recorded(program: Program, **options: object) -> list[Sample]:
    profile = record_some(SAMPLES, program, frequency_hz=999, **options)
    assert_every_miss_has_one_reason(profile)
    return samples_of(profile)


def whole(directory: Path, *command: str | Path) -> list[Sample]:
    """A command from its start to its end, by the command line."""
    result = run_stackhound("record", "-F", "999", "-o", "whole.hound", "--", *command, cwd=directory)
    assert result.returncode == 0, result.stderr
    return samples_of(load(directory / "whole.hound"))


def is_complete(sample: Sample) -> bool:
    return USER_ENDS[(sample.flags & SampleFlag.USER_END) >> SampleFlag.USER_END_SHIFT] == "complete"


def assert_told(words: str) -> None:
    """The page says so, too: what it tells people is what is tested here."""
    assert words in PAGE.read_text(), f"docs/jit.md does not say {words}"


# jitdump, written by a program whose truth is known


def test_code_that_took_the_place_of_other_code_has_its_own_name(tmp_path: Path) -> None:
    with Program(build("jitdump.c"), "replaced", "300", cwd=tmp_path) as program:
        profile = record_some(500, program, frequency_hz=999)
        samples = samples_of(profile)
    first, second = (where(samples, lambda sample, name=name: name in sample.names) for name in ("first", "second"))
    assert max(sample.boottime_ns for sample in first) <= min(sample.boottime_ns for sample in second)
    for found, name, line in ((first, "first", 10), (second, "second", 20)):
        assert count(found) > 0.4 * count(samples), misses(samples)
        frames = {frame for sample in found for frame in sample.frames if frame.name == name}
        assert {(frame.kind, frame.file, frame.line) for frame in frames} == {("jit", f"/source/{name}.txt", line)}


def test_code_that_was_moved_keeps_its_name_and_its_line(tmp_path: Path) -> None:
    with Program(build("jitdump.c"), "moved", "300", cwd=tmp_path) as program:
        samples = samples_of(record_some(500, program, frequency_hz=999))
    assert count(samples, "first") > 0.9 * count(samples), misses(samples)
    assert {frame.line for sample in samples for frame in sample.frames if frame.name == "first"} == {10}


@only_on_x86_64
def test_made_code_without_frame_pointers_is_unwound_by_what_its_dump_says(tmp_path: Path) -> None:
    with Program(build("jitdump.c"), "caller", cwd=tmp_path) as program:
        samples = recorded(program)
    working = where(samples, lambda sample: sample.leaf == "callee")
    assert {sample.names[-4:] for sample in working} == {("main", "run_caller", "caller", "callee")}
    assert count(working) > 0.9 * count(samples)
    assert count(where(samples, is_complete)) > 0.95 * count(samples), {sample.names for sample in samples}


def test_a_dump_that_is_something_else_does_no_harm(tmp_path: Path) -> None:
    with Program(build("jitdump.c"), "caller", cwd=tmp_path) as program:
        (tmp_path / f"jit-{program.pid}.dump").write_bytes(b"something else" * 1000)
        samples = recorded(program)
    assert "not in the jitdump" in {reason for _, reason in misses(samples)}


# Node.js

BUSY_JAVASCRIPT = """
function hotFunction(n) { let x = 0; for (let i = 0; i < n; i++) x = (x + i * 7) % 1000003; return x; }
console.log(process.pid);
console.log("ready");
const end = Date.now() + Number(process.argv[2]);
while (Date.now() < end) hotFunction(1000000);
"""


@pytest.fixture
def javascript(tmp_path: Path) -> Path:
    (tmp_path / "busy.js").write_text(BUSY_JAVASCRIPT)
    return tmp_path / "busy.js"


def hot_frames(samples: list[Sample]) -> list[Sample]:
    made = where(samples, lambda sample: any("hotFunction" in name for name in sample.names))
    assert {frame.kind for sample in made for frame in sample.frames if "hotFunction" in frame.name} == {"jit"}
    return made


def test_functions_of_node_are_named_by_its_perf_map(javascript: Path) -> None:
    options = ("--perf-basic-prof", "--interpreted-frames-native-stack")
    assert_told(f"node {' '.join(options)}")
    with Program(require("node"), *options, javascript, "600000", cwd=javascript.parent) as program:
        pid = int(program.preface[0])  # `node` may be a script that starts the real one
        samples = recorded(program, pids=(pid,))
        Path(f"/tmp/perf-{pid}.map").unlink()
    assert count(hot_frames(samples)) > 0.5 * count(samples), misses(samples)


def test_functions_of_node_have_names_and_lines_by_its_jitdump(javascript: Path) -> None:
    options = ("--perf-prof", "--perf-prof-unwinding-info", "--interpreted-frames-native-stack")
    assert_told(f"node {' '.join(options)}")
    samples = whole(javascript.parent, require("node"), *options, javascript, "700")
    made = hot_frames(samples)
    assert count(made) > 0.5 * count(samples), misses(samples)
    hot = [frame for sample in made for frame in sample.frames if "hotFunction" in frame.name]
    lines = {(Path(frame.file).name, frame.line) for frame in hot if frame.line}
    assert lines == {("busy.js", 2)}
    assert count(where(made, is_complete)) > 0.95 * count(made)


def test_the_doctor_tells_how_a_process_of_node_names_its_code(javascript: Path) -> None:
    found = {}
    for options in ((), ("--perf-basic-prof", "--interpreted-frames-native-stack")):
        with Program(require("node"), *options, javascript, "600000", cwd=javascript.parent) as program:
            pid = program.preface[0].strip()
            result = run_stackhound("doctor", "-p", pid, "--json")
            Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)
        (found[bool(options)],) = [
            one for one in json.loads(result.stdout) if one["subject"] == "code made at run time"
        ]
    assert (found[False]["state"], found[True]["state"]) == ("degraded", "ok")
    assert "node --perf-basic-prof --interpreted-frames-native-stack" in found[False]["remedy"]
    assert "names in its perf map" in found[True]["detail"]


# Java

BUSY_JAVA = """
public class Busy {
    static long hotMethod(int n) { long x = 0; for (int i = 0; i < n; i++) x = (x + i * 7L) % 1000003; return x; }
    public static void main(String[] a) {
        System.out.println("ready");
        for (;;) hotMethod(1000000);
    }
}
"""


def test_methods_of_java_are_named_by_a_map_that_jcmd_has_written(tmp_path: Path) -> None:
    option = "-XX:+PreserveFramePointer"
    assert_told(f"java {option}")
    assert_told("jcmd PID Compiler.perfmap")
    java, jcmd = require("java"), require("jcmd")
    (tmp_path / "Busy.java").write_text(BUSY_JAVA)
    with Program(java, option, "Busy.java", cwd=tmp_path) as program:

        def is_mapped() -> bool:
            """The method is compiled after a while."""
            subprocess.run([jcmd, str(program.pid), "Compiler.perfmap"], capture_output=True, check=True)
            return "hotMethod" in Path(f"/tmp/perf-{program.pid}.map").read_text()

        wait_for(is_mapped, "a map with the method")
        samples = recorded(program)
        Path(f"/tmp/perf-{program.pid}.map").unlink()
    made = where(samples, lambda sample: any("hotMethod" in name for name in sample.names))
    assert count(made) > 0.5 * count(samples), misses(samples)
    assert count(where(made, is_complete)) > 0.9 * count(made)


@pytest.mark.parametrize("option", ["-XX:+PreserveFramePointer", "-XX:-PreserveFramePointer"])
def test_the_doctor_tells_whether_java_keeps_frame_pointers(tmp_path: Path, option: str) -> None:
    (tmp_path / "Busy.java").write_text(BUSY_JAVA)
    with Program(require("java"), option, "Busy.java", cwd=tmp_path) as program:
        result = run_stackhound("doctor", "-p", str(program.pid), "--json")
    (made,) = [one for one in json.loads(result.stdout) if one["subject"] == "code made at run time"]
    assert made["unwinding"] == ("frame pointers" if "+" in option else "")
    assert ("stacks end in it" in made["detail"]) == ("+" not in option)


# CPython

BUSY_PYTHON = """
import sys, time
def leaf(n):
    return sum(i * i for i in range(n))
def middle(n):
    return leaf(n)
def outer():
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        middle(2000)
print("ready", flush=True)
outer()
"""


def python(version: str, option: str) -> str:
    """An interpreter with an option of ``-X``."""
    candidates = [
        shutil.which(f"python{version}"),
        *Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"),
    ]
    for candidate in filter(None, candidates):
        command = [candidate, "-X", option, "-c", "import sys; sys.exit(not sys.is_stack_trampoline_active())"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as probe:
            has_option = probe.wait() == 0
        for left in (f"/tmp/perf-{probe.pid}.map", f"/tmp/jit-{probe.pid}.dump"):
            Path(left).unlink(missing_ok=True)
        if has_option:
            return str(candidate)
    pytest.skip(f"needs CPython {version} with -X {option}")


def assert_whole_python_stacks(samples: list[Sample], script: Path) -> None:
    """Every Python function in its place, though the interpreter was built without frame pointers."""
    inside = where(samples, lambda sample: any(name.startswith("py::leaf:") for name in sample.names))
    assert count(inside) > 0.5 * count(samples), misses(samples)
    functions = [tuple(re.findall(rf"py::(\w+):{re.escape(str(script))}", "\n".join(s.names))) for s in inside]
    in_order = [names for names in functions if names[:3] == ("outer", "middle", "leaf")]
    assert len(in_order) > 0.95 * len(functions), set(functions)
    assert count(where(inside, is_complete)) > 0.95 * count(inside)


@pytest.mark.parametrize(("version", "asked"), [("3.12", "by option"), ("3.13", "by option"), ("3.12", "by variable")])
def test_functions_of_python_are_named_and_in_order(tmp_path: Path, version: str, asked: str) -> None:
    script = tmp_path / "busy.py"
    script.write_text(BUSY_PYTHON)
    assert_told("python -X perf ")
    assert_told("PYTHONPERFSUPPORT=1")
    interpreter = python(version, "perf")
    by_option, by_variable = (interpreter, "-X", "perf"), ("env", "PYTHONPERFSUPPORT=1", interpreter)
    with Program(*(by_option if asked == "by option" else by_variable), script, "600") as program:
        samples = recorded(program)
        Path(f"/tmp/perf-{program.pid}.map").unlink()
    assert_whole_python_stacks(samples, script)


def test_functions_of_python_are_named_by_its_jitdump(tmp_path: Path) -> None:
    script = tmp_path / "busy.py"
    script.write_text(BUSY_PYTHON)
    assert_told("python -X perf_jit ")
    before = set(Path("/tmp").glob("jit-*.dump"))
    samples = whole(tmp_path, python("3.13", "perf_jit"), "-X", "perf_jit", script, "0.8")
    for dump in set(Path("/tmp").glob("jit-*.dump")) - before:
        dump.unlink()
    assert_whole_python_stacks(samples, script)
