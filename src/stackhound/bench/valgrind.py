"""What valgrind's tools count in any native program: instructions in user space, and what it asks of its heap.

Slow (some 50 times), and the same in every run of a program that does the same, on any machine and beside any
neighbour. The tools run as a command in front of the command, and write a log a process.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Final, NamedTuple

from stackhound.errors import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path


class Tool(NamedTuple):
    """One of valgrind's tools.

    Attributes:
        options: that keep it from writing a profile.
        pattern: of the line in its log; its groups are numbers of ``measures``, in their order.
    """

    name: str
    options: tuple[str, ...]
    pattern: re.Pattern[str]
    measures: tuple[str, ...]

    def wrap(self, command: Iterable[str], logs: Path) -> tuple[str, ...]:
        """The command that runs ``command`` under it, with a log of each process in the directory ``logs``.

        Raises:
            BenchmarkError: there is no valgrind.
        """
        if shutil.which("valgrind") is None:
            what = " and ".join(self.measures)
            raise BenchmarkError(f"there is no valgrind, which counts {what}", "install it, or leave them out")
        common = (f"--tool={self.name}", "--trace-children=yes", f"--log-file={logs}/%p")
        return ("valgrind", *common, *self.options, *command)

    def read(self, logs: Path) -> dict[str, list[object]]:
        """The sums over all processes, by measure; empty where none told."""
        found = [match for log in logs.iterdir() if (match := self.pattern.search(log.read_text(errors="replace")))]
        if not found:
            return {}
        sums = [sum(int(text.replace(",", "")) for text in texts) for texts in zip(*map(_groups, found), strict=True)]
        return {measure: [total] for measure, total in zip(self.measures, sums, strict=True)}


#: Python's hashes of texts, and with them how its dictionaries are searched, are otherwise others in each run.
ENVIRONMENT: Final = {"PYTHONHASHSEED": "0"}

TOOLS: Final = (
    Tool(
        "callgrind",
        ("--callgrind-out-file=/dev/null",),
        re.compile(r"Collected : (\d+)"),
        ("callgrind-instructions",),
    ),
    Tool(
        "dhat",
        ("--dhat-out-file=/dev/null",),
        re.compile(r"Total: +([\d,]+) bytes in ([\d,]+) blocks"),
        ("allocated", "allocations"),
    ),
)
MEASURES: Final = frozenset(measure for tool in TOOLS for measure in tool.measures)


def choose_tools(measures: Collection[str]) -> list[Tool]:
    """Those that it takes for some measures."""
    return [tool for tool in TOOLS if not set(tool.measures).isdisjoint(measures)]


def _groups(match: re.Match[str]) -> tuple[str, ...]:
    return match.groups()
