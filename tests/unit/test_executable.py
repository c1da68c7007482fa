"""What is executed for a command, and what it will have mapped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from stackhound.recording.executable import find_executable


def write_program(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    path.chmod(0o755)
    return str(path)


def test_a_script_is_executed_by_its_interpreter(tmp_path: Path) -> None:
    executable = find_executable(write_program(tmp_path / "script", b"#!/bin/sh -e\ntrue\n"))
    assert executable is not None
    assert executable.path == Path("/bin/sh")
    assert executable.is_elf


def test_scripts_that_interpret_each_other_are_nobodys_program(tmp_path: Path) -> None:
    path = tmp_path / "script"
    assert find_executable(write_program(path, f"#!{path}\n".encode())) is None
    assert find_executable(str(tmp_path / "none")) is None


def test_a_program_has_itself_and_the_libraries_that_its_loader_lists() -> None:
    executable = find_executable("/bin/sh")
    assert executable is not None
    first, *others = executable.files(os.environ, None)
    assert first == Path("/bin/sh")
    assert any(path.name.startswith(("libc.", "ld-musl-")) for path in others)
    assert all(path.is_file() for path in others)


def test_what_its_loader_does_not_list_is_the_program_alone(tmp_path: Path) -> None:
    head = Path(sys.executable).resolve().read_bytes()[:64]
    for content in (head, head[:20], b"", b"#!", b"\x7fELF" + b"\xff" * 200):
        path = tmp_path / "program"
        executable = find_executable(write_program(path, content))
        if executable is not None:
            assert executable.loader == ""
            assert executable.files(os.environ, None) == (path,)
