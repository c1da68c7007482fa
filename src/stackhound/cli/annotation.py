"""A source file with the time beside its lines: ``report --lines``.

    /srv/app.py: self 80.0%, total 100.0%
       self    total       self      total  line
                                              3  def work(n):
      60.0%    60.0%    60.0 ms    60.0 ms    4      return sum(range(n))
                                                 …
      20.0%   100.0%    20.0 ms     100 ms   10  main()

Values of a line are those of the frames that were on it: ``self`` at the leaf, ``total`` anywhere in the stack.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import numpy as np

from stackhound.errors import UsageError, reason_of
from stackhound.profile.escape import printable
from stackhound.profile.metadata import read_int
from stackhound.profile.top import has_ancestor_alike
from stackhound.profile.units import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stackhound.profile import CallTree, Event, Profile
    from stackhound.profile.columns import Numbers

CONTEXT_LINES: Final = 2  # before and after a line with time
TAB_COLUMNS: Final = 4
LISTED_FILES: Final = 10
#: Generated C files of SQLite's size (9 MB) are shown; what is larger no one reads by line.
MAX_SOURCE_BYTES: Final = 32 << 20


class Amount(NamedTuple):
    """In the event's unit."""

    self_value: int
    total_value: int


NOTHING: Final = Amount(0, 0)


class Annotation(NamedTuple):
    """A file and the values of its lines.

    Attributes:
        path: the file as the profile has it.
        whole: of the file: each sample counts once, on however many lines it was.
        by_line: of each line with a value, in order; 0 stands for frames without a line.
        text: the lines of the file; None where it cannot be shown.
        note: why not; empty where it is.
    """

    path: str
    whole: Amount
    by_line: dict[int, Amount]
    text: list[str] | None
    note: str

    def rows(self, least_value: float, everything: bool) -> list[int]:
        """The lines to show: those with at least ``least_value`` and what is around them, or all of the file."""
        last = len(self.text) if self.text is not None else 0
        if everything:
            return sorted({*self.by_line, *range(1, last + 1)})
        hot = [line for line, amount in self.by_line.items() if amount.total_value >= least_value]
        around = {near for line in hot if line for near in range(line - CONTEXT_LINES, line + CONTEXT_LINES + 1)}
        return sorted({near for near in around if 1 <= near <= last} | set(hot))

    def text_of(self, line: int) -> str | None:
        """The text of a line; None where it is not known."""
        return self.text[line - 1] if self.text is not None and line else None


def annotate(profile: Profile, event: Event, name: str) -> Annotation:
    """Sum an event by the lines of a source file.

    Args:
        profile: what to sum.
        event: of it.
        name: the file's path as the profile has it, relative to here, or the end of it.

    Raises:
        UsageError: no sample was in such a file, or it may be one of several.
    """
    tree = profile.tree(event.name, lines=True)
    path = _choose_file(name, {tree.frames.file[frame] for frame in set(tree.frame[1:].tolist())} - {""})
    in_file = np.array([file == path for file in tree.frames.file], bool)
    line = np.where(in_file, tree.frames.line.astype(np.int64), -1)
    by_line = _sum_nodes(tree, line)
    (whole,) = _sum_nodes(tree, np.where(in_file, 0, -1)).values()
    text, note = _read_source(path, max(by_line), _start_unix_ns(profile))
    return Annotation(path, whole, by_line, text, note)


def _choose_file(name: str, files: set[str]) -> str:
    whole = os.path.abspath(name)  # noqa: PTH100 - Path.resolve would follow links, which the profile did not
    for exact in (name, whole):
        if exact in files:
            return exact
    found = sorted(file for file in files if file.endswith(f"/{os.path.normpath(name)}"))
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{name!r} may be {_listed(found)}", "give more of its path")
    raise UsageError(f"no sample was in a source file {name!r}", "'report --sort file' lists those that are known")


def _listed(files: list[str]) -> str:
    more = len(files) - LISTED_FILES
    shown = ", ".join(printable(file) for file in files[:LISTED_FILES])
    return f"{shown} and {more} more" if more > 0 else shown


