"""The output formats, one file each, found by name or by the suffix of a path.

To add one: write ``formats/NAME.py`` with ``write``, add its line to `FORMATS`, and a test under ``tests/golden/``
that puts the result before a reader that is not ours. A format is imported only when it is used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from stackhound.errors import UsageError

if TYPE_CHECKING:
    from stackhound.profile import Profile

__all__ = ["FORMATS", "Format", "by_name", "by_path"]


class Format(NamedTuple):
    """One way to write a profile.

    Attributes:
        name: what ``--format`` calls it; ``stackhound.formats.NAME`` writes it.
        suffixes: endings of a path that ask for it, each with its dot; empty when only its name does.
        summary: what it is, in a few words.
        binary: not for a terminal.
        directory: a directory of files, not one stream of bytes.
        single_event: shows one event, which has to be named where a profile has several.
        whole: has all that was recorded, also what is not shown otherwise.
    """

    name: str
    suffixes: tuple[str, ...]
    summary: str
    binary: bool = False
    directory: bool = False
    single_event: bool = False
    whole: bool = False

    @property
    def file_mode(self) -> int:
        """Permissions of a new file, before the umask."""
        if self.name != "hound":
            return 0o666
        from stackhound.profile.hound import FILE_MODE

        return FILE_MODE

    def write(self, profile: Profile, out: BinaryIO, *, event: str | None = None) -> None:
        """Write ``profile`` into ``out``.

        Raises:
            UsageError: the format shows one event and ``event`` does not say which, or it is a directory.
        """
        if self.directory:
            raise UsageError(f"{self.name} is a directory of files, not one file", "name a directory with -o DIR")
        import_module(f"{__name__}.{self.name}").write(profile if self.whole else profile.shown, out, event=event)

    def write_directory(self, profile: Profile, path: Path) -> None:
        """Write ``profile`` as files into the directory ``path``, made if need be. Only where ``directory``."""
        import_module(f"{__name__}.{self.name}").write_directory(profile, path)


FORMATS: tuple[Format, ...] = (
    Format("hound", (".hound",), "stackhound's own file, with everything in it", binary=True, whole=True),
    Format("folded", (".folded",), "stacks on a line each, root first, for flamegraph.pl", single_event=True),
    Format("counted", (".counted",), "stacks on a line each, count first, leaf first", single_event=True),
    Format("text", (".txt",), "stacks to read, heaviest first, with file and line"),
    Format("jsonl", (".jsonl",), "a JSON object a sample, one a line"),
    Format("pprof", (".pb.gz",), "for go tool pprof and Pyroscope", binary=True, single_event=True),
    Format("speedscope", (".speedscope.json",), "for speedscope.app"),
    Format("firefox", (".firefox.json",), "for profiler.firefox.com: threads over time, source, assembly"),
    Format("perfetto", (".pftrace", ".perfetto-trace"), "for ui.perfetto.dev: threads over time, curves", binary=True),
    Format("svg", (".svg",), "flame graph, a picture to print or to embed", single_event=True),
    Format("html", (".html",), "flame graph, one page to zoom and search", single_event=True),
    Format("dhat", (".dhat.json",), "allocations for valgrind's dh_view.html", single_event=True),
    Format("parquet", (), "the tables, for polars, DuckDB and Spark", binary=True, directory=True, whole=True),
)


def by_name(name: str) -> Format:
    """Find a format by its name.

    Raises:
        UsageError: there is none of this name; the message lists those there are.
    """
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    raise UsageError(f"no format is called {name!r}", f"choose one of {', '.join(known.name for known in FORMATS)}")


def by_path(path: str | Path) -> Format:
    """Find the format that the suffix of ``path`` asks for; the longest suffix that fits wins.

    Raises:
        UsageError: no format has such a suffix; the message lists the suffixes there are.
    """
    suffixes = {suffix: known for known in FORMATS for suffix in known.suffixes}
    fitting = [suffix for suffix in suffixes if Path(path).name.lower().endswith(suffix)]
    if fitting:
        return suffixes[max(fitting, key=len)]
    raise UsageError(
        f"the name of {str(path)!r} says no format",
        f"use --format, or one of {' '.join(suffixes)}",
    )
