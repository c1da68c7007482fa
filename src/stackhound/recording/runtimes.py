"""Runtimes that make code while they run: how each is known, and how to have it tell the names of that code.

docs/jit.md says it at length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: Of what /proc says of a process: as long as the kernel lets arguments be by default (a quarter of 8 MiB of stack).
MAX_RECORD_BYTES: Final = 2 << 20


@dataclass(frozen=True)
class Runtime:
    """``names``: what makes it tell the names of its code; ``{pid}`` is the process."""

    name: str
    file: str  # a regular expression for the path of a file that it maps
    names: str
    keeps_frame_pointers: str = ""  # the option without which its code does not
    options: tuple[str, ...] = ()  # variables of the environment that have options, too


RUNTIMES: Final = (
    Runtime(
        "Java",
        r"/libjvm\.so$",
        "jcmd {pid} Compiler.perfmap, and start it with java -XX:+PreserveFramePointer",
        "-XX:+PreserveFramePointer",
        ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
    ),
    Runtime(
        "Node.js",
        r"/(node(js)?|libnode\.so[.\d]*)$",
        "start it with node --perf-basic-prof --interpreted-frames-native-stack",
    ),
    Runtime(".NET", r"/libcoreclr\.so$", "start it with DOTNET_PerfMapEnabled=1"),
    Runtime("Erlang", r"/beam(\.smp)?$", "start it with erl +JPperf true"),
    Runtime("Ruby", r"/(lib)?ruby[^/]*$", "start it with ruby --yjit-perf"),
)


def lacks_frame_pointers(paths: Iterable[str], process: Path) -> str:
    """The option that this runtime was not started with, as far as its command line and environment tell.

    Args:
        paths: files that the process maps.
        process: its directory in /proc.

    Returns:
        Empty where its code keeps frame pointers. Without them stacks end in it.
    """
    runtime = _find(paths)
    if runtime is None or not runtime.keeps_frame_pointers:
        return ""
    options = b" ".join(_read_words(process, runtime.options)).split()
    return "" if runtime.keeps_frame_pointers.encode() in options else runtime.keeps_frame_pointers


def _read_words(process: Path, variables: Iterable[str]) -> Iterator[bytes]:
    """The arguments of a process, and the values of variables of its environment."""
    yield from _read_record(process / "cmdline")
    for variable in _read_record(process / "environ"):
        name, _, value = variable.partition(b"=")
        if name.decode(errors="replace") in variables:
            yield value


def _read_record(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            return file.read(MAX_RECORD_BYTES).split(b"\0")
    except OSError:
        return []


def remedy_for(paths: Iterable[str], pid: int | str = "PID") -> str:
    """How to have the runtime among these mapped files tell the names of its code."""
    runtime = _find(paths)
    return runtime.names.format(pid=pid) if runtime else "have its runtime write a perf map or a jitdump"


def _find(paths: Iterable[str]) -> Runtime | None:
    paths = list(paths)
    known = (runtime for runtime in RUNTIMES if any(re.search(runtime.file, path) for path in paths))
    return next(known, None)
