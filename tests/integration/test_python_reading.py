"""What is read of a running CPython from outside is what it says of itself, version by version."""

from __future__ import annotations

import json
import struct
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from support_interpreters import Interpreter, find_all, interpreters, read
from support_workloads import FREESTANDING, LIBRARY, SOURCES, Program, build, require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: A thread that computes holds the lock almost always; so many looks do not all miss it.
LOOKS: Final = 100

#: A function of a subinterpreter, in the main thread of the main one.
SUBINTERPRETER: Final = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
run = interpreters.exec if hasattr(interpreters, "exec") else interpreters.run_string
run(interpreters.create(), "def waits():\\n  print('ready', flush=True); input()\\nwaits()")
"""
#: The same in a program that only embeds an interpreter.
EMBEDDED: Final = ("gdb", "-nx", "-batch", "-ex", "python print('ready', flush=True); input()")

SPINS: Final = "import sys; print('ready', flush=True); sys.stdin.readline()\nwhile True: pass"


@pytest.fixture(params=interpreters(), scope="module")
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    interpreter: Interpreter = request.param
    return interpreter


@pytest.fixture(scope="module")
def waiting(interpreter: Interpreter) -> Iterator[Program]:
    with Program(interpreter.path, SOURCES / "python_threads.py") as program:
        yield program


@pytest.fixture(scope="module")
def process(waiting: Program) -> dict[str, Any]:
    (process,) = read("process", waiting.pid)
    return process


@pytest.fixture(scope="module")
def truth(waiting: Program) -> dict[int, dict[str, Any]]:
    """What Python says of each thread, by its pthread_self()."""
    threads = [json.loads(line) for line in waiting.preface]
    return {thread["pthread"]: thread for thread in threads}


def test_the_version_is_known(interpreter: Interpreter, process: dict[str, Any]) -> None:
    assert ".".join(process["version"].split(".")[:2]) == interpreter.version.rstrip("t")
    assert process["is_free_threaded"] == interpreter.version.endswith("t")


def test_every_thread_is_found(
    interpreter: Interpreter, process: dict[str, Any], truth: dict[int, dict[str, Any]]
) -> None:
    found = {thread["pthread"]: thread["native_id"] for thread in process["threads"]}
    has_native_id = interpreter.minor >= 11
    assert found == {one: thread["native_id"] if has_native_id else None for one, thread in truth.items()}


def test_every_frame_is_found(process: dict[str, Any], truth: dict[int, dict[str, Any]]) -> None:
    for thread in process["threads"]:
        assert not thread["is_truncated"]
        frames = [[one["code"], one["name"], one["file"], one["position"][0]] for one in thread["frames"]]
        assert frames == truth[thread["pthread"]]["frames"]


def test_frames_that_native_code_called_say_so(interpreter: Interpreter, process: dict[str, Any]) -> None:
    (main,) = (one["frames"] for one in process["threads"] if "<module>" in {frame["name"] for frame in one["frames"]})
    entries = {frame["name"]: frame["is_entry"] for frame in main}
    expected = {"generate": True, "called_by_native_code": True, "main": interpreter.minor < 11, "<module>": True}
    assert entries == expected


def test_the_pointer_to_the_thread_state_is_in_its_slot(waiting: Program, process: dict[str, Any]) -> None:
    with open(f"/proc/{waiting.pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 unbuffered, of another process
        for thread in process["threads"]:
            address = thread["pthread"]
            for step in process["slot"]:
                memory.seek(address + step)
                (address,) = struct.unpack("<Q", memory.read(8))
            assert address == thread["state"]


def test_nobody_holds_the_lock_while_all_wait(interpreter: Interpreter, process: dict[str, Any]) -> None:
    assert {thread["has_gil"] for thread in process["threads"]} == {not interpreter.version.endswith("t")}
    assert not any(thread["holds_gil"] for thread in process["threads"])


def test_a_thread_that_computes_holds_the_lock(interpreter: Interpreter) -> None:
    if interpreter.version.endswith("t"):
        pytest.skip("free-threaded: there is no lock")
    with Program(interpreter.path, "-c", SPINS) as program:
        program.go()
        looks = (read("process", program.pid)[0]["threads"] for _ in range(LOOKS))
        assert any(thread["holds_gil"] for threads in looks for thread in threads)


def test_every_instruction_has_the_place_that_python_gives_it(interpreter: Interpreter) -> None:
    with Program(interpreter.path, SOURCES / "code_objects.py") as program:
        truths = [json.loads(line) for line in program.preface]
        asked = "".join(f"{one['address']} {len(one['positions'])}\n" for one in truths)
        codes = read("codes", program.pid, text=asked)
    assert len(truths) > 1000
    for truth, code in zip(truths, codes, strict=True):
        before, *positions = code["positions"]
        expected = [in_order(position, has_columns=interpreter.minor >= 11) for position in truth["positions"]]
        assert positions == expected, truth["name"]
        assert before[0] == truth["first_line"]
        for field in ("name", "qualified_name", "first_line"):
            assert code[field] == truth[field]
        assert code["file"] == truth["file"].replace("\udc80", "\\udc80")


def in_order(position: list[int | None], *, has_columns: bool) -> list[int | None]:
    """Line, last line, column, last column, all of the same instruction."""
    return position if has_columns else [position[0], None, None, None]


def test_threads_of_subinterpreters_are_found(interpreter: Interpreter) -> None:
    with Program(interpreter.path, "-c", SUBINTERPRETER) as program:
        (process,) = read("process", program.pid)
    stacks = [[frame["name"] for frame in thread["frames"]] for thread in process["threads"]]
    assert stacks == [["waits", "<module>"], ["<module>"]]


def test_embedded_interpreters_are_found() -> None:
    require("gdb")
    with Program(*EMBEDDED) as program:
        (process,) = read("process", program.pid)
    assert [frame["shown_name"] for frame in process["threads"][0]["frames"]] == ["<module>"]


def test_what_is_no_interpreter_is_not_taken_for_one() -> None:
    (shell,) = read("files", "/bin/sh")
    assert shell["interpreter"] is None


@pytest.mark.parametrize("flags", [(), ("-fomit-frame-pointer",)], ids=["frame pointers", "no frame pointers"])
def test_the_loop_is_found_with_its_part_elsewhere_in_stripped_files(flags: tuple[str, ...], tmp_path: Path) -> None:
    whole, stripped = build("interpreter.c", *LIBRARY, "-foptimize-sibling-calls", *flags), tmp_path / "stripped"
    subprocess.run([require("strip"), whole, "-o", stripped], check=True)
    (by_name,), (by_shape,) = read("files", whole), read("files", stripped)
    assert by_name["interpreter"]["version"] == "3.12.4"
    assert len(by_name["interpreter"]["evaluation"]) == 2
    assert by_shape["interpreter"] == by_name["interpreter"]


def test_an_interpreter_without_names_is_known_by_its_section(tmp_path: Path) -> None:
    whole, stripped = build("nameless_interpreter.c", *FREESTANDING), tmp_path / "stripped"
    subprocess.run([require("strip"), whole, "-o", stripped], check=True)
    (by_name,), (by_section,) = read("files", whole), read("files", stripped)
    assert by_section["interpreter"]["version"] == "3.13.7"
    assert by_section["interpreter"]["runtime"] == by_name["interpreter"]["runtime"]
    assert by_section["interpreter"]["evaluation"] == []


def test_old_interpreters_are_refused_in_one_line() -> None:
    old = next((path for path in find_all() if path.name == "python3.8"), None)
    if old is None:
        pytest.skip("no CPython 3.8")
    with Program(old, "-c", SPINS) as program:
        (answer,) = read("process", program.pid)
    assert answer == {"refused": "CPython 3.8 is older than 3.9, the first one whose layout is known"}
