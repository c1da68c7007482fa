"""What the doctor says of a process: how each file of it unwinds, what names it, and what mends the rest."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from stackhound import _native
from stackhound.cli.main import main
from stackhound.recording import process_doctor
from stackhound.recording.process_doctor import CodeFinding, examine_process
from stackhound.recording.runtimes import lacks_frame_pointers

if TYPE_CHECKING:
    from pathlib import Path

JVM = "/usr/lib/jvm/java-17/lib/server/libjvm.so"
ALL = [".eh_frame", ".symtab", ".dynsym"]


def mapping(path: str, sections: list[str] = ALL, start: int = 0x1000, **changes: Any) -> dict[str, Any]:
    found = {"start": start, "end": start + 0x1000, "path": path, "sections": sections}
    return {"build_id": "abcdef", "debug_link": "", "reason": "", **found, **changes}


@pytest.fixture(autouse=True)
def _no_dpkg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_doctor, "_find_packages", lambda _: {})


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Examines a process with these mappings."""

    def examine(
        *mappings: dict[str, Any], perf_map: int | None = None, jitdump: int | None = None
    ) -> list[CodeFinding]:
        found = {"comm": "app", "mappings": list(mappings), "perf_map_names": perf_map, "jitdump_codes": jitdump}
        monkeypatch.setattr(_native, "inspect_process", lambda _: found)
        return examine_process(1234)

    return examine


def test_a_file_with_tables_and_symbols_is_fine(examine: Any) -> None:
    (found,) = examine(mapping("/usr/bin/app"))
    assert (found.state, found.remedy) == ("ok", "")
    assert found.detail == "unwinds by .eh_frame, names from its symbol table, no lines"


def test_a_file_is_told_once_however_often_it_is_mapped(examine: Any) -> None:
    first, second = mapping("/usr/bin/app"), mapping("/usr/bin/app", start=0x5000)
    (found,) = examine(first, second)
    assert found.ranges == [(0x1000, 0x2000), (0x5000, 0x6000)]


def test_a_stripped_library_names_its_debug_package(examine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_doctor, "_find_packages", lambda paths: {paths[0]: "libssl3"})
    (found,) = examine(mapping("/usr/lib/libssl.so.3", [".eh_frame", ".dynsym"]))
    assert found.state == "degraded"
    assert "names of what it exports" in found.detail
    assert found.remedy == "sudo apt install libssl3-dbgsym"


def test_a_debug_file_is_found_by_build_id(examine: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(process_doctor, "DEBUG_DIRECTORY", tmp_path)
    debug = tmp_path / ".build-id" / "ab" / "cdef.debug"
    debug.parent.mkdir(parents=True)
    debug.touch()
    (found,) = examine(mapping("/usr/lib/libssl.so.3", [".eh_frame", ".dynsym"]))
    assert (found.state, found.debug_file) == ("ok", str(debug))
    assert f"lines from {debug}" in found.detail


def test_a_file_without_tables_is_to_be_built_again(examine: Any) -> None:
    (found,) = examine(mapping("/opt/app", [".symtab"]))
    assert found.state == "degraded"
    assert "frame pointers" in found.detail
    assert "-fasynchronous-unwind-tables" in found.remedy


def test_go_tells_everything_by_its_own_tables(examine: Any) -> None:
    (found,) = examine(mapping("/opt/server", [".gopclntab"]))
    assert found.state == "ok"
    assert found.detail == "unwinds by Go's tables, names from Go's tables, lines"


def test_a_file_that_cannot_be_read_says_why(examine: Any) -> None:
    (found,) = examine(mapping("/secret", [], reason="Permission denied"))
    assert (found.state, found.detail) == ("missing", "Permission denied")


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("/usr/bin/node", "--perf-basic-prof"),
        ("/usr/lib/jvm/java-17/lib/server/libjvm.so", "jcmd 1234 Compiler.perfmap"),
        ("/usr/share/dotnet/libcoreclr.so", "DOTNET_PerfMapEnabled=1"),
        ("/usr/bin/something", "perf map"),
    ],
)
def test_made_code_without_names_says_how_its_runtime_writes_them(examine: Any, path: str, remedy: str) -> None:
    *_, found = examine(mapping(path), mapping("", []))
    assert (found.subject, found.state) == ("code made at run time", "degraded")
    assert remedy in found.remedy


def test_made_code_with_a_perf_map_is_fine(examine: Any) -> None:
    memory = mapping("/memfd:doublemapper", [], reason="not an ELF file")
    *_, found = examine(mapping("/usr/bin/node"), memory, perf_map=1203, jitdump=0)
    assert (found.state, found.detail) == ("ok", "4 KiB, 1,203 names in its perf map")


@pytest.fixture
def process(tmp_path: Path) -> Path:
    (tmp_path / "cmdline").write_bytes(b"java\0-jar\0app.jar\0")
    (tmp_path / "environ").write_bytes(b"HOME=/root\0")
    return tmp_path


def test_java_without_its_option_has_no_frame_pointers(process: Path) -> None:
    assert lacks_frame_pointers([JVM], process) == "-XX:+PreserveFramePointer"
    assert lacks_frame_pointers(["/usr/bin/node"], process) == ""


@pytest.mark.parametrize(
    ("record", "content"),
    [
        ("cmdline", b"java\0-XX:+PreserveFramePointer\0-jar\0app.jar\0"),
        ("environ", b"HOME=/root\0JAVA_TOOL_OPTIONS=-Xmx1g -XX:+PreserveFramePointer\0"),
    ],
)
def test_java_has_its_option_by_command_line_or_environment(process: Path, record: str, content: bytes) -> None:
    (process / record).write_bytes(content)
    assert lacks_frame_pointers([JVM], process) == ""


def test_java_with_names_and_without_frame_pointers_is_to_be_started_anew(
    examine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_doctor, "lacks_frame_pointers", lambda _paths, _process: "-XX:+PreserveFramePointer")
    *_, found = examine(mapping(JVM), mapping("", []), perf_map=7)
    assert (found.state, found.unwinding) == ("degraded", "")
    assert found.remedy == "start it with -XX:+PreserveFramePointer"


def test_what_the_kernel_maps_is_not_told(examine: Any) -> None:
    assert [one.subject for one in examine(mapping("/app"), mapping("[vdso]", []), mapping("[vsyscall]", []))] == [
        "/app"
    ]


def test_names_of_files_cannot_write_to_the_terminal(examine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    examine(mapping("/tmp/\x1b[31mred"))
    assert main(["doctor", "-p", "1234"]) == 0
    output = capsys.readouterr().out
    assert "\x1b[31mred" not in output
    assert "\\x1b[31mred" in output


def test_the_command_line_tells_of_a_real_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-p", str(os.getpid()), "--json"]) == 0
    libc = next(one for one in json.loads(capsys.readouterr().out) if "libc.so" in one["subject"])
    assert libc["unwinding"] == ".eh_frame"
    assert libc["build_id"]


def test_a_process_that_is_not_there_is_an_error_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "-p", "4194304"]) == 1
    assert "no process 4194304" in capsys.readouterr().err


def test_a_profile_and_a_process_are_not_told_at_once() -> None:
    assert main(["doctor", "x.hound", "-p", "1"]) == 2