def _sum_nodes(tree: CallTree, group: Numbers) -> dict[int, Amount]:
    """Sum the tree by a group of its frames, int64 (n_frames,), in order; −1 is none.

    A node below another one of its group adds no total, so that each sample counts once.
    """
    groups = group[tree.frame[1:]]
    keys, index = np.unique(groups, return_inverse=True)
    own, total = np.zeros(len(keys), np.uint64), np.zeros(len(keys), np.uint64)
    np.add.at(own, index, tree.self_value[1:])
    outermost = ~has_ancestor_alike(tree, groups)
    np.add.at(total, index[outermost], tree.total_value[1:][outermost])
    sums = zip(keys.tolist(), own.tolist(), total.tolist(), strict=True)
    return {key: Amount(self_value, total_value) for key, self_value, total_value in sums if key >= 0}


def _start_unix_ns(profile: Profile) -> int | None:
    """When the recording began; None where its clock is not known."""
    offset_ns = read_int(profile.metadata, "clock", "boot_to_unix_ns_start")
    return None if offset_ns is None else profile.start_boottime_ns + offset_ns


def _read_source(path: str, last_line: int, start_unix_ns: int | None) -> tuple[list[str] | None, str]:
    """The lines of a file, or why they are not shown. The path is what some program said: it may name anything."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        with open(descriptor, encoding="utf-8", errors="replace") as source:  # noqa: PTH123 - not to be waited for
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_SOURCE_BYTES:
                return None, "it is no file of source code"
            lines = source.read(MAX_SOURCE_BYTES).removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        reason = reason_of(error) if isinstance(error, OSError) else "no such file or directory"
        return None, f"it cannot be read here: {reason}"
    if start_unix_ns is not None and facts.st_mtime_ns > start_unix_ns:
        return None, "it was changed since the recording began"
    if last_line > len(lines):
        return None, f"it has fewer lines than were recorded: {len(lines)}, not {last_line}"
    return lines, ""


def draw(annotation: Annotation, event: Event, whole: int, least_percent: float, everything: bool) -> Iterator[str]:
    """The lines to print: the file, why it has no text, and its lines, each with its values."""
    yield printable(f"{annotation.path}: {_shares(annotation.whole, whole)}")
    if annotation.note:
        yield f"shown without text: {annotation.note}"
    yield ""
    rows = annotation.rows(whole * least_percent / 100, everything)
    width = max(len("line"), len(str(max(rows, default=0))))
    yield click.style(f"{'self':>7}  {'total':>7}  {'self':>9}  {'total':>9}  {'line':>{width}}", bold=True)
    before = 0
    for line in rows:
        if annotation.text is not None and before and line > before + 1:
            yield " " * (42 + width) + "…"
        yield _draw_line(annotation, line, event, whole, width)
        before = line


def _draw_line(annotation: Annotation, line: int, event: Event, whole: int, width: int) -> str:
    amount = annotation.by_line.get(line)
    cells = " " * 38 if amount is None else _cells(amount, event, whole)
    text = annotation.text_of(line)
    shown = printable(text.expandtabs(TAB_COLUMNS)) if text else ""
    return f"{cells}  {line or '?':>{width}}  {shown}".rstrip()


def _cells(amount: Amount, event: Event, whole: int) -> str:
    shares = (f"{100 * value / whole:6.1f}%" for value in amount)
    values = (f"{format_value(value, event.unit):>9}" for value in amount)
    return "  ".join((*shares, *values))


def _shares(amount: Amount, whole: int) -> str:
    return f"self {100 * amount.self_value / whole:.1f}%, total {100 * amount.total_value / whole:.1f}%"


def as_rows(annotation: Annotation, lines: Iterable[int]) -> list[dict[str, Any]]:
    """For programs: number, self, total and text of each line; the number of frames without a line is None."""
    amounts = ((line, annotation.by_line.get(line, NOTHING)) for line in lines)
    return [
        {"line": line or None, "self": own, "total": total, "text": annotation.text_of(line)}
        for line, (own, total) in amounts
    ]
