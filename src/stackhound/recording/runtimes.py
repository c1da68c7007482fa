"""Runtimes that make code while they run: how each is known, and how to have it tell the names of that code.

docs/jit.md says it at length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Runtime:
    """``names``: what makes it tell the names of its code; ``{pid}`` is the process."""

    name: str
    file: str  # a regular expression for the path of a file that it maps
    names: str


RUNTIMES: Final = (
    Runtime("Java", r"/libjvm\.so$", "jcmd {pid} Compiler.perfmap, and start it with java -XX:+PreserveFramePointer"),
    Runtime(
        "Node.js",
        r"/(node(js)?|libnode\.so[.\d]*)$",
        "start it with node --perf-basic-prof --interpreted-frames-native-stack",
    ),
    Runtime(".NET", r"/libcoreclr\.so$", "start it with DOTNET_PerfMapEnabled=1"),
    Runtime("Erlang", r"/beam(\.smp)?$", "start it with erl +JPperf true"),
    Runtime("Ruby", r"/(lib)?ruby[^/]*$", "start it with ruby --yjit-perf"),
)


def remedy_for(paths: Iterable[str], pid: int | str = "PID") -> str:
    """How to have the runtime among these mapped files tell the names of its code."""
    paths = list(paths)
    for runtime in RUNTIMES:
        if any(re.search(runtime.file, path) for path in paths):
            return runtime.names.format(pid=pid)
    return "have its runtime write a perf map or a jitdump"
